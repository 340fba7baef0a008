"""``serve``: what answers over HTTP, each on a port of its own until SIGTERM."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.common import emit, json_option, runtime_of

if TYPE_CHECKING:
    from millstream.serving import Route


@click.group(name="serve")
def serve() -> None:
    """Answer over HTTP: loopback only unless there is a token."""


def door_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every server has."""
    options: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
        json_option,
        click.option(
            "--token-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="A file with the token that callers must show (default: MILLSTREAM_TOKEN, if set).",
        ),
        click.option("--port", metavar="N", type=click.IntRange(0, 65_535), default=0, help="0: a free one is chosen."),
        click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Others need a token."),
    )
    for option in options:
        command = option(command)
    return command


@serve.command("graders")
@door_options
@click.pass_context
def graders(ctx: click.Context, /, **door: Any) -> None:
    """The hosted grading service's calls: POST /v1/fine_tuning/alpha/graders/validate and /run.

    The stock openai client works with base_url="http://HOST:PORT/v1" and nothing else changed.
    """
    from millstream.bootstrap.serving import grader_routes

    answer(ctx, "graders", grader_routes(runtime_of(ctx)), **door)


@serve.command("gateway")
@door_options
@click.pass_context
def gateway(ctx: click.Context, /, **door: Any) -> None:
    """Telemetry into the log: OTLP on /v1/traces and /v1/logs, our events on /v1/events.

    A stock OpenTelemetry exporter works with OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:PORT and nothing else changed.
    """
    from millstream.bootstrap.serving import gateway_routes

    answer(ctx, "gateway", gateway_routes(runtime_of(ctx)), **door)


def answer(
    ctx: click.Context,
    what: str,
    routes: Sequence[Route],
    *,
    host: str,
    port: int,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Serve until SIGTERM or SIGINT, which end it with 0. One line says where, once it listens."""
    from millstream.bootstrap.serving import door_of, server

    made = server(routes, door_of(runtime_of(ctx).loaded, host, port, token_file))
    if as_json:
        emit("serve", {"serves": what, "url": made.url, "port": made.port, "token": bool(made.door.token)})
        sys.stdout.flush()
    else:
        click.echo(f"serving {what} on {made.url}{' (token needed)' if made.door.token else ''}", err=True)
    made.run()
