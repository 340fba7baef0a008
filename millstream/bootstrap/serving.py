"""`millstream serve …`: a room's routes behind the one door that all servers share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bootstrap.parts import require
from millstream.capture import gateway
from millstream.graders.hosted import serving as hosted
from millstream.loading import Loaded
from millstream.serving import Door, Route, token_of

if TYPE_CHECKING:
    from millstream.adapters.http_server import Server
    from millstream.bootstrap.runtime import Runtime


def door_of(loaded: Loaded, host: str, port: int, token_file: Path | None) -> Door:
    """The door of the settings. Raises `SettingsError` for a host that needs a token and has none."""
    return Door(host=host, port=port, token=token_of(token_file), rules=loaded.settings.serve).checked()


def server(routes: Sequence[Route], door: Door) -> Server:
    """A server that is bound and runs when told to. Raises `MissingExtra` without its libraries."""
    require("millstream serve", "serve")
    from millstream.adapters.http_server import Server

    return Server(routes, door)


def gateway_routes(runtime: Runtime) -> Sequence[Route]:
    """The gateway: telemetry into the log. Raises `MissingExtra` without its libraries."""
    require("millstream serve gateway", "serve")
    from millstream.adapters.otlp_requests import decoded

    return gateway.routes(runtime.log, runtime.loaded.settings, decoded, runtime.shared())


def grader_routes(runtime: Runtime) -> Sequence[Route]:
    """The hosted grader service."""
    return hosted.routes(runtime.loaded.settings.hosted, runtime.means)
