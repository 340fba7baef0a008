"""A budget a day, and thinning before it is spent, so that what is judged late in the day is a known sample.

Until half of the budget is spent every run is judged; from then on a run is judged with the probability
p = 2·(1 − spent/budget), which falls as the money goes and never spends it all. p is recorded with each grade,
judged or not, so that a mean over judged runs can be weighted by 1/p (Horvitz and Thompson 1952). Which runs
are judged is a hash of the run and the grader: the same on every try.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from msgspec import structs

from millstream.codec import digest
from millstream.grade import abstain
from millstream.graders.registry import Told
from millstream.judging import Memory
from millstream.trajectory import Trajectory

FREE_SHARE: Final = 0.5
"""The share of the budget that is spent before anything is thinned."""
NOT_DRAWN: Final = "not_drawn"
"""The flag of a run that was left out by the draw."""
LEAST: Final = 0.01
"""Below this probability nothing is judged any more that day: its weight would be over 100."""
_SCALE: Final = float(1 << 64)


class Budget:
    """``per_day`` in the price table's currency, shared by all processes of a data directory; 0: no bound."""

    def __init__(self, memory: Memory, per_day: float, *, now: Callable[[], float] = time.time) -> None:
        """``now``: seconds since the epoch; a day is a UTC day."""
        self._memory, self._per_day, self._now = memory, per_day, now

    @property
    def day(self) -> str:
        """Today, YYYY-MM-DD in UTC."""
        return time.strftime("%Y-%m-%d", time.gmtime(self._now()))

    def spend(self, cost: float) -> None:
        """Count what a call cost."""
        self._memory.spend(self.day, cost)

    @property
    def exhausted(self) -> bool:
        """Whether nothing may be asked any more today."""
        return self._per_day > 0 and self._memory.spent(self.day) >= self._per_day

    def propensity(self) -> float:
        """The probability with which a run is judged now: 1, or less as the money goes, or 0."""
        if not self._per_day:
            return 1.0
        left = 1.0 - self._memory.spent(self.day) / self._per_day
        share = min(1.0, left / FREE_SHARE)
        return round(share, 4) if share >= LEAST else 0.0


def drawn(key: str, propensity: float) -> bool:
    """Whether the run with this key is among those that are judged: a uniform number, made from the key, below p."""
    return int(digest("judged", key)[:16], 16) / _SCALE < propensity


def sampled(name: str, t: Trajectory, propensity: float, grade: Callable[[Trajectory], Told]) -> Told:
    """The grade of a run that is drawn; of another an abstention. Both bear the probability."""
    if propensity >= 1.0:
        return grade(t)
    if drawn(f"{name} {t.id}", propensity):
        return structs.replace(grade(t), propensity=propensity)
    told = f"not judged: the day's budget thins to a share of {propensity:g} of the runs"
    return Told(grade=abstain(told), flags=(NOT_DRAWN,), propensity=propensity)
