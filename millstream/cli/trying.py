"""``graders run --rows``: a hosted grader tried on the rows of a JSONL file, as a table."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.common import emit, table

if TYPE_CHECKING:
    from millstream.graders.hosted.definitions import Definition
    from millstream.graders.hosted.means import Means
    from millstream.graders.hosted.rows import BadRow, Row
    from millstream.graders.hosted.trial import Line, Trial

PARTLY = 4


def try_rows(definition: Definition, means: Means, file: Path, options: dict[str, Any]) -> int:
    """Print the table; 1 when no sample got a score, 4 when a row could not be read."""
    from millstream.graders.hosted.rows import Row, read_rows
    from millstream.graders.hosted.trial import tried

    with file.open("rb") as lines:
        read = list(islice(read_rows(lines), options["limit"]))
    rows = [row for row in read if isinstance(row, Row)]
    bad = [row for row in read if not isinstance(row, Row)]
    trial = tried(definition, rows, means, options["reference"])
    if options["as_json"]:
        emit("grader-trial", {"grader": definition.name, "rows": len(rows), "bad": bad, **_plain(trial)})
    else:
        _tell(definition, rows, bad, trial)
    if not any(line.samples > line.failed for line in trial.lines):
        return 1
    return PARTLY if bad else 0


def _plain(trial: Trial) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(trial)
    return found


def _tell(definition: Definition, rows: list[Row], bad: list[BadRow], trial: Trial) -> None:
    click.echo(f"{definition.name!r} on {len(rows)} rows{f', {len(bad)} bad lines left out' if bad else ''}")
    table((_cells(line) for line in trial.lines if line.samples), HEAD)
    several = trial.same + trial.different
    if several:
        click.echo(f"items with several samples: {several}; {trial.different} got different scores (these teach)")
    if trial.compared:
        click.echo(f"scores that the service gave: {trial.compared}; {trial.agreed} are ours, too")
    for flag, count in trial.faults.items():
        click.echo(f"{flag}: {count}; first at {trial.first[flag]}")
    for row in bad[:5]:
        click.echo(f"left out: {row.told}", err=True)


HEAD = ("samples", "n", "failed", "mean", "sd", "min", "max", "passed")


def _cells(line: Line) -> tuple[object, ...]:
    figures = (line.mean, line.deviation, line.least, line.most)
    told = ("–" if figure is None else f"{figure:.3f}" for figure in figures)
    return (line.source, line.samples, line.failed, *told, "–" if line.passed is None else line.passed)
