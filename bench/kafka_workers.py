"""The same stages on Kafka: workers in Faust beside an empty Faust agent and beside quixstreams, in one run.

PYTHONPATH=tests python bench/kafka_workers.py [EVENTS]

One Kafka node and one Redis server of its own, in a temp folder. Events are those of `bench/log.py`. CPU is
that of the workers alone (broker, Redis and producer apart), from the moment they idle on an empty topic until
everything is published; so the rate does not depend on who else uses the machine. A missing target is exit 1.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import msgspec
from services import KafkaNode, RedisServer, ServiceFailed, missing_for_kafka, missing_for_redis

from millstream.bootstrap.runtime import Runtime
from millstream.ledger import read_all
from millstream.loading import load
from millstream.ndjson import filled
from millstream.partition import partition_of
from millstream.ports import Message

HERE = Path(__file__).resolve().parent
EVENTS, RECORD, PARTITIONS = 100_000, 50, 4
TARGET, SINGLE_SHARE, LATENCY_S = 20_000, 0.6, 1.0
PATIENCE_S = 600
BEGUN_S, IDLE_S = 0.4, 0.1
"""CPU seconds: more than this for having begun, less than that in a second for idling."""
QUIX = Path(sys.prefix) / "services" / "quix"
QUIX_VERSION = "3.28.1"
TICKS = os.sysconf("SC_CLK_TCK")


def neighbour(name: str) -> ModuleType:
    """Another file of this folder (which is no package)."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def until(condition: Callable[[], object], what: str) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


class Child:
    """A process whose CPU is counted from `settle` on."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self.told = folder / f"{name}.told"
        with self.told.open("wb") as told:
            self.process = subprocess.Popen(command, cwd=folder, stdout=told, stderr=told, start_new_session=True)
        self.began = 0.0

    def settle(self) -> None:
        """Wait until it has begun and does little more than wait."""
        seen = now = 0.0
        while now < BEGUN_S or now - seen > IDLE_S:
            seen = now
            time.sleep(1.0)
            now = self.cpu(alive=True)
        self.began = now

    def cpu(self, *, alive: bool = False) -> float:
        if alive and self.process.poll() is not None:
            raise RuntimeError(self.told.read_text(encoding="utf-8", errors="replace")[-2000:])
        return cpu_s(self.process.pid) - self.began

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Mill:
    """An installation in a namespace of its own."""

    def __init__(self, folder: Path, node: KafkaNode, server: RedisServer, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.address, self.name = node.address, name
        self.file = self.folder / "millstream.toml"
        self.file.write_text(
            f'[storage]\nlog = "{node.url}"\nstate = "{server.url}"\nbuffer = "{server.url}"\n'
            f'[kafka]\nnamespace = "{name}"\npartitions = {PARTITIONS}\nreplication = 1\nmin_insync = 1\n'
            '[graders]\nenabled = ["numeric"]\n[reward]\nformula = "numeric"\n'
            "[assembly]\nretain_s = 1e9\n",  # the runs of the file were born long ago
            encoding="utf-8",
        )
        self.runtime = Runtime(load(self.file, environ={}))
        with self.runtime.topics() as topics:
            topics.create()
        self.log, self.store = self.runtime.log, self.runtime.store

    @contextmanager
    def workers(self, *stages: str) -> Iterator[list[Child]]:
        code = "from millstream.cli import main; main()"
        made = [
            Child([sys.executable, "-c", code, "worker", stage], self.folder, f"{stage}{n}")
            for n, stage in enumerate(stages)
        ]
        try:
            for child in made:
                child.settle()
            yield made
        finally:
            for child in made:
                child.end()

    def done(self) -> bool:
        """Whether assemble and grade stand at the end of what they read, and all outputs have arrived."""
        places = {(p.stage, p.topic, p.partition): p.offset for p in self.store.positions()}
        pairs = ("assemble", "telemetry"), ("grade", "trajectories")
        return not self.store.waiting() and all(
            self.log.bounds(topic, p)[1] == places.get((stage, topic, p), 0)
            for stage, topic in pairs
            for p in range(PARTITIONS)
        )

    def send(self, records: list[tuple[int, Message]], batch: int = 20) -> None:
        """All of it, as fast as the broker takes it."""
        for start in range(0, len(records), batch):
            places: dict[tuple[str, int], list[Message]] = {}
            for partition, message in records[start : start + batch]:
                places.setdefault(("telemetry", partition), []).append(message)
            self.log.append_all(places)  # type: ignore[attr-defined] — the Kafka log

    def work_off(self, records: list[tuple[int, Message]], *stages: str) -> tuple[float, dict[str, float]]:
        """Wall seconds from the first record on until all is published, and CPU seconds by worker."""
        with self.workers(*stages) as children:
            began = time.monotonic()
            self.send(records)
            until(lambda: all(c.cpu(alive=True) for c in children) and self.done(), f"{self.name}: not worked off")
            wall = time.monotonic() - began
            return wall, {f"{s} {n}": c.cpu(alive=True) for n, (s, c) in enumerate(zip(stages, children, strict=True))}


def records_of(file: Path, a_record: int) -> list[tuple[int, Message]]:
    """(partition, message) of a file's events: each record holds events of one partition, as the SDK sends them."""
    log_bench = neighbour("log")
    lines = [line for group in log_bench.appends(file) for message in group for line in filled(message.value)]
    waiting: dict[int, list[bytes]] = {}
    found = []
    for line in lines:
        name = msgspec.json.decode(line, type=Named).trajectory_id
        partition = partition_of(name, PARTITIONS)
        held = waiting.setdefault(partition, [])
        held.append(line)
        if len(held) == a_record:
            found.append((partition, message_of(name, held)))
            waiting[partition] = []
    return found + [(p, message_of("rest", held)) for p, held in waiting.items() if held]


class Named(msgspec.Struct):
    """Whose event a line is, which one, and of an end its number."""

    trajectory_id: str
    id: str
    kind: str
    seq: int = -1


def whole(records: list[tuple[int, Message]]) -> int:
    """How many runs have all their events there."""
    seen: dict[str, set[str]] = {}
    ends: dict[str, int] = {}
    for _, message in records:
        for line in filled(message.value):
            event = msgspec.json.decode(line, type=Named)
            seen.setdefault(event.trajectory_id, set()).add(event.id)
            if event.kind == "TrajectoryEnded":
                ends[event.trajectory_id] = event.seq
    return sum(len(seen[name]) == last + 1 for name, last in ends.items())


def message_of(key: str, lines: list[bytes]) -> Message:
    return Message(key, b"\n".join(lines), {"dialect": "millstream"})


def empty_agent(mill: Mill, records: list[tuple[int, Message]]) -> float:
    """CPU seconds of a Faust agent that only decodes the records, as soon as all of them have come."""
    command = [sys.executable, str(HERE / "kafka_empty.py"), mill.address, f"{mill.name}.telemetry", str(len(records))]
    child = Child(command, mill.folder, "empty")
    try:
        child.settle()
        mill.send(records)
        until(lambda: b"all" in child.told.read_bytes() or child.process.poll() is not None, "the empty agent")
        return child.cpu(alive=True)
    finally:
        child.end()


def quix(mill: Mill, records: list[tuple[int, Message]], runs: int) -> float | None:
    """CPU seconds of quixstreams on the same events, one a record; None where it can't be installed."""
    python = QUIX / "bin" / "python"
    if not python.exists():
        print("making an environment for quixstreams (its dependencies can't be installed beside ours)")
        subprocess.run([sys.executable, "-m", "venv", str(QUIX)], check=True)
        wanted = [f"quixstreams=={QUIX_VERSION}", "msgspec"]
        if subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=False).returncode:
            return None
    script = str(HERE / "kafka_quix.py")
    command = [str(python), script, mill.address, f"{mill.name}.telemetry", f"{mill.name}.quix"]
    child = Child(command, mill.folder, "quix")
    try:
        child.settle()
        mill.send(records)
        admin = mill.log.client.admin()  # type: ignore[attr-defined]
        topic = f"{mill.name}.quix"

        def written() -> bool:
            from kafka import TopicPartition
            from kafka.protocol.consumer import OffsetSpec

            child.cpu(alive=True)
            if topic not in admin.list_topics():
                return False
            (found,) = admin.list_partition_offsets({TopicPartition(topic, 0): OffsetSpec.LATEST}).values()
            return bool(found.offset >= runs)

        until(written, "quixstreams")
        return child.cpu(alive=True)
    finally:
        child.end()


def latencies(mill: Mill, records: list[tuple[int, Message]], events_per_s: float) -> list[float]:
    """Seconds from the last event of a run to its grading, by the broker's clock, at a steady load."""
    a_record = records[0][1].value.count(b"\n") + 1  # type: ignore[union-attr]
    with mill.workers("assemble", "grade"):
        began = time.monotonic()
        for number, record in enumerate(records):
            time.sleep(max(0.0, began + number * a_record / events_per_s - time.monotonic()))
            mill.send([record])
        until(mill.done, "latency: not worked off")
    ended: dict[str, int] = {}
    for partition in range(PARTITIONS):
        for record in read_all(mill.log, "telemetry", partition):
            for line in filled(record.value):
                name = msgspec.json.decode(line, type=Named).trajectory_id
                ended[name] = max(record.log_ms, ended.get(name, 0))
    graded: dict[str, int] = {}
    for partition in range(PARTITIONS):
        for record in read_all(mill.log, "grades", partition):
            graded[record.key] = max(record.log_ms, graded.get(record.key, 0))
    return sorted((graded[name] - at) / 1000 for name, at in ended.items() if name in graded)


def main(events: int = EVENTS) -> int:
    """Print the table; 1 when a target was missed."""
    if missing := "; ".join(filter(None, (missing_for_kafka(), missing_for_redis()))):
        print(f"bench-kafka: {missing}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing goes on running
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node, server = KafkaNode(folder / "kafka", heap="1g"), RedisServer(folder / "redis")
        server.start()
        try:
            node.start()
            return measure(folder, node, server, events)
        except ServiceFailed as error:
            print(error)
            return 1
        finally:
            node.kill()
            server.kill()


def measure(folder: Path, node: KafkaNode, server: RedisServer, events: int) -> int:
    count = neighbour("assembly_events").write(folder / "events.ndjson", events)
    batched, single = records_of(folder / "events.ndjson", RECORD), records_of(folder / "events.ndjson", 1)
    single = single[: len(single) // 5]
    print(f"{count:,} events, {RECORD} a record: {len(batched):,} records; {len(single):,} of one event each\n")

    def mill(name: str) -> closing[Runtime]:
        made = Mill(folder, node, server, name)
        mills.append(made)
        return closing(made.runtime)

    mills: list[Mill] = []
    with mill("one"):
        wall, cpu = mills[-1].work_off(batched, "assemble", "grade")
    rate = count / sum(cpu.values())
    told(f"assemble + grade, {RECORD} a record", count, sum(cpu.values()), wall, cpu)
    with mill("empty"):
        told(f"empty agent, {RECORD} a record", count, empty_agent(mills[-1], batched))
    with mill("two"):
        wall_2, cpu_2 = mills[-1].work_off(batched, "assemble", "grade", "assemble", "grade")
    told("two workers of each", count, sum(cpu_2.values()), wall_2, cpu_2)
    print(f"{'':34} 1 → 2 workers: {wall / wall_2:.2f} times the throughput, on {os.cpu_count()} cores\n")
    with mill("single"):
        _, cpu_single = mills[-1].work_off(single, "assemble", "grade")
    assembled = next(seconds for name, seconds in cpu_single.items() if name.startswith("assemble"))
    told("assemble, one event a record", len(single), assembled)
    with mill("bare"):
        bare = empty_agent(mills[-1], single)
    told("empty agent, one event a record", len(single), bare)
    told("assemble + grade, one event a record", len(single), sum(cpu_single.values()))
    with mill("quix"):
        seconds = quix(mills[-1], single, whole(single))
    if seconds is None:
        print("quixstreams could not be installed")
    else:
        told("quixstreams, one event a record", len(single), seconds)
    with mill("late"):
        found = latencies(mills[-1], batched[: len(batched) // 2], count / wall / 2)
    p50, p99 = found[len(found) // 2], found[int(len(found) * 0.99)]
    pace = f"{count / wall / 2:,.0f} events/s"
    print(f"\nlast event → grade at {pace}: p50 {p50:.3f} s, p99 {p99:.3f} s, {len(found)} runs")
    print(f"targets: {TARGET:,} events/s a core; {SINGLE_SHARE} of an empty agent; p99 under {LATENCY_S} s")
    return int(rate < TARGET or bare / assembled < SINGLE_SHARE or p99 > LATENCY_S)


def told(name: str, events: int, cpu: float, wall: float = 0.0, parts: dict[str, float] | None = None) -> None:
    each = f"{cpu / events * 1e6:7.1f} µs CPU an event, {events / cpu:9,.0f} events/s a core"
    print(f"{name:38}{each}" + (f", {wall:.1f} s wall" if wall else ""), flush=True)
    for part, seconds in (parts or {}).items():
        print(f"{'':38}{seconds / events * 1e6:7.1f} {part}")


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
