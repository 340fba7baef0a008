"""A real log on a temporary file, one that can be away or hang, and the events a log holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.capture.client import Client
from millstream.codec import decode_lines
from millstream.errors import Unavailable
from millstream.events import AnyEvent
from millstream.ports import Log, Message, Record
from millstream.settings import Capture


class FlakyLog:
    """A log before a log: away while ``away`` is set, hanging while ``hanging`` is."""

    def __init__(self, inner: Log) -> None:
        self.inner = inner
        self.away = False
        self.free = threading.Event()
        self.free.set()
        self.appends = self.knocks = 0

    def append(self, topic: str, messages: Sequence[Message], partition: int = 0) -> int:
        self.knocks += 1
        self.free.wait()
        if self.away:
            raise Unavailable("the log is away")
        self.appends += 1
        return self.inner.append(topic, messages, partition)

    def read(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> Sequence[Record]:
        return self.inner.read(topic, partition, offset, max_bytes)

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self.inner.bounds(topic, partition)

    def topic_id(self, topic: str) -> str:
        return self.inner.topic_id(topic)

    def partitions(self, topic: str) -> int:
        return self.inner.partitions(topic)

    def now_ms(self) -> int:
        return self.inner.now_ms()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FlakyLog]:
    embedded = open_sqlite(tmp_path / "log.db", partitions=4)
    yield FlakyLog(embedded.log)
    embedded.close()


@pytest.fixture
def told(log: FlakyLog) -> Callable[[], list[AnyEvent]]:
    """Every event of telemetry, in log order by partition."""

    def read() -> list[AnyEvent]:
        found: list[AnyEvent] = []
        for partition in range(log.partitions("telemetry")):
            offset = 0
            while records := log.read("telemetry", partition, offset):
                offset = records[-1].offset + 1
                for record in records:
                    found += [event for event, _ in decode_lines(record.value or b"")]
        return found

    return read


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def make(log: FlakyLog, spool: Path) -> Iterator[Callable[..., Client]]:
    """A client with settings given by name, closed at the end."""
    made: list[Client] = []

    def client(folder: Path | None = spool, **fields: object) -> Client:
        made.append(Client(log, Capture(**{"flush_ms": 5, **fields}), folder))
        return made[-1]

    yield client
    log.free.set()
    for one in made:
        one.close(1.0)
