"""Commands that change what counts as evidence: ``regrade`` and ``recall``."""

from __future__ import annotations

import sys

import click

from millstream.cli.common import emit, json_option, runtime_of
from millstream.cli.look import as_of_ms


@click.command()
@click.option("--grader", metavar="NAME", required=True, help="The grader, as the settings have it now.")
@click.option("--since", metavar="TIME", help="Only runs sealed at an ISO time or later.")
@json_option
@click.pass_context
def regrade(ctx: click.Context, grader: str, since: str | None, as_json: bool) -> None:
    """Grade recorded runs again: new grades are appended beside the old, which stay.

    Graded are the runs whose standing grade is of another epoch of the grader, failed or was recalled. Their
    rewards follow, and a running `up` (or the next one) takes their rollouts out of the buffer and admits
    them anew. Interrupted, it goes on where it stopped.
    """
    from millstream.bootstrap.evidence import regrading
    from millstream.console.tables import tally_words

    with regrading(runtime_of(ctx), grader, as_of_ms(since, "--since") or 0) as work:
        report = work.append(_progress)
    if as_json:
        emit("regrade", report)
        return
    click.echo(f"{report.epoch}: {report.regraded} of {report.runs} runs regraded: {tally_words(report.grades)}")
    if report.standing:
        click.echo(f"{report.standing} stand: their grade is of this epoch already")
    if report.unreadable:
        click.echo(f"{report.unreadable} runs could not be read")


def _progress(done: int, of: int) -> None:
    """A line that moves, on standard error."""
    end = "\r" if done < of and sys.stderr.isatty() else "\n"
    click.echo(f"regraded {done:,} of {of:,}{end}", err=True, nl=False)
