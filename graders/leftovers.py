"""Processes that a grader started and left behind: found after each call, ended, and told."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from millstream.errors import Overrun


def processes() -> frozenset[int]:
    """The processes that this one started and that are still there, ended ones that nobody waited for among them.

    Empty where the system does not tell (it is no Linux, or has no ``/proc/self/task/*/children``).
    """
    found: list[bytes] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208 — after every call, so it must be quick
            file = os.open(f"/proc/self/task/{task}/children", os.O_RDONLY)
            try:
                found += os.read(file, 1 << 16).split()
            finally:
                os.close(file)
    return frozenset(map(int, found))


def end_others(left: AbstractSet[int]) -> None:
    """Kill these and raise `Overrun` when there are any: what runs on could answer, or take, for a later run."""
    if not left:
        return
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    raise Overrun(f"a grader left {len(left)} process{'es' if len(left) > 1 else ''} behind; wait for what you start")
