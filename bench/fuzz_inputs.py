"""Inputs for bench/fuzz.py: seeds with something wrong. JSON is broken as a tree (values, members, nesting), anything
as bytes (cut, doubled, flipped, two joined).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

MOST_BYTES: Final = 200_000
RAW: Final = "\x00raw\x00"
"""Stands for text that no JSON writer would write."""
TEXTS: Final = (
    *(
        "",
        " ",
        "\x00",
        "\ufeff",
        "\ud800",
        "😀",
        "NaN",
        "None",
        "null",
        "true",
        "[",
        "{}",
        "[]",
        '{"a":',
        "-0",
        "1e999",
    ),
    *(
        "9" * 400,
        "0x10",
        "１２",
        "²",
        "\u202e",
        "../../etc/passwd",
        "a" * 70_000,
        "[" * 3000,
        '{"a":' * 3000,
        "user",
        "tool",
    ),
    *("assistant", "system", "text", "tool_call", "chat", "2026-01-01T00:00:00Z", "9999-99-99", "%", "\n", "\r\n\r\n"),
)
NUMBERS: Final = (0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 0.1, -0.0, 1e308, 5e-324, True, False, None)
WRITTEN: Final = (
    *("NaN", "-Infinity", "1e999", "-1e999", "9" * 5000, "0." + "1" * 5000, "1" + "0" * 400, "01", "+1", ".5", "'a'"),
    *(
        '{"a":1,"a":2}',
        "[" * 2000 + "]" * 2000,
        '{"a":' * 1200 + "1" + "}" * 1200,
        '"\\ud83d"',
        '"\\u0000"',
        '"\x01"',
        "undefined",
    ),
)


class Inputs:
    """An endless row of inputs, drawn by ``rng`` from ``seeds``."""

    def __init__(self, seeds: Sequence[bytes], rng: random.Random) -> None:
        self.rng = rng
        self.seeds = [seed for seed in seeds if len(seed) <= MOST_BYTES] or [b""]
        self._trees = [tree for tree in map(_tree, self.seeds) if tree is not None]

    def next(self) -> bytes:
        """One input."""
        rng = self.rng
        data = self._broken_tree() if self._trees and rng.random() < 0.6 else rng.choice(self.seeds)
        while rng.random() < 0.4:
            data = rng.choice(_BYTES)(data, self.seeds, rng)
        return data[:MOST_BYTES]

    def _broken_tree(self) -> bytes:
        rng = self.rng
        lines = rng.choice(self._trees)
        tree = json.loads(rng.choice(lines))
        written: list[str] = []
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            tree = _broken(tree, rng, written, self._trees)
        text = json.dumps(tree, ensure_ascii=rng.random() < 0.8)
        for raw in written:
            text = text.replace(json.dumps(RAW), raw, 1)
        broken = text.encode("utf-8", "surrogatepass")
        if len(lines) == 1 or rng.random() < 0.5:
            return broken
        told = [line.encode("utf-8", "surrogatepass") for line in rng.sample(lines, min(len(lines), 3))]
        told.insert(rng.randrange(len(told) + 1), broken)
        return b"\n".join(told)


def _tree(seed: bytes) -> list[str] | None:
    """The JSON lines of a seed, or its one document; None for what is no JSON."""
    try:
        return [json.dumps(json.loads(seed))]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.dumps(json.loads(line)) for line in seed.splitlines() if line.strip()][:20] or None
    except (ValueError, RecursionError):
        return None


def _odd(rng: random.Random, written: list[str]) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        written.append(rng.choice(WRITTEN))
        return RAW
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return [rng.choice(TEXTS), rng.choice(NUMBERS), {}]
    if kind == 3:
        return {rng.choice(TEXTS)[:40]: rng.choice(NUMBERS), "type": rng.choice(TEXTS), "content": [None]}
    return rng.choice(TEXTS)


def _places(tree: Any, rng: random.Random) -> list[tuple[Any, Any]]:
    """(container, key) on a random way down, the deepest last."""
    found: list[tuple[Any, Any]] = []
    while isinstance(tree, dict | list) and tree:
        key = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        found.append((tree, key))
        tree = tree[key]
    return found


def _broken(tree: Any, rng: random.Random, written: list[str], trees: list[list[str]]) -> Any:
    places = _places(tree, rng)
    if not places:
        return _odd(rng, written)
    inside, key = rng.choice(places)
    act = rng.randrange(8)
    if act == 0:
        del inside[key]
    elif act == 1 and isinstance(inside, list):
        inside.insert(key, inside[key])
    elif act == 1:
        inside[rng.choice(TEXTS)[:40]] = inside.pop(key)
    elif act == 2:
        inside[key] = [inside[key]]
    elif act == 3:
        inside[key] = {rng.choice(("type", "text", "value", "content", "a")): inside[key]}
    elif act == 4:
        inside[key] = json.dumps(inside[key])
    elif act == 5:
        other = json.loads(rng.choice(rng.choice(trees)))
        inside[key] = (_places(other, rng) or [([other], 0)])[-1][0]
    else:
        inside[key] = _odd(rng, written)
    return tree


def _cut(data: bytes, _seeds: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data[rng.randrange(len(data) + 1) :]


def _flip(data: bytes, _seeds: Sequence[bytes], rng: random.Random) -> bytes:
    made = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 4, 16))):
        made[rng.randrange(len(made))] = rng.choice((rng.randrange(256), 0, 255, 0x7F, 0x80))
    return bytes(made)


def _double(data: bytes, _seeds: Sequence[bytes], rng: random.Random) -> bytes:
    first = rng.randrange(len(data) + 1)
    piece = data[first : first + rng.choice((1, 8, 100, 1000))]
    return data[:first] + piece * rng.choice((2, 3, 100)) + data[first:]


def _join(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(seeds)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _insert(data: bytes, _seeds: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    odd = rng.choice((*TEXTS, *WRITTEN)).encode("utf-8", "surrogatepass")
    return data[:at] + (odd if rng.random() < 0.7 else rng.randbytes(rng.choice((1, 4, 64)))) + data[at:]


_BYTES: Final[tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...]] = (
    _cut,
    _flip,
    _double,
    _join,
    _insert,
)
