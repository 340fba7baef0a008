"""``blobs show`` and ``blobs prune``: what the edge kept whole in ``[capture] blobs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.common import emit, json_option, runtime_of
from millstream.errors import SettingsError

if TYPE_CHECKING:
    from millstream.capture.blobs import Blobs

_DAY_S = 86_400


@click.group()
def blobs() -> None:
    """What was too large for an event (long outputs, images, sound), kept whole under its SHA-256."""


def _blobs(ctx: click.Context) -> Blobs:
    found = runtime_of(ctx).blobs()
    if found is None:
        raise SettingsError('no blobs are kept: set [capture] blobs = "DIRECTORY"')
    return found


@blobs.command()
@click.argument("sha256")
@click.option("--output", type=click.Path(path_type=Path), help="A file to write to, instead of standard output.")
@click.pass_context
def show(ctx: click.Context, sha256: str, output: Path | None) -> None:
    """The bytes of a blob, as an event names it (`sha256 …` in a mark, `truncated.blob`)."""
    data = _blobs(ctx).get(sha256)
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        output.write_bytes(data)


@blobs.command()
@click.option(
    "--older-than-days",
    type=click.FloatRange(min=0),
    help="Default: what [kafka] telemetry_retention_s keeps events for.",
)
@json_option
@click.pass_context
def prune(ctx: click.Context, older_than_days: float | None, as_json: bool) -> None:
    """Delete blobs that no event has referred to for so long."""
    kept_s = runtime_of(ctx).loaded.settings.kafka.telemetry_retention_s
    seconds = older_than_days * _DAY_S if older_than_days is not None else kept_s
    gone, size = _blobs(ctx).prune(seconds) if seconds or older_than_days is not None else (0, 0)
    if as_json:
        emit("blobs-prune", {"deleted": gone, "bytes": size})
    else:
        click.echo(f"deleted {gone} blobs, {size} bytes")
