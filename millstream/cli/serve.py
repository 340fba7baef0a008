"""``serve``: what answers over HTTP, each on a port of its own until SIGTERM."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.common import emit, json_option, runtime_of

if TYPE_CHECKING:
    from millstream.serving import Door

SWITCH_S = 0.0002
"""How long a call that passes waits at most for the thread that records another: Python's own 5 ms would be felt."""


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
    from millstream.bootstrap.serving import grader_routes, server

    answer(ctx, "graders", lambda made: server(grader_routes(runtime_of(ctx)), made), **door)


@serve.command("gateway")
@door_options
@click.pass_context
def gateway(ctx: click.Context, /, **door: Any) -> None:
    """Telemetry into the log: OTLP on /v1/traces and /v1/logs, our events on /v1/events.

    A stock OpenTelemetry exporter works with OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:PORT and nothing else changed.
    """
    from millstream.bootstrap.serving import gateway_routes, server

    answer(ctx, "gateway", lambda made: server(gateway_routes(runtime_of(ctx)), made), **door)


@serve.command("proxy")
@click.option(
    "--upstream", metavar="URL", required=True, help="Where calls go: http://HOST:PORT/v1 or https://HOST/v1."
)
@door_options
@click.pass_context
def proxy(ctx: click.Context, /, upstream: str, **door: Any) -> None:
    """The OpenAI API on its way to a model's server; calls of chat completions and responses are recorded as runs.

    A stock client works with base_url="http://HOST:PORT/v1" and nothing else changed; its key goes to the upstream
    and nowhere else. A token of the proxy's own is shown in X-Millstream-Token.
    """
    from millstream.bootstrap.serving import proxy_server

    sys.setswitchinterval(SWITCH_S)
    answer(ctx, "proxy", lambda made: proxy_server(runtime_of(ctx), upstream, made), **door)


def answer(
    ctx: click.Context,
    what: str,
    serving: Callable[[Door], Any],
    *,
    host: str,
    port: int,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Serve until SIGTERM or SIGINT, which end it with 0. One line says where, once it listens."""
    from millstream.bootstrap.serving import door_of

    made = serving(door_of(runtime_of(ctx).loaded, host, port, token_file))
    if as_json:
        emit("serve", {"serves": what, "url": made.url, "port": made.port, "token": bool(made.door.token)})
        sys.stdout.flush()
    else:
        click.echo(f"serving {what} on {made.url}{' (token needed)' if made.door.token else ''}", err=True)
    made.run()
