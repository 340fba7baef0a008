"""Score: a number in a range, by criteria.

What each number means is said by ``anchors`` where the range has some: judges that know what a 2 is agree more.
"""

from __future__ import annotations

from msgspec import field

from millstream.errors import SettingsError
from millstream.grade import Grade, Scored
from millstream.graders.judges.reading import SEVERAL, number
from millstream.graders.judges.shown import Material
from millstream.graders.judges.sitting import TEXT, Common, Sitting


class Score(Common, frozen=True, kw_only=True, tag_field="kind", tag="score"):
    """``range``: its ends. ``anchors``: what numbers of it mean, by the number as text."""

    range: tuple[float, float] = (0.0, 1.0)
    anchors: dict[str, str] = field(default_factory=dict)

    def ends(self) -> tuple[float, float]:
        """The range of the grade."""
        return self.range

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        if not self.criteria.strip():
            raise SettingsError(f"{where}: criteria is empty; say what the score is for")

    def grade(self, sitting: Sitting, seen: Material) -> Grade:
        """The judge's number, raw."""
        low, high = self.range
        scale = "\n".join(f"- {mark}: {told}" for mark, told in self.anchors.items())
        asked = f"# What to judge by\n{self.criteria}" + (f"\n\nThe scale:\n{scale}" if scale else "")
        wants = f'{{"reason": "…", "result": a number from {low:g} to {high:g}}}'
        read = sitting.ask(
            f"{asked}\n\n{seen.text}",
            {"reason": TEXT, "result": {"type": "number"}},
            wants,
            lambda reply: number(reply, low, high),
        )
        if read.several:
            sitting.note(SEVERAL)
        return Scored(score=read.value, reason=read.reason)
