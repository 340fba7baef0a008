"""Where the state of the stages lies: in the file of the log, or beside another log (`[storage] state`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.errors import SettingsError

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime
    from millstream.ports import Log, Store

DEFAULT_NAMESPACE = "default"
"""That of Redis keys where ``[kafka] namespace`` is empty."""


def beside(runtime: Runtime, log: Log, server: Callable[[str], str | Callable[[], str]]) -> Store:
    """The store beside a Kafka log. ``server``: of a Redis URL or ``embedded``, what reaches that server.
    Raises `SettingsError`.
    """
    state = runtime.loaded.settings.storage.state
    if state.startswith("sqlite:"):
        from millstream.adapters.sqlite_file import SqliteFile
        from millstream.adapters.sqlite_store import SqliteStore

        file = SqliteFile(runtime.loaded.database(state))
        runtime.on_close(file.close)
        return SqliteStore(log, file)
    if state != "embedded" and not state.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError(
            f"[storage] state = {state!r}: beside a Kafka log write sqlite:///NAME (one machine), redis://HOST:6379 "
            "(several), or embedded"
        )
    from millstream.adapters.redis_store import RedisStore

    store = RedisStore(log, server(state), namespace_of(runtime))
    runtime.on_close(store.close)
    return store


def namespace_of(runtime: Runtime) -> str:
    """What keeps the Redis keys of several installations on one server apart."""
    return runtime.loaded.settings.kafka.namespace or DEFAULT_NAMESPACE
