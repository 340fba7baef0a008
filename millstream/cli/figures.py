"""``metrics``: figures over many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millstream.cli.common import emit_items, json_option, runtime_of
from millstream.cli.look import as_of_ms, as_of_option, valid_at_option
from millstream.errors import SettingsError

if TYPE_CHECKING:
    from millstream.console.measures import By


@click.command()
@click.option("--grader", metavar="NAME", help="Success by this grader (default: by the reward of the settings).")
@click.option("--lineage", metavar="NAME", default="", help="Whose reward (default: [policy] lineage).")
@click.option(
    "--by",
    "by",
    type=click.Choice(["family", "hour", "day", "week"]),
    multiple=True,
    help="Also by task family, or by when runs were sealed (UTC); repeatable.",
)
@click.option("--split", type=click.Choice(["train", "held_out", "report"]), help="Only runs of this split.")
@click.option("--since", metavar="TIME", help="Only runs sealed at an ISO time or later.")
@click.option("--until", metavar="TIME", help="Only runs sealed before an ISO time.")
@click.option(
    "--success-at", type=float, metavar="SCORE", help="From which score on a run is a success (default: the settings')."
)
@as_of_option
@valid_at_option
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, one line a figure.")
@json_option
@click.pass_context
def metrics(  # noqa: PLR0913 — one parameter an option
    ctx: click.Context,
    *,
    grader: str | None,
    lineage: str,
    by: tuple[By, ...],
    split: str | None,
    since: str | None,
    until: str | None,
    success_at: float | None,
    as_of: str | None,
    valid_at: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Figures of the recorded runs by policy version, with intervals and denominators.

    Success with its worst-case bounds, accuracy@k, pass^k, reasoning depth, tool efficiency, cost per success.
    """
    from millstream.console import measures, measures_text

    if sum(part != "family" for part in by) > 1:
        raise SettingsError("--by takes one of hour, day and week, and family beside it")
    runtime = runtime_of(ctx)
    found = measures.figures(
        runtime.log,
        runtime.success(grader or "", lineage, success_at),
        runtime.recalls(as_of_ms(as_of)),
        by=by,
        split=split or "",
        span=(as_of_ms(since, "--since") or 0, as_of_ms(until, "--until") or 0),
        as_of_ms=as_of_ms(as_of),
        valid_at_ms=as_of_ms(valid_at, "--valid-at"),
    )
    if as_csv:
        click.echo(measures_text.to_csv(found), nl=False)
    elif as_json:
        emit_items("metrics", found, None)
    else:
        click.echo(measures_text.render(found))
