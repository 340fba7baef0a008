"""Constitution: principles, then a critique of an answer by each, then a preference that knows the critiques.

Constitutional AI (Bai et al. 2022) and RLAIF (Lee et al. 2023): the principles are written down, the judge says for
each where the answer breaks it, and only then which of two answers is to be preferred. As a grader of the stream:
the share of principles that hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.grade import Grade, Scored
from millstream.graders.judges.graded_text import delimited
from millstream.graders.judges.pairwise import Preference, compare
from millstream.graders.judges.reading import document
from millstream.graders.judges.shown import NO_ANSWER, Material, shortened
from millstream.graders.judges.sitting import TEXT, Common, Sitting, object_of


class Critique(Struct, frozen=True, kw_only=True):
    """What was said of an answer by each principle, in their order, and whether it holds."""

    words: tuple[str, ...]
    holds: tuple[bool, ...]

    def __str__(self) -> str:
        lines = zip(self.holds, self.words, strict=True)
        return "\n".join(f"{n}. {'holds' if held else 'broken'}: {word}" for n, (held, word) in enumerate(lines, 1))


class Constitution(Common, frozen=True, kw_only=True, tag_field="kind", tag="constitution"):
    """``principles``: what an answer must hold to."""

    principles: tuple[str, ...] = ()

    def ends(self) -> tuple[float, float]:
        """The range of the grade."""
        return 0.0, 1.0

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        if not self.principles or not all(text.strip() for text in self.principles):
            raise SettingsError(f"{where}: principles must hold at least one, and none that is empty")

    def grade(self, sitting: Sitting, seen: Material) -> Grade:
        """The share of principles that hold."""
        found = self.critique(sitting, seen.text)
        broken = [str(number) for number, held in enumerate(found.holds, 1) if not held]
        return Scored(
            score=sum(found.holds) / len(found.holds),
            label=f"broken: {','.join(broken)}" if broken else "holds",
            reason=str(found)[:1000],
        )

    def prefer(self, sitting: Sitting, question: str, first: str, second: str) -> Preference:
        """Which of two answers is to be preferred, by critiques of both; asked in both orders."""
        if first.strip() == second.strip():
            return Preference(winner="tie", reason="the answers are the same")
        task = f"# The task\n{delimited(shortened(question))}"
        critiques = [
            f"This was said of the answer that begins {answer[:60]!r}:\n"
            + str(self.critique(sitting, f"{task}\n\n# The answer\n{delimited(shortened(answer or NO_ANSWER))}"))
            for answer in sorted((first, second))
        ]
        notes = "# Critiques, in no order\n" + delimited("\n\n".join(critiques))
        return compare(sitting, self._text(), question, first, second, notes)

    def critique(self, sitting: Sitting, seen: str) -> Critique:
        """What each principle says of an answer. Raises `JudgeFault`."""
        one = object_of({"number": {"type": "integer"}, "critique": TEXT, "holds": {"type": "boolean"}})
        found, _ = sitting.ask(
            f"# The principles\n{self._text()}\n\n{seen}\n\nSay of each principle where the answer breaks it, if so.",
            {"critiques": {"type": "array", "items": one}},
            '{"critiques": [{"number": 1, "critique": "…", "holds": true or false}, …]} '
            f"with each principle from 1 to {len(self.principles)} once",
            lambda reply: document(reply, "critiques", self._wrong),
        )
        rows = sorted(found["critiques"], key=lambda row: int(row["number"]))
        return Critique(
            words=tuple(str(row["critique"])[:500] for row in rows), holds=tuple(row["holds"] for row in rows)
        )

    def _text(self) -> str:
        lines = [f"{number}. {text}" for number, text in enumerate(self.principles, 1)]
        return "\n".join([self.criteria, *lines] if self.criteria else lines)

    def _wrong(self, found: Mapping[str, Any]) -> str:
        rows = found["critiques"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return "critiques is no list of objects"
        numbers = [row.get("number") for row in rows]
        if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
            return "a critique has no number"
        if sorted(numbers) != list(range(1, len(self.principles) + 1)):
            return f"critiques of {numbers[:20]} are not one for each principle"
        if not all(isinstance(row.get("holds"), bool) and isinstance(row.get("critique"), str) for row in rows):
            return "a critique does not say whether its principle holds"
        return ""
