"""Tables as text: aligned columns, and the gate's table as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millstream.evidence import GateEvidence, GateRow
from millstream.grade import Tally

HEAD = ("measure", "champion", "candidate", "change", "95 % interval", "margin", "")
DOES_NOT_DECIDE = " (shown, does not decide)"


def columns(rows: Iterable[Sequence[object]], head: Sequence[str], indent: str = "") -> list[str]:
    """Lines of left-aligned columns, the head first, no trailing blanks."""
    lines = [[*head], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return [indent + "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def gate_table(evidence: GateEvidence) -> list[str]:
    """The table of a decision as lines of text, the test first."""
    if not evidence.rows:
        return ["no table: nothing was measured"]
    return [*test_lines(evidence), *columns((cells(row) for row in evidence.rows), HEAD)]


def test_lines(evidence: GateEvidence) -> list[str]:
    """The paired test in two lines."""
    test = evidence.test
    unscored = f", {test.unscored_share:.1%} unscored" if test.unscored_share else ""
    tasks = f"{test.pairs} unseen {evidence.split.replace('_', '-')} tasks from {test.worlds} worlds"
    scored = f"{test.scored_pairs} pairs scored on both sides"
    gold = f"; gold by {evidence.gold_epoch}" if evidence.gold_epoch else ""
    result = f"{test.wins} won, {test.losses} lost, {test.ties} alike ({test.discordance:.0%} discordant)"
    chances = f"one-sided p {test.p_better:.2g} better, {test.p_worse:.2g} worse, α {test.alpha:g}"
    return [
        f"{tasks} at temperature {evidence.temperature:g}; {scored}{unscored}{gold}",
        f"{test.method}: {result}; {chances}",
    ]


def cells(row: GateRow) -> tuple[str, ...]:
    """A row of the table as texts, in the order of `HEAD`."""
    return (
        row.title,
        level(row, row.champion),
        level(row, row.candidate),
        change(row, row.difference),
        f"{change(row, row.low)} … {change(row, row.high)}" if row.low is not None or row.high is not None else "",
        change(row, row.margin) if row.margin is not None and row.name != "gold" else "",
        state(row),
    )


def state(row: GateRow) -> str:
    """What a row came to, in words."""
    told = row.state if row.decides or row.state == "shown" else f"{row.state}{DOES_NOT_DECIDE}"
    return ("" if told == "shown" else told) + (f" – {row.note}" if row.note else "")


def level(row: GateRow, value: float | None) -> str:
    """A side's value in the unit of its row."""
    if value is None:
        return "∞" if "infinite" in row.note else "–"
    return f"{100 * value:.1f} %" if row.unit == "rate" else f"{value:,.2f}"


def change(row: GateRow, value: float | None) -> str:
    """A difference in the unit of its row: points, percent or a plain number."""
    if value is None:
        return "–"
    text = f"{round(value, 2) + 0.0:+.2f}" if row.unit == "count" else f"{round(100 * value, 1) + 0.0:+.1f}"
    return text.replace("-", "−") + (" %" if row.unit == "ratio" else "")


def tally_words(tally: Tally) -> str:
    """The four counts of grades, always all four."""
    return f"{tally.scored} scored, {tally.failed} failed, {tally.abstained} abstained, {tally.censored} censored"
