"""Regrading recorded runs: runs a second, an interruption in the middle, and what the buffer does after it.

The runs are like those of the example, in groups of eight; the log is the embedded one on disk.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import fmean

import msgspec

from millstream.adapters.sqlite import Embedded, open_sqlite
from millstream.console.measures import figures
from millstream.console.regrade_diff import Plain, diff
from millstream.events import TrajectoryStarted
from millstream.graders.builtin import builtin
from millstream.graders.registry import Grader
from millstream.graders.reward import Formula
from millstream.graders.running import GraderSet
from millstream.ledger import read_all
from millstream.ndjson import filled
from millstream.ports import Message
from millstream.recalls import NONE
from millstream.rollout import BufferDecision
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.buffering import BufferingStage
from millstream.streams.driving import step
from millstream.streams.grading import GradingStage
from millstream.streams.regrading import Regrading
from millstream.streams.runner import StageRunner

sys.path.insert(0, str(Path(__file__).parent))
made = import_module("graders").made  # the neighbouring file; this folder is no package

RUNS, GROUP = 100_000, 8
WRONG = 3
"""Every third answer is wrong."""


def stages(mill: Embedded, grader: Grader) -> list[StageRunner]:
    settings = BufferSettings(max_rollouts=2 * RUNS, max_bytes=1 << 40, near_duplicate=1.0)
    grade = GradingStage(GraderSet([grader]), topic_id=mill.log.topic_id("trajectories"))
    buffer = BufferingStage(settings, RewardSettings(formula="correct"))
    return [StageRunner(grade, mill.log, mill.store), StageRunner(buffer, mill.log, mill.store, every_partition=True)]


def record(mill: Embedded, count: int) -> None:
    """Seal ``count`` runs, as assembly would have."""
    for start in range(0, count, 1000):
        messages = []
        for n in range(start, start + 1000):
            run = made(n, f"{n % 97 + (n % WRONG == 0):.4f}", float(n % 97))
            first, *rest = run.events
            assert isinstance(first, TrajectoryStarted)
            group = f"g{n // GROUP}"
            task = msgspec.structs.replace(first.task, id=group)
            first = msgspec.structs.replace(first, task=task, group=group, group_size=GROUP, policy_version=1)
            run = msgspec.structs.replace(run, events=(first, *rest))
            messages.append(Message(run.id, msgspec.json.encode(run), {"kind": "trajectory"}))
        mill.log.append("trajectories", messages)


def drive(runners: list[StageRunner]) -> float:
    begun = time.process_time()
    while step(runners):
        pass
    return time.process_time() - begun


class Interrupted(Exception):
    pass


def regrade(mill: Embedded, grader: Grader, stop_at: int = 0) -> tuple[int, float, float]:
    """(runs regraded, CPU seconds of finding out what to do, CPU seconds of the rest)."""
    begun = time.process_time()
    work = Regrading(mill.log, GraderSet([grader]))
    planned = time.process_time()

    def progress(done: int, _: int) -> None:
        if stop_at and done >= stop_at:
            raise Interrupted

    with contextlib.suppress(Interrupted):
        work.append(progress)
    return work.report.regraded, planned - begun, time.process_time() - planned


def foretold(mill: Embedded, grader: Grader) -> tuple[int, float]:
    """(runs that a diff looked at, CPU seconds)."""
    begun = time.process_time()
    work = Regrading(mill.log, GraderSet([grader]))
    new = (given for batch in work.grades() for _, given in batch)
    plain = Plain("policy", "default", RewardSettings(formula="correct"))
    found = diff(mill.log, grader.name, grader.epoch, new, [plain], NONE)
    return found.runs, time.process_time() - begun


def ledger(mill: Embedded) -> BufferLedger:
    found, decode = BufferLedger(), msgspec.json.Decoder(BufferDecision).decode
    for one in read_all(mill.log, "buffer-events"):
        for line in filled(one.value):
            found.apply(decode(line))
    return found


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    old = builtin("correct")
    new = Grader("correct", builtin("numeric").function, epoch="correct@9")
    with tempfile.TemporaryDirectory() as folder:
        mill = open_sqlite(Path(folder) / "log.db")
        record(mill, count)
        print(f"regrading {count:,} runs in groups of {GROUP}, one core")
        print(f"    {'graded and buffered first':34} {count / drive(stages(mill, old)):10,.0f} runs a CPU second")
        before, size = ledger(mill), mill.log.bounds("buffer-events")[1]
        told, spent_on_diff = foretold(mill, new)
        print(f"    {'what it would change, told first':34} {count / spent_on_diff:10,.0f}   {spent_on_diff:.1f} CPU s")
        first, plan, spent = regrade(mill, new, stop_at=count // 2)
        again, plan_again, spent_again = regrade(mill, new)
        print(f"    {'regraded until interrupted':34} {first / spent:10,.0f}   {first:,} runs, {spent:.1f} CPU s")
        print(f"    {'regraded after the restart':34} {again / spent_again:10,.0f}   {again:,} runs")
        lost = max(0, first + again - count)
        print(f"    {'done twice for the interruption':34} {lost:10,}   runs (at most what one append holds)")
        print(f"    {'finding out what is to be done':34} {fmean((plan, plan_again)):10.1f}   CPU s, twice")
        idle = regrade(mill, new)
        print(f"    {'nothing left to do':34} {idle[1]:10.1f}   CPU s")
        follow = drive(stages(mill, new))
        after, events = ledger(mill), mill.log.bounds("buffer-events")[1] - size
        print(f"    {'the buffer follows':34} {count / follow:10,.0f}   {follow:.1f} CPU s, {events:,} records")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"    {'peak memory':34} {peak:10,.0f}   MB, the stages included")
        begun = time.process_time()
        found = figures(mill.log, Formula("correct"), NONE)
        spent = time.process_time() - begun
        print(f"    {'metrics over all of them':34} {count / spent:10,.0f}   {spent:.1f} CPU s, {len(found)} figures")
        whole = (
            told == count
            and len(before.entries) == len(after.entries) == count
            and not before.entries.keys() & after.entries.keys()
        )
        print(f"    every run in the buffer once, under the new epoch: {'yes' if whole else 'NO'}")
        mill.close()
    return int(not whole or first + again - lost != count)


if __name__ == "__main__":
    sys.exit(main())
