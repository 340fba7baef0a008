"""Watching a share while it comes in: an e-process, valid at every look.

H₀: the mean of a share x in [0, 1] is at most p₀, given all that came before. Against it stands a mixture of
bets, each that it is q > p₀: E_n = mean over q of Π (x q/p₀ + (1−x)(1−q)/(1−p₀)). Under H₀ this is a
non-negative supermartingale that starts at 1, so the chance that it ever reaches 1/α is at most α, however
often one looks (Ville 1939; Waudby-Smith & Ramdas 2024). An x is a hit (1) or none (0), or the share of hits in
a block of observations that belong together. With ``restarts`` it is an e-detector for a change at an
unknown time: M_n = max(1, M_{n−1}) · e_n for each bet, whose mean time to a false alarm at threshold c is at
least c observations (Lorden 1971; Shin, Ramdas & Rinaldo 2024).
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct, field

FRACTIONS: Final = (0.03, 0.06, 0.1, 0.2, 0.4, 0.7)
"""How far from p₀ to 1 each bet's q lies."""
_MOST: Final = 690.0
"""Beyond it exp overflows; evidence is told up to here."""


class Bet(Struct, kw_only=True):
    """The bets against "at most ``expected``", and what came of them so far."""

    expected: float
    restarts: bool = False
    logs: list[float] = field(default_factory=lambda: [0.0] * len(FRACTIONS))

    def __post_init__(self) -> None:
        if not 0.0 < self.expected < 1.0:
            raise ValueError(f"expected = {self.expected}; a share that can be bet against lies between 0 and 1")

    def take(self, share: float) -> float:
        """One more observation; the evidence after it."""
        p = self.expected
        for i, fraction in enumerate(FRACTIONS):
            gain = math.log1p(fraction * (share - p) / p)
            self.logs[i] = (max(0.0, self.logs[i]) if self.restarts else self.logs[i]) + gain
        return self.evidence

    @property
    def evidence(self) -> float:
        """E: at least 1/α with chance at most α while H₀ holds."""
        return sum(math.exp(min(log, _MOST)) for log in self.logs) / len(self.logs)
