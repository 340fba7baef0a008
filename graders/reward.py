"""The reward: a formula over named grades, such as ``0.8*correct + 0.1*efficiency*correct + 0.1*format``.

Signs ``+ - * / ^`` (``^`` binds right and before a sign: ``-2^2`` is -4), parentheses, numbers, grade names,
and ``min max abs floor ceil exp sqrt log``. Parsed by hand: no name but these is ever looked up.

There is a value only when every named grade is `Scored` and the result is finite and in the declared range;
else ``why`` says which grade, or what came out. Nothing is clamped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.errors import SettingsError, nearest
from millstream.grade import Abstained, Censored, Failed, Grade, Scored, first_line
from millstream.graders.formulas import Parser
from millstream.settings import RewardSettings


class RewardParts(NamedTuple):
    """A reward's value, or None and why not."""

    value: float | None
    why: str = ""


class Formula:
    """A parsed reward formula with its range [low, high]. ``formula`` is its text, ``names`` the grades it needs."""

    def __init__(
        self, text: str, low: float = 0.0, high: float = 1.0, attribution_s: float = 0.0, success: float | None = None
    ) -> None:
        """Parse. ``attribution_s``: how long after a run's end a word from outside is still about it (0: for
        ever); ``success``: from which value on a run is a success (None: above the middle of the range). Raises
        `SettingsError` naming the place in the text, a range that is none, or a success outside of it.
        """
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SettingsError(f"[reward]: the range [{low}, {high}] must be finite, low before high")
        if success is not None and not low < success <= high:
            raise SettingsError(f"success {success:g} must lie above {low:g} and at most at {high:g}, the range's ends")
        self.formula, self.low, self.high = text, low, high
        self.success_at = math.nextafter((low + high) / 2, high) if success is None else success
        self.attribution_ms = int(attribution_s * 1000)
        parser = Parser(text)
        self._node = parser.whole()
        self.names = frozenset(parser.names)

    @classmethod
    def of(cls, settings: RewardSettings) -> Formula:
        """The formula that the settings hold."""
        success = None if settings.success == "middle" else settings.success
        return cls(settings.formula, settings.low, settings.high, settings.attribution_s, success)

    def check(self, known: Iterable[str]) -> None:
        """Raise `SettingsError` when the formula names a grader that is not among ``known``; feedback may
        always come.
        """
        names = sorted({*known, "feedback"})
        for name in sorted(self.names):
            if name not in names and not name.startswith("feedback."):
                raise SettingsError(
                    f"[reward] formula names {name!r}, which no enabled grader gives{nearest(name, names)}"
                )

    def reward(self, grades: Mapping[str, Grade]) -> RewardParts:
        """The reward of one trajectory's grades."""
        scores: dict[str, float] = {}
        for name in sorted(self.names):
            grade = grades.get(name)
            if not isinstance(grade, Scored):
                return RewardParts(None, f"{name}: {_status(grade)}")
            scores[name] = grade.score
        try:
            value = float(self._node(scores))
        except (ArithmeticError, ValueError, TypeError) as error:
            return RewardParts(None, f"the formula has no value: {error}")
        if not math.isfinite(value):
            return RewardParts(None, f"the formula gives {value}")
        if not self.low <= value <= self.high:
            return RewardParts(None, f"the formula gives {value}, outside [{self.low}, {self.high}]")
        return RewardParts(value)

    def succeeds(self, value: float) -> bool:
        """Whether a reward is a success: at least ``success_at``."""
        return value >= self.success_at

    def to_unit(self, value: float) -> float:
        """A reward mapped from [low, high] to [0, 1], so that figures over several ranges can be compared."""
        return (value - self.low) / (self.high - self.low)


def _status(grade: Grade | None) -> str:
    match grade:
        case None:
            return "no grade yet"
        case Failed(kind=kind, reason=reason):
            return f"failed ({kind}): {first_line(reason)[:200]}"
        case Abstained(reason=reason):
            return f"abstained: {reason[:200]}"
        case Censored(reason=reason):
            return f"censored: {reason[:200]}"
    return "scored"
