"""Tool efficiency: useful calls / calls (useful: returned ok, not repeated, used later)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.errors import SettingsError
from millstream.grade import Grade, abstain, score, step
from millstream.graders.format import recorded
from millstream.graders.usage import CHANGING, Use, uses_of
from millstream.trajectory import Trajectory

VERSION: Final = 2


def efficiency(*, changing: tuple[str, ...] | list[str] | None = None) -> Callable[[Trajectory], Grade]:
    """The grader ``efficiency``. ``changing`` names the tools that change the world (a call may be repeated
    after one); without it they are guessed from the first word of their names. A run without calls wasted
    none: 1. Raises `SettingsError` unless ``changing`` is a list of names.
    """
    if changing is not None and not (isinstance(changing, list | tuple) and all(isinstance(n, str) for n in changing)):
        raise SettingsError(f"efficiency: changing = {changing!r} must be a list of tool names")
    names = CHANGING if changing is None else frozenset(changing)

    def grade(t: Trajectory) -> Grade:
        responses = t.responses
        if responses and not any(map(recorded, responses)):
            return abstain("the content of the policy's actions was not recorded")
        uses = uses_of(t, names)
        if not uses:
            return score(1.0, label="no_calls", reason="no calls, none wasted")
        useful = sum(use.useful for use in uses)
        steps = [step(use.action + 1, fault, 0.0, reason=use.call.name) for use in uses if (fault := _fault(use))]
        return score(useful / len(uses), reason=f"{useful} of {len(uses)} calls useful{_faults(uses)}", steps=steps)

    return grade


def _fault(use: Use) -> str:
    """Why a call was not useful: the first of the reasons, or nothing."""
    if use.result is None:
        return "unanswered"
    if use.result.error:
        return "failed"
    return "repeated" if use.repeated else "" if use.used_by is not None else "not used"


def _faults(uses: list[Use]) -> str:
    counts = {
        "failed": sum(use.result is not None and bool(use.result.error) for use in uses),
        "unanswered": sum(use.result is None for use in uses),
        "repeated": sum(use.repeated for use in uses),
        "not used": sum(use.result is not None and not use.result.error and use.used_by is None for use in uses),
    }
    told = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    return f"; {told}" if told else ""
