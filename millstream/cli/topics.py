"""``topics create`` and ``topics list``: the topics of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Sequence

import click

from millstream.cli.common import emit_items, json_option, runtime_of, table
from millstream.ports import TopicState


@click.group()
def topics() -> None:
    """The topics of a Kafka cluster (the embedded log makes its own)."""


@topics.command()
@click.option("--apply", is_flag=True, help="Also set what differs from the settings without being wrong.")
@json_option
@click.pass_context
def create(ctx: click.Context, apply: bool, as_json: bool) -> int:
    """Make the topics that are missing and mend those that are wrong; exit 1 when one stays wrong.

    Run again it changes nothing. A partition count or a replication is never changed; see docs/operations.md
    for how a topic grows.
    """
    with runtime_of(ctx).topics() as found:
        states = found.create(apply=apply)
    _tell(states, as_json=as_json)
    return int(any(d.wrong for state in states for d in state.differences))


@topics.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """Each topic as it is in the cluster, and where it differs from the settings. Changes nothing."""
    with runtime_of(ctx).topics() as found:
        _tell(found.states(), as_json=as_json)


def _tell(states: Sequence[TopicState], *, as_json: bool) -> None:
    if as_json:
        emit_items("topics", states, None)
        return
    rows = [(s.name, s.partitions or "-", s.id or "missing", ", ".join(s.done)) for s in states]
    table(rows, ("topic", "partitions", "id", "changed"))
    for state in states:
        for d in state.differences:
            what = "WRONG" if d.wrong else "differs"
            click.echo(f"{what}: {state.name}: {d.key} is {d.found or 'not set'}, the settings say {d.wanted}")
