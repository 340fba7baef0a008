"""What `doctor` and `status` ask of the world outside: the log, the buffer's server, the tracker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.bootstrap.plans import Plan
from millstream.console.doctor import Check, attempted, examine
from millstream.settings import Loaded

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


def diagnose(loaded: Loaded) -> list[Check]:
    """Every check of this machine, the data directory and the services behind the settings."""
    return examine(loaded, (log, buffer))


def log(loaded: Loaded) -> Iterable[Check]:
    """The log opens and its format is one this version reads; a missing one is fine."""
    from millstream.bootstrap.runtime import Runtime

    storage = loaded.settings.storage
    path = loaded.database(storage.log)
    if not path.exists():
        return [Check(level="ok", name="log", detail=f"none yet at {path}; the first command makes it")]
    with Runtime(loaded) as runtime:
        return [attempted("log", f"opens: {path}", lambda: runtime.log.bounds("telemetry"))]


def buffer(loaded: Loaded) -> Iterable[Check]:
    """The buffer's server answers and would not evict; the embedded one can be started."""
    from millstream.bootstrap.runtime import Runtime

    kind = loaded.settings.storage.buffer
    detail = "the embedded server starts" if kind == "embedded" else "the server answers and does not evict"
    with Runtime(loaded) as runtime:
        return [attempted("buffer", detail, lambda: runtime.buffer().stats())]


def buffers_in_use(runtime: Runtime) -> list[Plan]:
    """The plans whose buffer may be asked without making one: all with a server of one's own, those of a
    data directory that has decided something with the embedded one.
    """
    embedded = runtime.loaded.settings.storage.buffer == "embedded"
    used = runtime.log.bounds("buffer-events")[1] > 0
    return list(runtime.plans) if used or not embedded else []
