"""Learnability: a task family that the current policy always fails, or always solves, teaches it nothing.

Success is what `[reward] success` says. A family is judged by the champion's own runs, and only
when there are enough of them: of `[trigger] learnable_runs` runs of a family that succeeds nine times in ten,
all succeed by luck in 0.9^32 = 3 % of cases. Runs that name no family are never judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Teaches: TypeAlias = Literal["yes", "always 0", "always 1", "too few runs", "no family"]
IDLE: Final = frozenset({"always 0", "always 1"})
"""Families of which nothing is trained."""


class FamilyCount(Struct):
    """Runs of one family and how many of them succeeded."""

    runs: int = 0
    successes: int = 0

    def add(self, *, success: bool) -> None:
        """Count one run."""
        self.runs += 1
        self.successes += success

    def teaches(self, least: int) -> Teaches:
        """Whether something can be learned from the family; ``least`` runs are needed to say no (0: never)."""
        if not least or self.runs < least:
            return "yes" if 0 < self.successes < self.runs else "too few runs"
        if self.successes == 0:
            return "always 0"
        return "always 1" if self.successes == self.runs else "yes"


def idle_families(runs: Iterable[tuple[str, float]], success_at: float, least: int) -> dict[str, Teaches]:
    """The families among (family, reward) that teach nothing, and why not; success is from ``success_at`` on."""
    counts: dict[str, FamilyCount] = {}
    for family, reward in runs:
        if family:
            counts.setdefault(family, FamilyCount()).add(success=reward >= success_at)
    told = {family: count.teaches(least) for family, count in sorted(counts.items())}
    return {family: verdict for family, verdict in told.items() if verdict in IDLE}
