"""The adapters that the suites of the log and the store run on: another one is one more factory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import Embedded, open_sqlite
from millstream.ports import Log, Store
from millstream.topics import ALL, TELEMETRY


class Backend(Protocol):
    """What the suites need to know of an adapter."""

    clock: ManualClock | None
    """Set when log time can be moved by hand."""
    opener: str
    """Python that makes ``log, store`` in another process."""

    def open(self) -> tuple[Log, Store]:
        """Another handle on the same data, as another process would have."""

    def create(self, topic: str, partitions: int) -> None: ...

    def delete(self, topic: str) -> None: ...

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Drop records below an offset, as far as the adapter drops in whole."""

    def close(self) -> None: ...


class SqliteBackend:
    """The embedded file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self.clock = ManualClock()
        self.opened: list[Embedded] = []
        self.opener = (
            "from pathlib import Path\n"
            "from millstream.adapters.sqlite import open_sqlite\n"
            f"log, store = open_sqlite(Path({str(self.path)!r}))\n"
        )
        self.first = self._open()

    def _open(self) -> Embedded:
        self.opened.append(open_sqlite(self.path, clock=self.clock))
        return self.opened[-1]

    def open(self) -> tuple[Log, Store]:
        return self._open()

    def create(self, topic: str, partitions: int) -> None:
        self.first.log.create(topic, partitions)

    def delete(self, topic: str) -> None:
        self.first.log.delete(topic)

    def trim(self, topic: str, partition: int, before: int) -> None:
        self.first.log.trim(topic, partition, before)

    def close(self) -> None:
        for embedded in self.opened:
            embedded.close()


@pytest.fixture
def sqlite_backend(tmp_path: Path) -> Iterator[SqliteBackend]:
    """The embedded file by itself, for what stands beside it."""
    made = SqliteBackend(tmp_path)
    yield made
    made.close()


class KafkaBackend:
    """A namespace of a Kafka node. It has no store of its own."""

    clock = None

    def __init__(self, url: str, namespace: str) -> None:
        # imported here: the suites of the embedded file need no Kafka library
        from millstream.adapters.kafka_cluster import Cluster, addresses_of
        from millstream.adapters.kafka_log import KafkaLog
        from millstream.adapters.kafka_topics import KafkaTopics
        from millstream.settings import KafkaSettings

        kafka = KafkaSettings(namespace=namespace, replication=1, min_insync=1, partitions=1)
        self.cluster = Cluster(addresses=addresses_of(url), settings=kafka)
        self.log_type = KafkaLog
        self.topics = KafkaTopics(self.cluster)
        self.topics.create()
        self.opened: list[KafkaLog] = []
        self.opener = (
            "from millstream.adapters.kafka_cluster import Cluster\n"
            "from millstream.adapters.kafka_log import KafkaLog\n"
            "from millstream.settings import KafkaSettings\n"
            f"log, store = KafkaLog({self.cluster!r}), None\n"
        )

    def open(self) -> tuple[Log, Store]:
        self.opened.append(self.log_type(self.cluster))
        return self.opened[-1], None

    def create(self, topic: str, partitions: int) -> None:
        name = self.cluster.topic(topic)
        admin = self.topics.client.admin()
        if name not in admin.list_topics():
            configs = self.topics.wanted(TELEMETRY)[1]
            asked = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
            admin.create_topics({name: asked}, wait_for_metadata=True)

    def delete(self, topic: str) -> None:
        self.topics.delete(topic)

    def trim(self, topic: str, partition: int, before: int) -> None:
        from kafka import TopicPartition

        place = TopicPartition(self.cluster.topic(topic), partition)
        self.topics.client.admin().delete_records({place: before})

    def close(self) -> None:
        for log in self.opened:
            log.close()
        self.topics.delete(*(topic.name for topic in ALL))
        self.topics.close()


FACTORIES: dict[str, Callable[[pytest.FixtureRequest, Path], Backend]] = {
    "sqlite": lambda _, folder: SqliteBackend(folder),
    "kafka": lambda request, _: KafkaBackend(
        request.getfixturevalue("kafka_node").url, request.getfixturevalue("prefix")
    ),
}


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.services)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """One adapter, empty."""
    made = FACTORIES[request.param](request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def log(backend: Backend) -> Log:
    """Its log."""
    return backend.open()[0]


@pytest.fixture
def store(backend: Backend) -> Store:
    """Its store."""
    return backend.open()[1]


@pytest.fixture
def spawn(backend: Backend) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Run code that begins with ``log, store`` open, in another process."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen([sys.executable, "-c", backend.opener + code], stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
