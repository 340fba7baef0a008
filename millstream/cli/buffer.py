"""``buffer stats`` and ``buffer rebuild``."""

from __future__ import annotations

import click

from millstream.cli.common import emit, json_option, runtime_of


@click.group()
def buffer() -> None:
    """The replay buffer: figures, and rebuilding it from the log."""


@buffer.command()
@json_option
@click.pass_context
def stats(ctx: click.Context, as_json: bool) -> None:
    """What was admitted and refused and why, what is there now, and the pairs preference learning could use."""
    from millstream.console.buffer_stats import buffer_figures

    runtime = runtime_of(ctx)
    figures = buffer_figures(runtime.log, runtime.buffer().stats())
    if as_json:
        emit("buffer", figures)
    else:
        for key, value in figures.items():
            text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            click.echo(f"{key}: {text if text != '' else 'none'}")


@buffer.command()
@json_option
@click.pass_context
def rebuild(ctx: click.Context, as_json: bool) -> None:
    """Drop the buffer and fold its decisions again from the log; nothing is decided anew."""
    runtime = runtime_of(ctx)
    applied = runtime.rebuild_buffer()
    if as_json:
        emit("buffer-rebuild", {"applied": applied})
    else:
        click.echo(f"rebuilt from {applied} records of buffer-events")
