"""Losses as pure functions of the trained tokens of a batch, each with its diagnostics.

All tensors are flat, one entry a trained token: padding, prompts and observations never get here. Log-probs are in
nats, at the temperature of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to ± this before exp: e^20 is far outside every clip, and finite."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of a batch. `old` is None where the behaviour log-probs are unknown.

    `reference`: the champion's log-probs, where `referenced` is 1 (else the policy's own, at no distance).
    """

    logprobs: Tensor
    weight: Tensor
    advantage: Tensor
    imitate: Tensor
    reference: Tensor
    referenced: Tensor
    old: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A scalar to go down, and what to show beside it."""

    value: Tensor
    diagnostics: dict[str, float] = field(default_factory=dict)


def token_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Σ w·x / Σ w; 0 (with a zero gradient) when nothing has weight."""
    total = weight.sum()
    summed = (values * weight).sum()
    return summed / total if float(total) > 0 else summed * 0.0


def negative_log_likelihood(tokens: Tensor, weight: Tensor) -> Tensor:
    """Imitation: −mean log π of the sampled tokens."""
    return -token_mean(tokens, weight)


def log_ratio(new: Tensor, old: Tensor) -> Tensor:
    """Clamped log(π/μ): the gradient is 0 where it was outside."""
    return (new - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def kl_k3(sampled: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    """KL(p ‖ q) by Schulman's k3, mean of e^d − d − 1 with d = log q − log p, over tokens that p sampled.

    `sampled` are the log-probs under p, `other` those under q.
    """
    d = log_ratio(other, sampled)
    return token_mean(d.exp() - d - 1.0, weight)


def clipped_policy_loss(tokens: Tokens, low: float, high: float) -> Loss:
    """−mean min(ρA, clip(ρ, 1−low, 1+high)·A), ρ = π/μ, averaged over tokens (DAPO: Yu et al., 2025).

    Raises ValueError without behaviour log-probs.
    """
    if tokens.old is None:
        raise ValueError("a ratio needs the log-probs of the policy that sampled; use sft for these rollouts")
    ratio = log_ratio(tokens.logprobs, tokens.old).exp()
    gain = torch.minimum(ratio * tokens.advantage, ratio.clamp(1.0 - low, 1.0 + high) * tokens.advantage)
    loss = -token_mean(gain, tokens.weight)
    with torch.no_grad():
        up = (ratio > 1.0 + high) & (tokens.advantage > 0)
        down = (ratio < 1.0 - low) & (tokens.advantage < 0)
        far = (tokens.logprobs - tokens.old).abs() >= MAX_LOG_RATIO
        diagnostics = {
            "clip_share": float((up | down).float().mean()),
            "clamped_share": float(far.float().mean()),
            "behaviour_kl": float(kl_k3(tokens.old, tokens.logprobs, tokens.weight)),
        }
    return Loss(loss, diagnostics)
