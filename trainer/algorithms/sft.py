"""Imitation of what went well: L = −mean log π(sampled token), on the best rollouts of each group.

Reward-ranked fine-tuning (RAFT: Dong et al., 2023): of each group up to `keep_per_group` distinct answers with a
reward of at least `keep_reward`, best first. `selection = "random"` takes as many at random instead, whatever their
reward: the control that shows what the reward teaches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from millstream.trainer.algorithms.base import Algorithm, Selection, groups, options_of
from millstream.trainer.batches import Example, seeded
from millstream.trainer.losses import Loss, Tokens, negative_log_likelihood
from millstream.trainer.tokens import Tokenised


class SftOptions(Struct, frozen=True, kw_only=True):
    """`temperature`: of the trained distribution (1: the model's own)."""

    selection: Literal["reward", "random"] = "reward"
    temperature: float = 1.0


class Sft(Algorithm):
    """Imitation learning."""

    name = "sft"

    def __init__(self, options: Mapping[str, Any], *, keep_reward: float, keep_per_group: int, seed: int) -> None:
        self.options = options_of(SftOptions, options)
        self.keep_reward = keep_reward
        self.keep_per_group = keep_per_group
        self.seed = seed

    @property
    def temperature(self) -> float:
        """The trained distribution's."""
        return self.options.temperature

    def select(self, items: Sequence[Tokenised]) -> Selection:
        """The best distinct answers of each group."""
        counts = {"groups": 0, "groups_empty": 0, "below_reward": 0, "identical": 0, "beyond_quota": 0, "kept": 0}
        examples: list[Example] = []
        for group in groups(items):
            kept = self._keep([item for item in group if item.sequences], counts)
            counts["groups"] += 1
            counts["groups_empty"] += not kept
            counts["kept"] += len(kept)
            examples += [Example(sequence=sequence) for item in kept for sequence in item.sequences]
        return Selection(examples=tuple(examples), counts=counts)

    def _keep(self, group: list[Tokenised], counts: dict[str, int]) -> list[Tokenised]:
        candidates = self._ordered(group)
        counts["below_reward"] += len(group) - len(candidates)
        seen: set[tuple[tuple[int, ...], ...]] = set()
        kept: list[Tokenised] = []
        for item in candidates:
            answer = tuple(sequence.ids for sequence in item.sequences)
            if answer in seen:
                counts["identical"] += 1
            elif len(kept) >= self.keep_per_group:
                counts["beyond_quota"] += 1
            else:
                seen.add(answer)
                kept.append(item)
        return kept

    def _ordered(self, group: list[Tokenised]) -> list[Tokenised]:
        if self.options.selection == "random":
            draw = seeded("sft-random", self.seed, *(item.rollout.id for item in group))
            return draw.sample(group, len(group))
        good = [
            item for item in group if math.isfinite(item.rollout.reward) and item.rollout.reward >= self.keep_reward
        ]
        return sorted(good, key=lambda item: (-item.rollout.reward, item.rollout.id))

    def loss(self, tokens: Tokens) -> Loss:
        """−mean log π."""
        return Loss(negative_log_likelihood(tokens.logprobs, tokens.weight))
