"""``feedback``: what somebody or something says of a run, at any time."""

from __future__ import annotations

import math
from typing import get_args

import click

from millstream.cli.common import emit, json_option, runtime_of
from millstream.errors import SettingsError
from millstream.events import FeedbackSource


@click.command()
@click.argument("trajectory", metavar="[TRAJECTORY]", default="")
@click.option("--response", metavar="ID", default="", help="The step that is meant; alone it finds its run, too.")
@click.option("--value", type=float, help="How good it was: a number in the range of the reward.")
@click.option("--label", metavar="WORD", default="", help="Instead of a number: good, bad, yes, no, … (or your own).")
@click.option("--name", metavar="NAME", default="", help="What it is about; the reward knows it as feedback.NAME.")
@click.option(
    "--source", type=click.Choice(get_args(FeedbackSource)), default="human", show_default=True, help="Who says it."
)
@click.option("--comment", default="", help="Why; redacted like any text.")
@click.option("--at", metavar="TIME", help="When it held, as an ISO time (default: now).")
@json_option
@click.pass_context
def feedback(  # noqa: PLR0913 — one parameter an option
    ctx: click.Context,
    *,
    trajectory: str,
    response: str,
    value: float | None,
    label: str,
    name: str,
    source: FeedbackSource,
    comment: str,
    at: str | None,
    as_json: bool,
) -> None:
    """Say how good a run was: before it is told, while it goes on, or days after it.

    It never changes the trajectory. It is a grade of its own, raises the revision of the reward, and the buffer
    decides the rollout anew.
    """
    from millstream.bootstrap.joining import give
    from millstream.capture.client import feedback_event
    from millstream.cli.look import as_of_ms

    if value is None and not label:
        raise SettingsError("say how good it was: --value NUMBER, or --label WORD")
    if value is not None and not math.isfinite(value):
        raise SettingsError(f"--value {value} must be a finite number")
    told_ms = as_of_ms(at, "--at")
    try:
        event = feedback_event(
            trajectory,
            value=value,
            label=label,
            name=name,
            source=source,
            comment=comment,
            response_id=response,
            valid_time_ns=(told_ms or 0) * 1_000_000,
            producer="cli",
        )
    except ValueError as error:
        raise SettingsError(str(error)) from None
    give(runtime_of(ctx), event)
    if as_json:
        emit("feedback", {"id": event.id, "trajectory_id": trajectory, "response_id": response, "name": name})
    else:
        click.echo(f"noted for {trajectory or f'the run of response {response}'}")
