"""When a judge should abstain: below which confidence its error would be above what is allowed.

Looking for the best threshold on the labels themselves breaks the target: of many thresholds one looks good by
luck (in 42 to 62 % of runs of a simulation). **Fixed-sequence testing** (Wiens 2003; as in Learn then Test,
Angelopoulos et al. 2021): thresholds are tested from the strictest to the loosest, each at the full level δ
against "its error is above the risk" by the exact binomial tail, and the first that is not rejected ends it.
The loosest one rejected has an error of at most ``risk`` with probability 1 − δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

FIRST = 4
STEPS = 20
"""How many thresholds are tried, at the quantiles of the confidences (which know nothing of the labels)."""


class Threshold(Struct, frozen=True, kw_only=True):
    """Judge where the confidence is at least ``confidence``: ``kept`` of ``n`` runs, ``errors`` among them."""

    confidence: float
    kept: int
    errors: int
    n: int
    p_value: float

    @property
    def coverage(self) -> float:
        """The share of runs that are judged."""
        return self.kept / self.n


def threshold(
    judged: Sequence[tuple[float, bool]], risk: float, delta: float = 0.05, steps: int = STEPS
) -> Threshold | None:
    """The loosest threshold that is safe, from (confidence, right) of runs with gold labels; None when not even
    the strictest is (too few labels, or too bad a judge). Raises `ValueError` for a risk or δ outside (0, 1).
    """
    if not (0 < risk < 1 and 0 < delta < 1):
        raise ValueError(f"risk = {risk}, delta = {delta}: both lie between 0 and 1")
    best = None
    for confidence in _sequence([c for c, _ in judged], risk, delta, steps):
        kept = [right for c, right in judged if c >= confidence]
        errors = len(kept) - sum(kept)
        p = binomial_tail(errors, len(kept), risk)
        if p > delta:
            return best
        best = Threshold(confidence=confidence, kept=len(kept), errors=errors, n=len(judged), p_value=p)
    return best


def least_labels(risk: float, delta: float) -> int:
    """How many labels without one error are needed before anything can be shown: (1 − risk)^n ≤ δ."""
    return math.ceil(math.log(delta) / math.log1p(-risk))


def binomial_tail(errors: int, n: int, risk: float) -> float:
    """P(X ≤ errors) for X ~ Binomial(n, risk): the p-value of "the error is above the risk"."""
    if n == 0:
        return 1.0
    log_risk, log_rest = math.log(risk), math.log1p(-risk)
    terms = (
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_risk + (n - k) * log_rest
        for k in range(errors + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def _sequence(confidences: Sequence[float], risk: float, delta: float, steps: int) -> list[float]:
    """Thresholds from the surest quarter (or the fewest runs that can show anything) to all runs, equally far
    apart in runs kept. A stricter start would end the test at its first unlucky error.
    """
    ordered = sorted(confidences, reverse=True)
    first = max(least_labels(risk, delta), len(ordered) // FIRST)
    if len(ordered) < first:
        return []
    counts = sorted({round(first + (len(ordered) - first) * k / max(1, steps - 1)) for k in range(steps)})
    return list(dict.fromkeys(ordered[count - 1] for count in counts))
