"""Pairwise: which of two answers is better, asked twice with the places swapped.

Judges favour a place (Zheng et al. 2023), so only a preference that survives the swap counts; one that does not is
a tie, and flagged. As a grader of the stream the other answer is the task's: 1 won, ½ tie, 0 lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.grade import Grade, Scored, abstain
from millstream.graders.judges.graded_text import delimited
from millstream.graders.judges.reading import document
from millstream.graders.judges.shown import shortened
from millstream.graders.judges.sitting import TEXT, Common, Sitting
from millstream.trajectory import Trajectory

Winner: TypeAlias = Literal["first", "second", "tie"]
SWAYED: Final = "swayed_by_position"
"""The flag of a comparison whose winner changed with the places."""
WORTH: Final[Mapping[Winner, float]] = {"first": 1.0, "tie": 0.5, "second": 0.0}
_CHOICES: Final = ("A", "B", "tie")


class Preference(Struct, frozen=True, kw_only=True):
    """Which of two is better, and why."""

    winner: Winner
    reason: str = ""
    swayed: bool = False


class Pairwise(Common, frozen=True, kw_only=True, tag_field="kind", tag="pairwise"):
    """``against``: the task's ``reference``, or a key of its metadata that holds an answer."""

    against: str = "reference"

    def ends(self) -> tuple[float, float]:
        """The range of the grade."""
        return 0.0, 1.0

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        if not self.criteria.strip():
            raise SettingsError(f"{where}: criteria is empty; say what makes one answer better than another")

    def other(self, t: Trajectory) -> str | None:
        """The answer that a run's answer is compared with, if its task has one."""
        found = t.task.reference if self.against == "reference" else t.task.metadata.get(self.against)
        return None if found is None else str(found)

    def grade_run(self, sitting: Sitting, t: Trajectory) -> Grade:
        """1 when the run's answer is better than the task's, ½ for a tie, 0 when it is worse."""
        other = self.other(t)
        if other is None:
            return abstain(f"the task has no {self.against} to compare with")
        found = compare(sitting, self.criteria, t.task.question, t.final_answer or "", other)
        if found.swayed:
            sitting.note(SWAYED)
        label = {"first": "won", "tie": "tie", "second": "lost"}[found.winner]
        return Scored(score=WORTH[found.winner], label=label, reason=found.reason)


def compare(sitting: Sitting, criteria: str, question: str, first: str, second: str, notes: str = "") -> Preference:
    """Which of two answers is better, asked in both orders. ``notes`` stands below them, in terms of no place.

    Raises `JudgeFault`.
    """
    if first.strip() == second.strip():
        return Preference(winner="tie", reason="the answers are the same")
    there, reason = _asked(sitting, criteria, question, first, second, notes)
    back, _ = _asked(sitting, criteria, question, second, first, notes)
    back = {"A": "B", "B": "A"}.get(back, back)
    if there != back:
        return Preference(
            winner="tie", reason=f"{there} in one order, {back} in the other", swayed="tie" not in (there, back)
        )
    winner: Winner = "first" if there == "A" else "second" if there == "B" else "tie"
    return Preference(winner=winner, reason=reason)


def _asked(sitting: Sitting, criteria: str, question: str, a: str, b: str, notes: str) -> tuple[str, str]:
    parts = [f"# What makes an answer better\n{criteria}", f"# The task\n{delimited(shortened(question))}"]
    parts += [f"# Answer {name}\n{delimited(shortened(text))}" for name, text in (("A", a), ("B", b))]
    found, _ = sitting.ask(
        "\n\n".join([*parts, notes]).rstrip(),
        {"reason": TEXT, "winner": {"type": "string", "enum": list(_CHOICES)}},
        '{"reason": "…", "winner": "A" or "B" or "tie"}. The order of the answers means nothing',
        lambda reply: document(reply, "winner", _wrong),
    )
    return found["winner"], str(found.get("reason", ""))[:500]


def _wrong(found: Mapping[str, Any]) -> str:
    return "" if found["winner"] in _CHOICES else f"winner {str(found['winner'])[:40]!r} is none of A, B, tie"
