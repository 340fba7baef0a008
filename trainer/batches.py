"""Batches of alike lengths under a budget of padded tokens, whatever order the rollouts came in."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from msgspec import Struct

from millstream.trainer.tokens import TokenSequence

_LENGTH_JITTER = 24.0
"""Sequences whose lengths differ by less than this may change places between epochs."""


class Example(Struct, frozen=True, kw_only=True):
    """A sequence as an algorithm wants it trained. `imitate`: also a target of supervised terms.

    `reference` are the champion's log-probs (nats) at the trained positions, in order, once they are known.
    """

    sequence: TokenSequence
    advantage: float = 0.0
    imitate: bool = True
    reference: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """What examples are ordered by."""
        return self.sequence.rollout_id, self.sequence.call

    @property
    def length(self) -> int:
        """Tokens in the row."""
        return len(self.sequence.ids)


def seeded(*parts: str | int) -> random.Random:
    """A random stream named by its parts; streams of different names are independent."""
    name = "\x1f".join(map(str, parts)).encode()
    return random.Random(int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "big"))


def make_batches(examples: Sequence[Example], tokens_per_batch: int, draw: random.Random) -> list[list[Example]]:
    """Batches of at most `tokens_per_batch` tokens, padding counted, in random order; a longer row is a batch alone."""
    ordered = sorted(examples, key=lambda example: example.key)
    by_length = sorted(((example.length + _LENGTH_JITTER * draw.random(), example) for example in ordered), key=_first)
    batches: list[list[Example]] = []
    batch: list[Example] = []
    longest = 0
    for _, example in by_length:
        longest = max(longest, example.length)
        if batch and longest * (len(batch) + 1) > tokens_per_batch:
            batches.append(batch)
            batch, longest = [], example.length
        batch.append(example)
    if batch:
        batches.append(batch)
    draw.shuffle(batches)
    return batches


def _first(pair: tuple[float, Example]) -> float:
    return pair[0]
