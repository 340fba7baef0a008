"""The embedded path end to end on one core: append, assemble, grade (numeric), buffer, each a durable group
commit on one SQLite file; events a second and the share of each part.

Events are those of `assembly_events` (about 1 KB, 20 a trajectory, 1 % sent twice, 2 % displaced), 50 in a
record, 256 KB in an append. Wall time and CPU time are both shown: the difference is waiting for the disk.
"""

from __future__ import annotations

import cProfile
import importlib.util
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import Embedded, open_sqlite
from millstream.graders.builtin import builtin
from millstream.graders.running import GraderSet
from millstream.ports import Message
from millstream.settings import BufferSettings, RewardSettings, Settings
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.grading import GradingStage
from millstream.streams.runner import StageRunner

TARGET = 15_000
EVENTS = 100_000
RECORD, APPEND_BYTES = 50, 256 << 10
COMMON = re.compile(rb"(?<= )(table|report|margin|net|delta|row|column|section|value|asset|income|page|answer)(?= )")
SYLLABLES = [a + b for a in ("b", "d", "f", "k", "l", "m", "n", "r", "s", "t") for b in ("a", "e", "i", "o", "u", "ar")]
VOCABULARY = [(a + b + c).encode() for a in SYLLABLES[::2] for b in SYLLABLES[1::3] for c in SYLLABLES[::7]]
PER_TURN = 4
"""Appends that arrive while the stages have one turn."""


def neighbour(name: str) -> ModuleType:
    """Another file of this folder (which is no package)."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def gradable(line: bytes, rng: random.Random) -> bytes:
    """The same event with a number to grade (a reference in its task, a right or a wrong one in a short
    answer), and with a policy that has thousands of words instead of thirty: texts of thirty words all
    look like near-duplicates of each other.
    """
    if line.startswith(b'{"kind":"TrajectoryStarted"'):
        return line.replace(b'"task":{', b'"task":{"reference":12.36,', 1)
    if line.startswith(b'{"kind":"TrajectoryEnded"'):
        answer = b'"final_answer":"The answer is %s.' % (b"12.36" if line[35] % 2 else b"11.9")
        return re.sub(rb'"final_answer":"[^"]*', answer, line, count=1)
    if line.startswith(b'{"kind":"ModelResponded"'):
        return COMMON.sub(lambda _: rng.choice(VOCABULARY), line)
    return line


def appends(file: Path) -> Iterator[list[Message]]:
    """The lines of a file as the SDK sends them: records of 50 events, appended 256 KB at a time."""
    rng = random.Random(11)
    lines = [gradable(line, rng) for line in file.read_bytes().splitlines()]
    group: list[Message] = []
    size = 0
    for start in range(0, len(lines), RECORD):
        value = b"\n".join(lines[start : start + RECORD])
        group.append(Message("batch", value, {"dialect": "millstream"}))
        size += len(value)
        if size >= APPEND_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def stages(embedded: Embedded) -> list[StageRunner]:
    """Assemble, grade by the numeric grader, buffer."""
    log, store = embedded
    settings = Settings(reward=RewardSettings(formula="numeric"), buffer=BufferSettings(max_rollouts=1_000_000))
    graders = GraderSet([builtin("numeric")])
    return [
        StageRunner(Assembler(settings.assembly, topic_id=log.topic_id("telemetry")), log, store),
        StageRunner(GradingStage(graders, topic_id=log.topic_id("trajectories")), log, store),
        StageRunner(BufferingStage(settings.buffer, settings.reward), log, store),
    ]


class Meter:
    """Wall and CPU seconds of each part."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def time(self, name: str, act: Callable[[], int]) -> int:
        wall, cpu = time.perf_counter(), time.process_time()
        done = act()
        self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall
        self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu
        return done


def run(file: Path, folder: Path) -> Meter:
    """Append and process a file of events, interleaved as in `millstream up`."""
    events = neighbour("assembly_events")
    clock = ManualClock(events.BORN_MS)
    embedded = open_sqlite(folder / "log.db", clock=clock)
    runners = stages(embedded)
    meter = Meter()
    for number, group in enumerate(appends(file), 1):
        clock.advance(events.STEP_MS * RECORD * len(group))
        meter.time("append", lambda group=group: embedded.log.append("telemetry", group))  # type: ignore[misc]
        if number % PER_TURN == 0:
            for runner in runners:
                meter.time(runner.processor.name, runner.run_once)
    while any([meter.time(runner.processor.name, runner.run_once) for runner in runners]):  # noqa: C419 — each has a turn
        pass
    sealed = embedded.log.bounds("trajectories")[1]
    decided = embedded.log.bounds("buffer-events")[1]
    assert sealed
    assert decided
    assert b"RolloutAdmitted" in (embedded.log.read("buffer-events", 0, 0)[0].value or b"")
    embedded.close()
    return meter


def main(events: int = EVENTS) -> dict[str, float]:
    """Print the table; the figures by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = neighbour("assembly_events").write(folder / "events.ndjson", events)
        megabytes = (folder / "events.ndjson").stat().st_size / 1e6
        meter = run(folder / "events.ndjson", folder)
        on_disk = (folder / "log.db").stat().st_size / 1e6
    wall, cpu = sum(meter.wall.values()), sum(meter.cpu.values())
    print(f"embedded path: {count:,} events, {megabytes:.0f} MB in, {on_disk:.0f} MB of log")
    print(f"{'part':10} {'wall s':>8} {'CPU s':>8} {'µs CPU/event':>13} {'share of CPU':>13}")
    for part, seconds in meter.cpu.items():
        print(f"{part:10} {meter.wall[part]:8.2f} {seconds:8.2f} {seconds / count * 1e6:13.2f} {seconds / cpu:13.0%}")
    print(f"{count / wall:,.0f} events/s wall, {count / cpu:,.0f} events/s of CPU; target {TARGET:,}")
    return {"events_per_s": count / wall, "events_per_cpu_s": count / cpu, "target": TARGET}


def profile(events: int = EVENTS) -> None:
    """Where the time goes, by function."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        neighbour("assembly_events").write(folder / "events.ndjson", events)
        cProfile.runctx(
            "run(file, folder)", {"run": run, "file": folder / "events.ndjson", "folder": folder}, {}, sort="tottime"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--profile"]:
        profile()
    else:
        figures = main(*map(int, sys.argv[1:2]))
        sys.exit(int(figures["events_per_cpu_s"] < TARGET))
