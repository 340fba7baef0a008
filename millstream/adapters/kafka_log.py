"""The `Log` port on Apache Kafka (3.1 or later): topics of the cluster under one namespace.

An append is one record batch while it fits ``[kafka] max_batch_bytes``: all of it or nothing. A larger one is
several batches in order; killed between two, a process leaves the first ones. What an append says is durable
(acks=all) and was written once (the producer is idempotent); after `Unavailable` nobody knows whether it was
written, and readers know again what comes twice by its ids.

A record's time is what the broker stamped it with (LogAppendTime); should the broker's clock go back, so does
the stamp, and the folds of the stages make it monotone: what they get depends on the record alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafka import KafkaProducer
from kafka.errors import (
    KafkaError,
    NoError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.record.memory_records import MemoryRecords

from millstream.adapters.kafka_client import KafkaClient, forks, opened, told
from millstream.adapters.kafka_cluster import Cluster
from millstream.adapters.kafka_records import unpack
from millstream.errors import EventError, PositionLost, SettingsError, TooLarge, Unavailable
from millstream.partition import slot, unslot
from millstream.ports import Message, Record

T = TypeVar("T")
Packed = tuple[bytes, bytes | None, list[tuple[str, bytes]]]
"""Key, value and headers as the library takes them."""

LATEST, EARLIEST = -1, -2
MOST_FETCHED = 32 << 20
BATCH_OVERHEAD, RECORD_OVERHEAD = 61, 64
LONG_POLL_S, PAUSE_S = 0.5, 0.05
BY_ID = 13
"""The version of Fetch since which a topic is named by its id."""


class Place(NamedTuple):
    """A topic as the cluster knows it: its id and the leading broker of each partition."""

    id: UUID
    leaders: tuple[int, ...]


class KafkaLog:
    """Reads and appends; topics are made by `millstream.adapters.kafka_topics`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = KafkaClient(cluster)
        self._waiter = KafkaClient(cluster)  # a broker answers one connection in turn, and waiting takes its time
        self._places: dict[str, Place] = {}
        self._producer: KafkaProducer | None = None
        self._appending = threading.Lock()
        self._ahead_ms = 0
        forks(self)

    def forked(self) -> None:
        """In the child of a fork: a producer of its own."""
        self._producer, self._appending = None, threading.Lock()

    def close(self) -> None:
        """Leave the cluster."""
        with self._appending:
            self._drop_producer()
        self.client.close()
        self._waiter.close()

    # what topics there are

    def topics(self) -> list[str]:
        """The topics of this namespace."""
        names = self.client.patiently(lambda: self.client.admin().list_topics())
        return sorted(own for name in names if (own := self.cluster.own(name)) is not None)

    def topic_id(self, topic: str) -> str:
        """Kafka's own id of the topic, asked for anew each time."""
        return str(self._place(topic, fresh=True).id)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(self._place(topic).leaders)

    def _place(self, topic: str, *, fresh: bool = False) -> Place:
        if fresh or topic not in self._places:
            self._places[topic] = self.client.patiently(lambda: self._describe(topic))
        return self._places[topic]

    def _describe(self, topic: str) -> Place:
        named = MetadataRequest.MetadataRequestTopic(name=self.cluster.topic(topic))
        found = self.client.ask(MetadataRequest(topics=[named], allow_auto_topic_creation=False)).topics[0]
        error = for_code(found.error_code)
        if error is UnknownTopicOrPartitionError:
            known = ", ".join(self.topics()) or "none"
            raise SettingsError(
                f"{self.cluster.url}: no topic {self.cluster.topic(topic)!r}; known: {known}; "
                "`millstream topics create` makes those that are missing"
            )
        if error is not NoError:
            raise error(self.cluster.topic(topic))
        leaders = {part.partition_index: part.leader_id for part in found.partitions}
        return Place(found.topic_id, tuple(leaders[index] for index in sorted(leaders)))

    def _leader(self, topic: str, partition: int) -> int:
        leaders = self._place(topic).leaders
        if not 0 <= partition < len(leaders):
            raise SettingsError(
                f"{self.cluster.url}: {topic!r} has partitions 0 to {len(leaders) - 1}, not {partition}"
            )
        return leaders[partition]

    # appending

    def append(self, topic: str, messages: Sequence[Message], partition: int = 0) -> int:
        """Append in order; the offset of the first. See the module for what is one step."""
        if not messages:
            return self.bounds(topic, partition)[1]
        return self.append_all({(topic, partition): messages})[topic, partition]

    def append_all(self, appends: Mapping[tuple[str, int], Sequence[Message]]) -> dict[tuple[str, int], int]:
        """Several appends in one round trip; the first offset of each. Each is one step, not all together."""
        for topic, partition in appends:
            self._leader(topic, partition)
        packed = {place: [self._packed(place[0], m) for m in messages] for place, messages in appends.items()}
        with self._appending:
            try:
                return self._send(packed)
            except KafkaError as error:
                self._places.clear()
                self._drop_producer()
                raise told(error, self.cluster) from None

    def _packed(self, topic: str, message: Message) -> Packed:
        try:
            key = message.key.encode()
            headers = [(name, value.encode()) for name, value in message.headers.items()]
            size = len(key) + len(message.value or b"") + sum(len(n.encode()) + len(v) for n, v in headers)
        except UnicodeEncodeError as error:
            raise EventError(f"{topic}: a key or header is no UTF-8 text ({error}); clean it first") from None
        most = self.cluster.settings.max_batch_bytes - BATCH_OVERHEAD - RECORD_OVERHEAD * (1 + len(headers))
        if size > most:
            raise TooLarge(f"{topic}: a record of {size} bytes; at most {most} fit ([kafka] max_batch_bytes)")
        return key, message.value, headers

    def _send(self, packed: Mapping[tuple[str, int], Sequence[Packed]]) -> dict[tuple[str, int], int]:
        producer = self._producer = self._producer or self._new_producer()
        sent = {
            (topic, partition): [
                producer.send(self.cluster.topic(topic), value, key, headers, partition)
                for key, value, headers in messages
            ]
            for (topic, partition), messages in packed.items()
        }
        limit = self.cluster.settings.timeout_s
        producer.flush(limit)
        answers = {place: [future.get(limit) for future in futures] for place, futures in sent.items()}
        last = next(reversed(answers.values()))[-1]
        self._ahead_ms = last.timestamp - _clock_ms()
        return {place: found[0].offset for place, found in answers.items()}

    def _new_producer(self) -> KafkaProducer:
        limit_ms = int(self.cluster.settings.timeout_s * 1000)
        most = self.cluster.settings.max_batch_bytes
        options = {
            **self.cluster.kafka_python(),
            "acks": "all",
            "enable_idempotence": True,
            "batch_size": most,
            "max_request_size": most + (1 << 20),
            # An append is handed over whole and then flushed: nothing of it leaves before, so it is one batch.
            "linger_ms": limit_ms // 4,
            "delivery_timeout_ms": limit_ms,
            "max_block_ms": limit_ms,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }
        return opened(KafkaProducer, options)

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):  # it has nobody to tell: what it did not send was told by `append`
                producer.close(timeout=0)

    # reading

    def read(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> Sequence[Record]:
        """Records from ``offset`` on until ``max_bytes`` are reached."""

        def fetch() -> Sequence[Record]:
            node = self._leader(topic, partition)
            answer = self.client.ask(self._fetch({(topic, partition): offset}, max_bytes, 0), node)
            return self._records(answer, topic, partition, offset, max_bytes)

        return self._on_place(topic, fetch)

    def _fetch(self, positions: Mapping[tuple[str, int], int], max_bytes: int, wait_ms: int) -> FetchRequest:
        most = max(1, min(max_bytes, MOST_FETCHED))
        topics: dict[UUID, list[Any]] = {}
        for (topic, partition), offset in positions.items():
            wanted = FetchRequest.FetchTopic.FetchPartition(
                partition=partition, fetch_offset=offset, last_fetched_epoch=-1, partition_max_bytes=most
            )
            topics.setdefault(self._place(topic).id, []).append(wanted)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=most,
            topics=[FetchRequest.FetchTopic(topic_id=id_, partitions=parts) for id_, parts in topics.items()],
            min_version=BY_ID,
        )

    def _records(self, answer: Any, topic: str, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        found = answer.responses[0].partitions[0] if answer.responses else answer
        error = for_code(found.error_code)
        if error is OffsetOutOfRangeError:
            raise self._outside(topic, partition, offset)
        if error is not NoError:
            raise error(slot(topic, partition))
        return unpack(MemoryRecords(found.records or b""), topic, partition, offset, max_bytes)

    def _outside(self, topic: str, partition: int, offset: int) -> PositionLost:
        first, after = self.bounds(topic, partition)
        return PositionLost(
            f"{self.cluster.url}: offset {offset} of {topic}:{partition} lies outside the topic ({first} to {after}); "
            "restore the topic, or go on without the lost records by --accept-loss",
            resume=first if offset < first else None,
        )

    def _on_place(self, topic: str, act: Callable[[], T]) -> T:
        """Do it where the topic is; look again when it has moved. Raises `PositionLost` when it is another."""

        def attempt() -> T:
            known = self._place(topic)
            try:
                return act()
            except (UnknownTopicIdError, UnknownTopicOrPartitionError):
                self._still(topic, known)
                raise
            except KafkaError:
                self._places.pop(topic, None)
                raise

        return self.client.patiently(attempt)

    def _still(self, topic: str, known: Place) -> None:
        try:
            now = self._describe(topic)
        except SettingsError as gone:
            raise PositionLost(f"{gone}; it was there when this process began") from None
        if now.id != known.id:
            raise PositionLost(
                f"{self.cluster.url}: topic {topic!r} was deleted and made again (its id was {known.id}, is {now.id}); "
                "its positions are void: restore it, or go on without its lost records by --accept-loss"
            )
        self._places[topic] = now

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(first offset kept, next offset to be written)."""

        def ask() -> tuple[int, int]:
            return self._edge(topic, partition, EARLIEST), self._edge(topic, partition, LATEST)

        return self._on_place(topic, ask)

    def _edge(self, topic: str, partition: int, edge: int) -> int:
        kind = ListOffsetsRequest.ListOffsetsTopic
        wanted = kind.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=edge)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[kind(name=self.cluster.topic(topic), partitions=[wanted])],
            min_version=1,
        )
        found = self.client.ask(request, self._leader(topic, partition)).topics[0].partitions[0]
        error = for_code(found.error_code)
        if error is not NoError:
            raise error(slot(topic, partition))
        return int(found.offset)

    def now_ms(self) -> int:
        """This machine's clock, corrected by the last append's stamp: never ahead of the broker's then."""
        return _clock_ms() + self._ahead_ms

    def wait(self, positions: Mapping[str, int], timeout_s: float) -> bool:
        """Wait for a record at or past a position: the brokers hold the answer back until there is one."""
        deadline = time.monotonic() + timeout_s
        places = {unslot(name): offset for name, offset in positions.items()}
        while True:
            left = deadline - time.monotonic()
            try:
                if self._arrived(places, min(max(left, 0), LONG_POLL_S)):
                    return True
            except (KafkaError, OSError, RuntimeError, Unavailable):
                # Whoever reads next is told why; the loop that waits here must not end for a broker's restart.
                self._places.clear()
                time.sleep(min(max(left, 0), PAUSE_S))
            if left <= 0:
                return False

    def _arrived(self, places: Mapping[tuple[str, int], int], timeout_s: float) -> bool:
        """Whether something is there, or a reader must look because a place is not what it was."""
        by_leader: dict[int, dict[tuple[str, int], int]] = {}
        for (topic, partition), offset in places.items():
            by_leader.setdefault(self._leader(topic, partition), {})[topic, partition] = offset
        # Several brokers are asked in turn, so none for long: the news of the last must not wait for the others.
        each_s = timeout_s if len(by_leader) == 1 else min(timeout_s, 0.02)
        for node, wanted in by_leader.items():
            answer = self._waiter.ask(self._fetch(wanted, 1, int(each_s * 1000)), node, each_s)
            if answer.error_code or any(_news(part) for told in answer.responses for part in told.partitions):
                return True
        return False


def _news(part: Any) -> bool:
    return bool(part.error_code or part.records)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
