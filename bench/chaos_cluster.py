"""What chaos is done to: one Kafka node, one Redis, workers and a producer, each a process of its own.

Workers that end are started again, as a supervisor would (`restart: unless-stopped`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import chaos_path  # noqa: F401 — before `services`
from chaos_stream import save
from services import KafkaNode, RedisServer

from millstream.bootstrap import Runtime
from millstream.errors import Unavailable
from millstream.loading import load
from millstream.ports import Message

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
PRODUCER = Path(__file__).with_name("chaos_producer.py")
PARTITIONS = 4
SLOTS = ("assemble-0", "assemble-1", "grade-0", "grade-1", "buffer-0")
CAUGHT_UP = (("assemble", "telemetry"), ("grade", "trajectories"), ("buffer", "grades"))
RULES = """\
[graders]
enabled = ["correct", "format", "efficiency"]
[reward]
formula = "correct"
[assembly]
idle_s = 86400
gap_s = 86400
max_age_s = 864000
retain_s = 8640000
[buffer]
group_timeout_s = 864000
near_duplicate = 1.0
"""
"""Timers far off and rules without an order: what a run comes to must not depend on when things arrive."""


class Worker:
    """A place for a worker: the process that has it now."""

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.stage = slot.partition("-")[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.failpoint = ""
        self.faked = False
        """Whether its clock is wrong: libfaketime makes waits fail now and then, and the process with them."""
        self.wanted = True

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Cluster:
    """Everything of one run, in ``folder``."""

    def __init__(self, folder: Path, *, more: str = "", slots: tuple[str, ...] = SLOTS) -> None:
        self.folder = folder
        self.kafka, self.redis = KafkaNode(folder / "kafka"), RedisServer(folder / "redis")
        self.settings = folder / "millstream.toml"
        self.more = more
        self.workers = {slot: Worker(slot) for slot in slots}
        self.producer: subprocess.Popen[bytes] | None = None
        self.rate = 0.0
        self.ended: Counter[str] = Counter()
        """How processes ended, by stage and exit code, but for those that were killed on purpose."""
        self._told = 0.0
        self.died: Counter[str] = Counter()
        """Deaths at failpoints."""
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
        self._environment |= {"OMP_NUM_THREADS": "1", "MILLSTREAM_DEBUG": os.environ.get("MILLSTREAM_DEBUG", "")}

    def start(self) -> None:
        """Servers, topics, workers."""
        (self.folder / ".millstream").mkdir(exist_ok=True)
        self.redis.start()
        self.kafka.start()
        self.settings.write_text(
            f'[storage]\nlog = "{self.kafka.url}"\nstate = "{self.redis.url}"\nbuffer = "{self.redis.url}"\n'
            f"[kafka]\npartitions = {PARTITIONS}\nreplication = 1\nmin_insync = 1\n[workers]\nsession_s = 6\n"
            f"{RULES}{self.more}",
            encoding="utf-8",
        )
        self.runtime = Runtime(load(self.settings, environ={}))
        with self.runtime.topics() as topics:
            topics.create(apply=True)
        for worker in self.workers.values():
            self.run(worker)

    def run(
        self,
        worker: Worker,
        *,
        failpoint: str = "",
        environment: dict[str, str] | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        """Start a worker in its place, to die at a failpoint perhaps."""
        worker.failpoint, worker.wanted, worker.faked = failpoint, True, bool(environment)
        environment = (
            self._environment | (environment or {}) | ({"MILLSTREAM_FAILPOINT": failpoint} if failpoint else {})
        )
        with (self.folder / f"{worker.slot}.txt").open("ab") as told:
            worker.process = subprocess.Popen(
                [*COMMAND, "worker", worker.stage, "--instance", worker.slot, *words],
                cwd=self.folder, env=environment, stdout=told, stderr=told, start_new_session=True,
            )  # fmt: skip

    def produce(self, told: list[tuple[int, Message]], rate: float) -> None:
        """Begin to send a stream, so many events a second."""
        save(self.folder / "stream", told)
        self.rate = rate
        self.resume()

    def resume(self) -> None:
        """Start the producer, where it was."""
        words = [str(self.settings), str(self.folder / "stream"), str(self.folder / "progress"), str(self.rate)]
        with (self.folder / "producer.txt").open("ab") as told:
            self.producer = subprocess.Popen(
                [sys.executable, str(PRODUCER), *words], env=self._environment, stdout=told, stderr=told
            )

    def kill(self, worker: Worker, by: signal.Signals = signal.SIGKILL) -> None:
        """End the process in a place; `tend` fills it again."""
        if worker.alive:
            assert worker.process is not None
            worker.process.send_signal(by)
            worker.process.wait(60)
            worker.process = None
        self._note(worker)

    def tend(self) -> None:
        """Fill the places whose process has ended, and note how it ended."""
        for worker in self.workers.values():
            if worker.process is None or worker.alive:
                if worker.process is None and worker.wanted:
                    self.run(worker)
                continue
            self._note(worker)
            if worker.wanted:
                self.run(worker)
        if self.producer and self.producer.poll() not in (None, 0):
            self.ended[f"producer {self.producer.returncode}"] += 1
            self.resume()

    def _note(self, worker: Worker) -> None:
        """How a process ended by itself."""
        if worker.process is None:
            return
        code = worker.process.returncode
        if worker.failpoint and code == -signal.SIGKILL:
            self.died[worker.failpoint.partition(":")[0]] += 1
        else:
            self.ended[f"{worker.stage}{' with a wrong clock' if worker.faked else ''} {code}"] += 1
        worker.process = None

    def wait(self, seconds: float) -> None:
        """Let it work, tended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend()
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))

    def settle(self, patience_s: float = 120.0) -> float:
        """Wait until everything sent was worked off; how long that took. Raises `TimeoutError`."""
        began = time.monotonic()
        while time.monotonic() < began + patience_s:
            self.wait(0.3)
            sent = self.producer is None or self.producer.poll() == 0
            with contextlib.suppress(Unavailable):
                if sent and self.lag() == 0 and self.behind() == 0:
                    return time.monotonic() - began
                self.tell(f"{self.lags()} behind; the buffer {self.behind()}")
        raise TimeoutError(f"not caught up after {patience_s:.0f} s: {self.lag()} records behind")

    def tell(self, what: str) -> None:
        """Say it, at most every five seconds."""
        if time.monotonic() > self._told + 5:
            self._told = time.monotonic()
            print(f"           {what}", file=sys.stderr, flush=True)

    def lag(self) -> int:
        """Records that the stages have not read."""
        return sum(self.lags().values())

    def lags(self) -> dict[str, int]:
        """The same by stage and partition, those that are 0 left out."""
        held = {(p.stage, p.topic, p.partition): p.offset for p in self.runtime.store.positions()}
        log = self.runtime.log
        every = {
            f"{stage}:{partition}": log.bounds(topic, partition)[1] - held.get((stage, topic, partition), 0)
            for stage, topic in CAUGHT_UP
            for partition in range(log.partitions(topic))
        }
        return {place: count for place, count in every.items() if count}

    def behind(self) -> int:
        """Decisions that the buffer has not applied."""
        return self.runtime.log.bounds("buffer-events")[1] - self.runtime.buffer().applied()

    def memory(self) -> dict[str, int]:
        """Resident bytes of each worker (Linux)."""
        found = {}
        for slot, worker in self.workers.items():
            if worker.alive:
                assert worker.process is not None
                pages = Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1]
                found[slot] = int(pages) * os.sysconf("SC_PAGE_SIZE")
        return found

    def close(self) -> None:
        """End everything that was started here."""
        for worker in self.workers.values():
            worker.wanted = False
            self.kill(worker)
        if self.producer and self.producer.poll() is None:
            self.producer.kill()
            self.producer.wait()
        with contextlib.suppress(AttributeError):
            self.runtime.close()
        self.kafka.kill()
        self.redis.kill()

    def told(self, slot: str) -> str:
        """What the workers of a place said."""
        path = self.folder / f"{slot}.txt"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def redis_client(self) -> Any:
        """A connection to the Redis server, to set it up otherwise."""
        import redis

        return redis.Redis.from_url(self.redis.url)
