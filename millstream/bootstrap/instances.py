"""Who a worker is in its consumer group: the same after a restart, so that the group need not be balanced anew."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from millstream.adapters.lock import RunnerLock
from millstream.errors import SettingsError

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime

MOST: Final = 256
"""Workers of a stage that share a data directory."""


def instance_of(runtime: Runtime, stage: str, given: str = "") -> str:
    """The name ``given``, or the host's with the first number that no living worker of the stage has (by a
    lock in the data directory, held until the runtime closes).
    """
    if given:
        return given
    for number in range(MOST):
        lock = RunnerLock(runtime.loaded.data / "workers" / f"{stage}-{number}.lock")
        try:
            lock.acquire()
        except SettingsError:
            continue
        runtime.on_close(lock.release)
        return f"{socket.gethostname()}-{stage}-{number}"
    raise SettingsError(f"{MOST} workers of {stage!r} run on this data directory already; give this one --instance")
