"""Workers as people run them: processes of their own on a real Kafka and a real Redis."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from integration.workers.flow import POISON_EVERY, RUNS, SETTINGS, events, outcome, send
from kafka import KafkaAdminClient
from redis import Redis

from millstream.bootstrap.runtime import Runtime
from millstream.ledger import read_all
from millstream.loading import load

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
PATIENCE_S = 60


def until(condition, told="it did not come about", patience_s=PATIENCE_S):
    """Ask until it is so, and return what it said."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, told() if callable(told) else told
        threading.Event().wait(0.05)
    return answer


class Works:
    """A folder with settings for a cluster, and the workers that run in it."""

    def __init__(self, folder, kafka, redis, prefix, *, partitions=4, more="", topics=True, url="", kafka_more=""):
        self.folder, self.kafka, self.redis, self.prefix = folder, kafka, redis, prefix
        self.processes, self.others = [], []
        folder.mkdir(exist_ok=True)
        self.settings_file = folder / "millstream.toml"
        self.settings_file.write_text(
            f'[storage]\nlog = "{url or kafka.url}"\nstate = "{redis.url}"\nbuffer = "{redis.url}"\n'
            f'[kafka]\nnamespace = "{prefix}"\npartitions = {partitions}\nreplication = 1\nmin_insync = 1\n{kafka_more}'
            f"[workers]\nsession_s = 6\n{more}"
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.env = {**clean, "OMP_NUM_THREADS": "1"}
        self.runtime = Runtime(load(self.settings_file, environ={}))
        if topics:
            self.make_topics()

    def make_topics(self):
        """Make those that are missing."""
        with self.runtime.topics() as found:
            found.create(apply=True)

    def fresh_log(self):
        """The log as a new process sees it."""
        made = Runtime(load(self.settings_file, environ={}))
        self.others.append(made)
        return made.log

    def forget_groups(self):
        """Delete the consumer groups, as an operator might."""
        admin = KafkaAdminClient(bootstrap_servers=[self.kafka.address])
        names = [f"{self.prefix}.millstream-{stage}" for stage in ("assemble", "grade", "buffer")]
        try:
            gone = {"OK", "GroupIdNotFoundError"}  # not while a member is alive
            until(lambda: gone.issuperset(admin.delete_groups(names).values()), "a group is still alive")
        finally:
            admin.close()

    def spoil_state(self, stage):
        """Write garbage where the snapshots of a stage are."""
        with Redis.from_url(self.redis.url) as client:
            for partition in range(self.log.partitions("telemetry")):
                client.set(f"millstream:{{{self.prefix}}}:state:{stage}:{partition}:snapshot", b"garbage")

    @property
    def log(self):
        return self.runtime.log

    @property
    def store(self):
        return self.runtime.store

    def start(self, stage, *words, env=None):
        """A worker, begun; its `told` is what it says."""
        return self.start_command("worker", stage, *words, env=env)

    def start_command(self, *words, env=None):
        """A command that runs on, begun."""
        told = self.folder / f"{words[-1]}-{len(self.processes)}.txt"
        with told.open("w") as errors:
            process = subprocess.Popen(
                [*COMMAND, *words],
                cwd=self.folder,
                env={**self.env, **(env or {})},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        process.told = told.read_text
        self.processes.append(process)
        return process

    def run(self, *words):
        """One command, to its end."""
        return subprocess.run(
            [*COMMAND, *words], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )

    def end(self, *processes, by=signal.SIGTERM):
        """End workers; their exit codes."""
        for process in processes:
            process.send_signal(by)
        return [process.wait(PATIENCE_S) for process in processes]

    def records(self, topic):
        """What readers take of a topic."""
        return [r for p in range(self.log.partitions(topic)) for r in read_all(self.log, topic, p)]

    def caught_up(self, stage, topic):
        """Whether a stage stands at the end of all partitions of a topic."""
        told = {p.partition: p.offset for p in self.store.positions() if (p.stage, p.topic) == (stage, topic)}
        return all(self.log.bounds(topic, p)[1] == told.get(p, 0) for p in range(self.log.partitions(topic)))

    def settled(self):
        """Whether assemble, grade and buffer stand at the end of what they read, and all outputs have arrived."""
        pairs = ("assemble", "telemetry"), ("grade", "trajectories"), ("buffer", "grades")
        return all(not self.store.waiting() and self.caught_up(*pair) for pair in pairs)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        with contextlib.suppress(Exception), self.runtime.topics() as topics:
            topics.delete(*self.log.topics())
        for runtime in (self.runtime, *self.others):
            runtime.close()


@pytest.fixture
def works(tmp_path: Path, kafka_node, redis_server, prefix):
    """Makes installations on the shared servers, each in a namespace of its own."""
    made = []

    def make(name="a", redis=redis_server, kafka=kafka_node, **options):
        made.append(Works(tmp_path / name, kafka, redis, f"{prefix}-{name}", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def wait():
    """`until`, for tests."""
    return until


@pytest.fixture(scope="session")
def stream():
    """The events, the same for all."""
    return events(RUNS)


@pytest.fixture(scope="session")
def embedded_outcome(tmp_path_factory):
    """What the embedded log makes of what a function sends to it."""

    def made(fill):
        folder = tmp_path_factory.mktemp("embedded")
        (folder / "millstream.toml").write_text(SETTINGS)
        with Runtime(load(folder / "millstream.toml", environ={})) as runtime:
            fill(runtime.log)
            runtime.pipeline().run(threading.Event(), until_idle=True)
            return outcome(runtime.log)

    return made


@pytest.fixture(scope="session")
def expected(stream, embedded_outcome):
    """What the embedded log makes of the stream."""
    return embedded_outcome(lambda log: send(log, stream, poison_every=POISON_EVERY))
