"""The `Log` port on one SQLite file: any number of processes append and read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from millstream.adapters import sqlite_chunks as chunks
from millstream.adapters.clock import Clock
from millstream.adapters.sqlite_file import SqliteFile
from millstream.errors import PositionLost, SettingsError
from millstream.events import new_id
from millstream.partition import unslot
from millstream.ports import Message, Record
from millstream.topics import ALL


class SqliteLog:
    """Topics of partitions of chunks. A topic's id is minted when it is made; log time never goes
    back anywhere in the file, whatever the clock does.
    """

    def __init__(self, file: SqliteFile, clock: Clock, partitions: int = 1) -> None:
        self.file = file
        self.clock = clock
        missing = {topic.name for topic in ALL} - self.topics().keys()
        for topic in ALL:
            if topic.name in missing:
                self.create(topic.name, 1 if topic.single else partitions)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic; nothing happens when it is there (a partition count never changes)."""
        with self.file.write() as connection:
            row = (topic, new_id(), partitions)
            made = connection.execute("INSERT INTO topic VALUES(?, ?, ?) ON CONFLICT DO NOTHING", row).rowcount
            if made:
                heads = [(topic, partition) for partition in range(partitions)]
                connection.executemany("INSERT INTO head VALUES(?, ?, 0, 0, 0)", heads)

    def delete(self, topic: str) -> None:
        """Drop a topic and its records; made again it has another id."""
        with self.file.write() as connection:
            for table, column in (("topic", "name"), ("head", "topic"), ("chunk", "topic")):
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (topic,))  # noqa: S608 — constants

    def trim(self, topic: str, partition: int, before: int) -> int:
        """Drop whole chunks below an offset (retention); the first offset that is left."""
        with self.file.write() as connection:
            chunk = "topic = ? AND partition = ?"
            connection.execute(
                f"DELETE FROM chunk WHERE {chunk} AND base_offset + n <= ?",  # noqa: S608 — a constant
                (topic, partition, before),
            )
            found = connection.execute(
                f"SELECT min(base_offset) FROM chunk WHERE {chunk}",  # noqa: S608 — a constant
                (topic, partition),
            ).fetchone()[0]
            first = self._head(topic, partition)[1] if found is None else int(found)
            connection.execute(f"UPDATE head SET first = ? WHERE {chunk}", (first, topic, partition))  # noqa: S608
        return first

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions."""
        with self.file.errors():
            rows = self.file.connection().execute("SELECT name, partitions FROM topic ORDER BY name").fetchall()
        return dict(rows)

    def append(self, topic: str, messages: Sequence[Message], partition: int = 0) -> int:
        """Append in order, all or nothing; the offset of the first."""
        with self.file.write() as connection:
            after = self._head(topic, partition)[1]
            if not messages:
                return after
            return chunks.write(connection, topic, partition, messages, chunks.log_ms(connection, self.clock.now_ms()))

    def read(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> Sequence[Record]:
        """Whole chunks from ``offset`` on until ``max_bytes`` are reached."""
        with self.file.read() as connection:
            first, after = self._head(topic, partition)
            rows = chunks.select(connection, topic, partition, offset, max_bytes) if first <= offset < after else []
        if not first <= offset <= after:
            raise PositionLost(
                f"{self.file.path}: offset {offset} of {topic}:{partition} lies outside the topic "
                f"({first} to {after}); restore the file, or go on without the lost records by --accept-loss",
                resume=first if offset < first else None,
            )
        records: list[Record] = []
        try:
            for row in rows:
                records += chunks.unpack(row, offset + len(records))
        except PositionLost as lost:
            if not records:
                raise PositionLost(f"{self.file.path}: {lost}", self._resume(topic, partition, offset, after)) from None
        if not records and offset < after:
            raise PositionLost(f"{self.file.path}: {topic}:{partition} {chunks.missing(offset, after)}", resume=after)
        return records

    def _resume(self, topic: str, partition: int, offset: int, after: int) -> int:
        """The first chunk that begins after an unreadable offset."""
        with self.file.read() as connection:
            found = connection.execute(
                "SELECT min(base_offset) FROM chunk WHERE topic = ? AND partition = ? AND base_offset > ?",
                (topic, partition, offset),
            ).fetchone()[0]
        return after if found is None else int(found)

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(first offset kept, next offset to be written)."""
        with self.file.errors():
            return self._head(topic, partition)

    def topic_id(self, topic: str) -> str:
        """Minted when the topic was made."""
        return str(self._topic(topic)[0])

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return int(self._topic(topic)[1])

    def now_ms(self) -> int:
        """The clock, or the last log time where the clock went back."""
        with self.file.errors():
            return chunks.log_ms(self.file.connection(), self.clock.now_ms())

    def wait(self, positions: Mapping[str, int], timeout_s: float) -> bool:
        """Wait for a record at or past a position; looks at other processes every 5 ms."""
        deadline = time.monotonic() + timeout_s
        places = [(*unslot(name), offset) for name, offset in positions.items()]
        seen = (-1, -1)
        while True:
            now = self.file.changes()
            if now != seen:
                seen = now
                if any(self.bounds(topic, partition)[1] > offset for topic, partition, offset in places):
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.file.pause(seen[0], left)

    def _topic(self, topic: str) -> tuple[str, int]:
        with self.file.errors():
            found = (
                self.file.connection().execute("SELECT id, partitions FROM topic WHERE name = ?", (topic,)).fetchone()
            )
        if found is None:
            known = ", ".join(self.topics())
            raise SettingsError(f"{self.file.path}: no topic {topic!r}; known: {known}")
        return found[0], found[1]

    def _head(self, topic: str, partition: int) -> tuple[int, int]:
        found = (
            self.file.connection()
            .execute("SELECT first, next FROM head WHERE topic = ? AND partition = ?", (topic, partition))
            .fetchone()
        )
        if found is None:
            count = self.partitions(topic)
            raise SettingsError(f"{self.file.path}: {topic!r} has partitions 0 to {count - 1}, not {partition}")
        return int(found[0]), int(found[1])
