"""``alarms list | show | clear``: what says that a reward is being fooled, and going on after a look at it."""

from __future__ import annotations

from typing import Any

import click

from millstream.cli.common import emit, json_option, runtime_of
from millstream.cli.look import listing


def _rows(runtime: Any, *, as_of_ms: int | None) -> Any:
    from millstream.console.alarms import alarms as console

    return console(runtime.log, as_of_ms)


def _whole(runtime: Any, *, as_of_ms: int | None) -> Any:
    from millstream.console.alarms import whole_alarms

    return whole_alarms(runtime.log, as_of_ms)


alarms = listing(
    "alarms",
    "alarm",
    "Signs that a reward is being fooled, with the runs that raised them.",
    _rows,
    _whole,
    ("id", "alarm", "measure", "version", "hits", "runs", "share", "expected", "state"),
)


@alarms.command()
@click.argument("alarm_id", metavar="ID")
@click.option("--reason", required=True, help="What you found; kept with the decision.")
@json_option
@click.pass_context
def clear(ctx: click.Context, alarm_id: str, reason: str, as_json: bool) -> None:
    """Say that you looked at alarm ID: training may go on, and the watch begins anew."""
    from millstream.bootstrap.examining import clear_alarm

    found = clear_alarm(runtime_of(ctx), alarm_id, reason)
    if as_json:
        emit("alarm-cleared", found)
    else:
        click.echo(f"alarm {alarm_id} is cleared: {reason}")
