"""A server that forks runners of the stages, so that fifty lives cost fifty forks and not fifty imports.

Commands on standard input: ``run PATH`` forks a runner and answers with its pid. A runner writes one line
for each group it has committed (the stage's name) and ``idle`` when nothing waits; it ends by a signal.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from millstream.adapters.clock import Clock, SystemClock
from millstream.adapters.sqlite import Embedded, open_sqlite
from millstream.grade import Grade, fail, score
from millstream.graders.builtin import builtin
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.settings import Settings, load
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.driving import step
from millstream.streams.grading import GradingStage
from millstream.streams.runner import Limits, StageRunner
from millstream.trajectory import Trajectory

SMALL = Limits(commit_bytes=2_000, snapshot_bytes=20_000, journal_runs=12)
"""Many small groups and snapshots: a kill falls between, before and into them."""
OPTIONS = {"reward.formula": "0.4*correct + 0.3*shaky + 0.2*format + 0.1*efficiency"}


def settings() -> Settings:
    """What the mill is set to; four named graders, one of which fails now and then."""
    return load(environ={}, options=OPTIONS).settings


def shaky(trajectory: Trajectory) -> Grade:
    """Fails on every seventh run, by its name."""
    return fail("shaken") if int(trajectory.id.split("-")[1]) % 7 == 3 else score(1.0)


def build(embedded: Embedded) -> list[StageRunner]:
    """The three stages, as `millstream up` wires them."""
    log, store = embedded
    chosen = settings()
    graders = GraderSet(
        [builtin("correct"), builtin("format"), builtin("efficiency"), Grader("shaky", shaky, epoch="shaky@1")]
    )
    return [
        StageRunner(Assembler(chosen.assembly, topic_id=log.topic_id("telemetry")), log, store, limits=SMALL),
        StageRunner(GradingStage(graders, topic_id=log.topic_id("trajectories")), log, store, limits=SMALL),
        StageRunner(BufferingStage(chosen.buffer, chosen.reward), log, store, limits=SMALL),
    ]


def run(path: Path, told: int) -> None:
    """Run for ever, telling each group."""
    embedded = open_sqlite(path)
    runners = build(embedded)
    while True:
        moved = 0
        for runner in runners:
            if runner.run_once():
                moved += 1
                os.write(told, f"{runner.processor.name}\n".encode())
        if not moved:
            os.write(told, b"idle\n")
            embedded.log.wait({name: at for runner in runners for name, at in runner.positions.items()}, 5)


def run_until_idle(path: Path, clock: Clock | None = None) -> None:
    """Run in this process until nothing is left, timers that are due included."""
    embedded = open_sqlite(path, clock=clock or SystemClock())
    runners = build(embedded)
    while step(runners):
        pass
    for runner in runners:
        runner.close()
    embedded.close()


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        path = Path(line.split(maxsplit=1)[1].strip())
        pid = os.fork()
        if pid == 0:
            run(path, 1)
        os.write(1, f"pid {pid}\n".encode())
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    assert threading.active_count() == 1
    main()
