"""Losses on three numbers, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from millstream.trainer.losses import (
    MAX_LOG_RATIO,
    Tokens,
    clipped_policy_loss,
    kl_k3,
    negative_log_likelihood,
    token_mean,
)


def tokens(
    new: list[float], old: list[float] | None, advantage: list[float], weight: list[float] | None = None
) -> Tokens:
    logprobs = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    ones = torch.ones_like(logprobs.detach())
    return Tokens(
        logprobs=logprobs,
        weight=ones if weight is None else torch.tensor(weight, dtype=torch.float64),
        advantage=torch.tensor(advantage, dtype=torch.float64),
        imitate=ones,
        reference=logprobs.detach(),
        referenced=ones,
        old=None if old is None else torch.tensor(old, dtype=torch.float64),
    )


def test_imitation_is_the_mean_negative_log_likelihood() -> None:
    """−(−1 −2 −3)/3 = 2; with weights 1, 1, 2 it is (1 + 2 + 6)/4 = 2.25."""
    logprobs = torch.tensor([-1.0, -2.0, -3.0])
    assert float(negative_log_likelihood(logprobs, torch.ones(3))) == pytest.approx(2.0)
    assert float(negative_log_likelihood(logprobs, torch.tensor([1.0, 1.0, 2.0]))) == pytest.approx(2.25)


def test_a_batch_without_a_token_is_a_step_of_nothing() -> None:
    """All weights 0, or no token at all: loss 0 and a gradient of 0, not 0/0 (R06)."""
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = token_mean(logprobs, torch.zeros(2))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [0.0, 0.0]
    assert float(token_mean(torch.zeros(0), torch.zeros(0))) == 0.0


def test_the_clipped_loss_by_hand() -> None:
    """Ratios 1, 2, ½ with advantages 1, 1, −1 and clips .2/.28.

    Gains: min(1, 1) = 1; min(2, 1.28) = 1.28; min(−.5, −.8) = −.8. Loss −(1 + 1.28 − .8)/3 = −1.48/3.
    Both the second and the third are clipped: a share of 2/3, and only the first has a gradient: −1/3.
    """
    found = tokens([-1.0, -1.0, -1.0], [-1.0, -1.0 - math.log(2), -1.0 + math.log(2)], [1.0, 1.0, -1.0])
    loss = clipped_policy_loss(found, 0.2, 0.28)
    loss.value.backward()
    assert float(loss.value.detach()) == pytest.approx(-1.48 / 3)
    assert loss.diagnostics["clip_share"] == pytest.approx(2 / 3)
    assert found.logprobs.grad is not None
    assert found.logprobs.grad.tolist() == pytest.approx([-1 / 3, 0.0, 0.0])


def test_the_clip_does_not_stop_a_correction() -> None:
    """Ratio 2 with advantage −1 is not clipped: min(−2, −1.28) = −2, so the gradient pushes it down."""
    found = tokens([-1.0], [-1.0 - math.log(2)], [-1.0])
    loss = clipped_policy_loss(found, 0.2, 0.28)
    loss.value.backward()
    assert float(loss.value.detach()) == pytest.approx(2.0)
    assert loss.diagnostics["clip_share"] == 0.0
    assert found.logprobs.grad is not None
    assert found.logprobs.grad.tolist() == pytest.approx([2.0])


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_stale_ratio_overflows_nothing(advantage: float) -> None:
    """Old −120, new −3.5, one token masked and one active: loss and gradients finite, both counted (R07)."""
    found = tokens([-3.5, -3.5], [-120.0, -120.0], [advantage, advantage], weight=[0.0, 1.0])
    loss = clipped_policy_loss(found, 0.2, 0.28)
    loss.value.backward()
    assert math.isfinite(float(loss.value.detach()))
    assert found.logprobs.grad is not None
    assert bool(torch.isfinite(found.logprobs.grad).all())
    assert loss.diagnostics["clamped_share"] == 1.0
    assert abs(float(loss.value.detach())) <= math.exp(MAX_LOG_RATIO)


def test_kl_by_hand() -> None:
    """k3 of d = ln 2 is 2 − ln 2 − 1; of d = 0 it is 0; their mean is (1 − ln 2)/2."""
    new = torch.tensor([-1.0, -1.0])
    reference = torch.tensor([-1.0 + math.log(2), -1.0])
    assert float(kl_k3(new, reference, torch.ones(2))) == pytest.approx((1 - math.log(2)) / 2)


def test_a_ratio_needs_behaviour_logprobs() -> None:
    """Without them the loss refuses rather than assume μ = π."""
    with pytest.raises(ValueError, match="use sft"):
        clipped_policy_loss(tokens([-1.0], None, [1.0]), 0.2, 0.28)
