"""Is the final answer right? Numbers by the rules of `numeric`, yes/no likewise, other texts exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.grade import Abstained, Grade
from millstream.graders.numeric import HIGH, LOW, numeric
from millstream.graders.text import exact
from millstream.trajectory import Trajectory

VERSION: Final = 2


def correct(*, low: float = LOW, high: float = HIGH) -> Callable[[Trajectory], Grade]:
    """The grader ``correct``: 1 or 0 against ``task.reference``; abstains without one."""
    by_number, by_text = numeric(low=low, high=high), exact()

    def grade(t: Trajectory) -> Grade:
        grade = by_number(t)
        return by_text(t) if isinstance(grade, Abstained) and isinstance(t.task.reference, str) else grade

    return grade
