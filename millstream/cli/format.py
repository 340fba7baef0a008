"""``format show`` and ``format raise``: what the stages write in, while and after builds are exchanged."""

from __future__ import annotations

import click

from millstream.cli.common import emit, json_option, runtime_of, table
from millstream.formats import NEWEST, OLDEST, Owner, check_owners
from millstream.ports import Store


@click.group("format")
def format_() -> None:
    """The format that the stages write in; see docs/production.md on upgrading."""


@format_.command()
@json_option
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """The format as it is, what this version reads, and which version had each stage last."""
    _tell(runtime_of(ctx).store, as_json=as_json)


@format_.command("raise")
@click.option("--force", is_flag=True, help="Although a stage was last had by a version that does not read it.")
@json_option
@click.pass_context
def raise_(ctx: click.Context, force: bool, as_json: bool) -> None:
    """Have the stages write in the newest format of this version, from their next commit on.

    There is no way back: versions that do not read it stop (exit 3). Refused (exit 2) while such a version has a
    stage.
    """
    store = runtime_of(ctx).store
    if not force and store.format().number < NEWEST.number:
        check_owners(store.owners(), NEWEST)
    store.raise_format(NEWEST)
    _tell(store, as_json=as_json)


def _tell(store: Store, *, as_json: bool) -> None:
    found, owners = store.format(), store.owners()
    if as_json:
        told = {"format": found.number, "needs": found.needs, "reads": [OLDEST.number, NEWEST.number]}
        emit("format", {**told, "stages": owners})
        return
    click.echo(f"format {found.number}, read by millstream {found.needs} and later; ", nl=False)
    click.echo(f"this version reads {OLDEST.number} to {NEWEST.number}")
    if found.number < NEWEST.number:
        click.echo("`millstream format raise` when all workers are of this version")
    if owners:
        table([_row(one) for one in owners], ("stage", "partition", "version", "reads up to"))


def _row(owner: Owner) -> tuple[object, ...]:
    return owner.stage, owner.partition, owner.version, owner.reads
