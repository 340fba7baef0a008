"""Group-relative policy optimisation with asymmetric clips.

A = (r − mean) / max(std, floor) within the group; L = −mean over tokens of min(ρA, clip(ρ, 1−ε_low, 1+ε_high)·A)
+ β·KL(π ‖ champion) + s·NLL of the good ones. GRPO: Shao et al., 2024; clips and token mean: DAPO, Yu et al., 2025.
Groups with equal rewards carry no signal and are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from millstream.trainer.advantages import group_advantages
from millstream.trainer.algorithms.base import Algorithm, Selection, groups, options_of
from millstream.trainer.batches import Example
from millstream.trainer.losses import Loss, Tokens, clipped_policy_loss, kl_k3, token_mean
from millstream.trainer.tokens import Tokenised


class GrpoOptions(Struct, frozen=True, kw_only=True):
    """`negative_scale` multiplies negative advantages; `kl` and `sft` are the weights of those terms."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    std_floor: float = 0.05
    negative_scale: float = 1.0
    kl: float = 0.0
    sft: float = 0.0


class Grpo(Algorithm):
    """Policy optimisation relative to the group."""

    name = "grpo"
    ratios = True
    temperature = None

    def __init__(self, options: Mapping[str, Any], *, keep_reward: float, keep_per_group: int, seed: int) -> None:  # noqa: ARG002 — one signature for all
        self.options = options_of(GrpoOptions, options)
        self.keep_reward = keep_reward

    @property
    def references(self) -> bool:
        """Only with a KL term."""
        return self.options.kl > 0

    def select(self, items: Sequence[Tokenised]) -> Selection:
        """Every rollout of a group whose rewards differ, with its advantage."""
        counts = {"groups": 0, "zero_variance_groups": 0, "without_reward": 0, "kept": 0}
        examples: list[Example] = []
        for group in groups(items):
            advantages = group_advantages([item.rollout.reward for item in group], self.options.std_floor)
            counts["groups"] += 1
            counts["without_reward"] += sum(advantage is None for advantage in advantages)
            if not any(advantages):
                counts["zero_variance_groups"] += 1
                continue
            for item, advantage in zip(group, advantages, strict=True):
                if advantage is not None and item.sequences:
                    counts["kept"] += 1
                    examples += self._examples(item, advantage)
        return Selection(examples=tuple(examples), counts=counts)

    def _examples(self, item: Tokenised, advantage: float) -> list[Example]:
        scaled = advantage if advantage > 0 else advantage * self.options.negative_scale
        good = item.rollout.reward >= self.keep_reward
        return [Example(sequence=sequence, advantage=scaled, imitate=good) for sequence in item.sequences]

    def loss(self, tokens: Tokens) -> Loss:
        """The clipped loss with its optional terms."""
        clipped = clipped_policy_loss(tokens, self.options.clip_low, self.options.clip_high)
        value = clipped.value
        if self.options.kl:
            value = value + self.options.kl * kl_k3(tokens.logprobs, tokens.reference, tokens.weight)
        if self.options.sft:
            value = value - self.options.sft * token_mean(tokens.logprobs * tokens.imitate, tokens.weight)
        return Loss(value, clipped.diagnostics)
