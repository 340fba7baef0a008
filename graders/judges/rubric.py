"""Rubric: weighted items, each answered yes or no with evidence.

score = Σ weight·met / Σ positive weights, as HealthBench has it (Arora et al. 2025); items of negative weight are
faults. The judge quotes its evidence; a quotation that is not in what it was shown is flagged, since a judge that
makes up evidence makes up verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.grade import Grade, Scored
from millstream.graders.judges.reading import SEVERAL, document
from millstream.graders.judges.shown import Material
from millstream.graders.judges.sitting import TEXT, Common, Sitting, object_of

NOT_FOUND: Final = "evidence_not_found"
"""The flag of a grade whose evidence is not in what the judge was shown."""


class Item(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement that holds or does not."""

    name: str
    text: str
    weight: float = 1.0


class Rubric(Common, frozen=True, kw_only=True, tag_field="kind", tag="rubric"):
    """``items``: what is looked for."""

    items: tuple[Item, ...] = ()

    def ends(self) -> tuple[float, float]:
        """The range of the grade: from all faults to all merits."""
        return sum(min(0.0, item.weight) for item in self.items) / self._whole, 1.0

    @property
    def _whole(self) -> float:
        return sum(max(0.0, item.weight) for item in self.items)

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        names = [item.name for item in self.items]
        if not names or len(set(names)) < len(names):
            raise SettingsError(f"{where}: items must hold at least one, and each name once")
        if self._whole <= 0:
            raise SettingsError(f"{where}: at least one item must have a weight above 0")

    def grade(self, sitting: Sitting, seen: Material) -> Grade:
        """The share of the weight that is met; which items are stands in label and reason."""
        asked = "\n".join(f"- {item.name}: {item.text}" for item in self.items)
        one = object_of({"name": TEXT, "evidence": TEXT, "met": {"type": "boolean"}})
        found, several = sitting.ask(
            f"{self.criteria}\n\n# The items\n{asked}\n\n{seen.text}".lstrip(),
            {"items": {"type": "array", "items": one}},
            '{"items": [{"name": "…", "evidence": "your ground, quoted from the material", "met": true or false}, …]} '
            f"with each of these once: {', '.join(item.name for item in self.items)}",
            lambda reply: document(reply, "items", self._wrong),
        )
        if several:
            sitting.note(SEVERAL)
        return self._scored(sitting, seen, {row["name"]: row for row in found["items"]})

    def _wrong(self, found: Mapping[str, Any]) -> str:
        """What is wrong with an answer: every item once, each plainly yes or no, and a yes with evidence."""
        rows = found["items"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return "items is no list of objects"
        names = [row.get("name") for row in rows]
        if sorted(map(str, names)) != sorted(item.name for item in self.items):
            return f"items {', '.join(map(str, names))[:200]} are not those of the rubric"
        for row in rows:
            if not isinstance(row.get("met"), bool):
                return f"item {row['name']!r} is neither met nor unmet"
            if row["met"] and not (isinstance(row.get("evidence"), str) and row["evidence"].strip()):
                return f"item {row['name']!r} is met without evidence"
        return ""

    def _scored(self, sitting: Sitting, seen: Material, rows: Mapping[str, Mapping[str, Any]]) -> Grade:
        met = [item for item in self.items if rows[item.name]["met"]]
        shown = _words(f"{seen.text} {seen.quotes}")
        if any(_words(rows[item.name]["evidence"]) not in shown for item in met):
            sitting.note(NOT_FOUND)
        told = [
            f"{item.name} {'yes' if item in met else 'no'}: {str(rows[item.name].get('evidence', ''))[:120]}"
            for item in self.items
        ]
        value = sum(item.weight for item in met) / self._whole
        low, high = self.ends()
        return Scored(
            score=min(max(value, low), high),  # sums in another order differ in the last bit
            label=",".join(item.name for item in met),
            reason="; ".join(told)[:1000],
        )


def _words(text: str) -> str:
    """For comparison: letters and digits in lower case, single spaces."""
    return " ".join(re.findall(r"\w+", text.lower()))
