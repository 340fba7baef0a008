"""What `doctor` and `status` ask of the world outside: the log, the buffer's server, the tracker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.bootstrap.plans import Plan
from millstream.console.doctor import Check, attempted, examine
from millstream.errors import Unavailable
from millstream.loading import Loaded

REPORT = "run no code that you did not write on this machine, and report it as SECURITY.md says"

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


def diagnose(loaded: Loaded) -> list[Check]:
    """Every check of this machine, the data directory and the services behind the settings."""
    return examine(loaded, (log, buffer, sandbox))


def log(loaded: Loaded) -> Iterable[Check]:
    """The log opens and its format is one this version reads; a missing file is fine, missing topics are not."""
    from millstream.bootstrap.runtime import Runtime

    storage = loaded.settings.storage
    if storage.log.startswith("kafka://"):
        return _cluster(loaded)
    path = loaded.database(storage.log)
    if not path.exists():
        return [Check(level="ok", name="log", detail=f"none yet at {path}; the first command makes it")]
    with Runtime(loaded) as runtime:
        return [attempted("log", f"opens: {path}", lambda: runtime.log.bounds("telemetry"))]


def _cluster(loaded: Loaded) -> list[Check]:
    from millstream.bootstrap.runtime import Runtime

    with Runtime(loaded) as runtime:
        topics = attempted("log", f"{loaded.settings.storage.log} has its topics", runtime.check_topics)
        if topics.level != "ok":
            return [topics]

        def ask() -> object:
            return runtime.store.positions()  # opening it is half of the question

        return [topics, attempted("state", "the store of the stages answers", ask)]


def buffer(loaded: Loaded) -> Iterable[Check]:
    """The buffer's server answers and would not evict; the embedded one can be started."""
    from millstream.bootstrap.runtime import Runtime

    kind = loaded.settings.storage.buffer
    detail = "the embedded server starts" if kind == "embedded" else "the server answers and does not evict"
    with Runtime(loaded) as runtime:
        return [attempted("buffer", detail, lambda: runtime.buffer().stats())]


PROBE = """
import os, socket
def probe():
    open("/tmp/x", "w").close()
    try:
        socket.socket()
    except PermissionError:
        return [os.getuid(), sorted(os.listdir("/tmp")), os.path.exists("/etc/passwd"), os.path.exists("/home")]
"""
FOUND = [65534, ["x"], False, False]
"""What the probe sees in a sandbox that holds: another user, its own empty folder, nothing of this machine."""


def sandbox(loaded: Loaded) -> Iterable[Check]:
    """Code that arrived as data can be run and is held; a machine that can't is fine while nothing needs it."""
    from millstream.bootstrap.means import needs_sandbox, sandbox_of
    from millstream.sandboxing import Code

    if loaded.settings.sandbox.run_untrusted_code_without_a_sandbox:
        mend = "take run_untrusted_code_without_a_sandbox out of [sandbox], and install bubblewrap"
        detail = "off: code that arrives as data runs as this user and can read what this user can"
        return [Check(level="warn", name="sandbox", detail=detail, mend=mend)]
    made = sandbox_of(loaded)
    try:
        ran = made.run(Code(sources=(("probe", PROBE),), function="probe"))
        again = "one job after another" if made.keeps else "a new one for each job (namespaces inside are forbidden)"
    except Unavailable as error:
        told, _, mend = str(error).partition("; ")
        if needs_sandbox(loaded):
            return [Check(level="fail", name="sandbox", detail=told, mend=mend)]
        return [Check(level="ok", name="sandbox", detail=f"none ({told}); these settings do not need it", mend=mend)]
    finally:
        made.close()
    if ran.value != FOUND:
        return [Check(level="fail", name="sandbox", detail=f"did not hold: {ran.detail or ran.value}", mend=REPORT)]
    return [Check(level="ok", name="sandbox", detail=f"bubblewrap holds a probe; {again}")]


def buffers_in_use(runtime: Runtime) -> list[Plan]:
    """The plans whose buffer may be asked without making one: all with a server of one's own, those of a
    data directory that has decided something with the embedded one.
    """
    embedded = runtime.loaded.settings.storage.buffer == "embedded"
    used = runtime.log.bounds("buffer-events")[1] > 0
    return list(runtime.plans) if used or not embedded else []
