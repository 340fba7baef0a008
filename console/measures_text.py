"""The figures of ``metrics`` as text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import groupby

from millstream.console.measures import Figure
from millstream.console.tables import columns

HEAD = ("metric", "value", "95 % interval", "n", "of", "worlds")
RATES = ("success", "success_bounds", "accuracy@", "pass^", "tool_e")


def render(found: Sequence[Figure]) -> str:
    """A table a cell, the denominator beside every figure."""
    if not found:
        return "nothing is graded yet: `millstream import` runs or record some, then `millstream up --until-idle`"
    blocks = []
    for title, rows in groupby(found, key=_title):
        blocks.append("\n".join([title, *columns((_cells(row) for row in rows), HEAD, "  ")]))
    return "\n\n".join(blocks)


def _title(row: Figure) -> str:
    version = "version not told" if row.policy_version is None else f"version {row.policy_version}"
    parts = (row.lineage or "no lineage", version, row.family and f"family {row.family}", row.period)
    return ", ".join(part for part in parts if part) + f" (graded by {row.epochs or 'nothing'})"


def _cells(row: Figure) -> tuple[object, ...]:
    interval = "–" if row.low is None or row.high is None else f"{_told(row, row.low)} … {_told(row, row.high)}"
    interval += " (worst, best)" if row.metric == "success_bounds" else ""
    return row.metric, _told(row, row.value), interval, row.n, row.of, row.worlds or "–"


def _told(row: Figure, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if row.metric.startswith(RATES) else f"{value:,.2f}"


def to_csv(found: Sequence[Figure]) -> str:
    """One line a figure, the head first; a value that does not exist is empty."""
    out = io.StringIO()
    names = Figure.__struct_fields__
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(["" if (value := getattr(row, name)) is None else value for name in names] for row in found)
    return out.getvalue()
