"""Label: one of some words, each worth a score."""

from __future__ import annotations

from msgspec import field

from millstream.errors import SettingsError
from millstream.grade import Grade, Scored
from millstream.graders.judges.reading import SEVERAL
from millstream.graders.judges.reading import label as read_label
from millstream.graders.judges.shown import Material
from millstream.graders.judges.sitting import TEXT, Common, Sitting


class Label(Common, frozen=True, kw_only=True, tag_field="kind", tag="label"):
    """``labels``: what each is worth. ``meanings``: what each means, where its word does not say it."""

    labels: dict[str, float] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)

    def ends(self) -> tuple[float, float]:
        """The range of the grade: from the least to the most that a label is worth."""
        return min(self.labels.values()), max(self.labels.values())

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        if len(set(self.labels.values())) < 2:
            raise SettingsError(f"{where}: labels must have at least two, of different worth: {{good = 1, bad = 0}}")
        for word in self.meanings:
            if word not in self.labels:
                raise SettingsError(f"{where}: meanings names {word!r}, which is none of labels")

    def grade(self, sitting: Sitting, seen: Material) -> Grade:
        """What the judge's label is worth; the label stands in the grade."""
        words = "\n".join(
            f"- {word}" + (f": {self.meanings[word]}" if word in self.meanings else "") for word in self.labels
        )
        read = sitting.ask(
            f"# What to judge by\n{self.criteria}\n\nThe labels:\n{words}\n\n{seen.text}",
            {"reason": TEXT, "result": {"type": "string", "enum": list(self.labels)}},
            f'{{"reason": "…", "result": one of {", ".join(map(repr, self.labels))}}}',
            lambda reply: read_label(reply, tuple(self.labels)),
        )
        if read.several:
            sitting.note(SEVERAL)
        return Scored(score=self.labels[read.label], label=read.label, reason=read.reason)
