"""Algorithms: one file each. `ALGORITHMS` is the registry."""

from __future__ import annotations

from typing import Any

from millstream.errors import SettingsError, nearest
from millstream.trainer.algorithms.base import Algorithm, Selection, options_of
from millstream.trainer.algorithms.grpo import Grpo
from millstream.trainer.algorithms.sft import Sft

ALGORITHMS: dict[str, type[Algorithm]] = {"sft": Sft, "grpo": Grpo}

__all__ = ["ALGORITHMS", "Algorithm", "Selection", "algorithm", "options_of"]


def algorithm(name: str, options: dict[str, Any], *, keep_reward: float, keep_per_group: int, seed: int) -> Algorithm:
    """The algorithm of that name with its options. Raises `SettingsError` naming the nearest known word."""
    if name not in ALGORITHMS:
        raise SettingsError(f"trainer.algorithm: unknown algorithm {name!r}{nearest(name, list(ALGORITHMS))}")
    return ALGORITHMS[name](options, keep_reward=keep_reward, keep_per_group=keep_per_group, seed=seed)
