"""A gate's decision on the page: the verdict, the reasons, the test in words and the table."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.console.markup import Child, Markup, join, tag
from millstream.console.report_charts import forest
from millstream.console.report_parts import table
from millstream.console.tables import DOES_NOT_DECIDE, cells, test_lines
from millstream.evidence import GateEvidence, GateRow
from millstream.policy import Verdict

_BADGES: dict[Verdict, tuple[str, str]] = {
    "promote": ("good", "✓ promoted"),
    "refuse": ("bad", "✗ refused"),
    "inconclusive": ("open", "○ inconclusive"),
}
HEAD = ("measure", "champion", "candidate", "change", "95 % interval", "against nought and margin", "margin", "result")


def verdict_badge(verdict: Verdict) -> Markup:
    """A verdict as a sign and a word, never by colour alone."""
    style, words = _BADGES[verdict]
    return tag("span", words, class_=f"verdict {style}")


def gate_block(title: str, verdict: Verdict, reasons: Sequence[str], evidence: GateEvidence | None) -> Markup:
    """A decision with everything it rests on."""
    return join(
        tag("h3", tag("span", title), verdict_badge(verdict)),
        tag("ul", [tag("li", reason) for reason in reasons], class_="reasons"),
        _evidence(evidence) if evidence is not None and evidence.rows else None,
    )


def _evidence(evidence: GateEvidence) -> Markup:
    caption = " ".join(f"{line}." for line in test_lines(evidence))
    return table(caption, HEAD, [_row(row) for row in evidence.rows], numbers=(1, 2, 3, 4, 6))


def _row(row: GateRow) -> list[Child]:
    title, champion, candidate, change, interval, margin, state = cells(row)
    style = {"better": "good", "holds": "good", "worse": "bad", "violated": "bad"}.get(row.state, "open")
    picture = forest(row) if row.low is not None else ""
    told: Child = tag("span", state, class_=style) if row.decides else state.replace(DOES_NOT_DECIDE, ", only shown")
    return [title, champion, candidate, change, interval, picture, margin, told if state else ""]
