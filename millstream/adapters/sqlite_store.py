"""The `Store` port on the file that holds the log: outputs, positions, journal, snapshot and marks of
a stage are one transaction.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.adapters import sqlite_chunks as chunks
from millstream.adapters.sqlite_log import SqliteLog
from millstream.adapters.sqlite_loss import accept_loss
from millstream.errors import Conflict, PositionLost
from millstream.partition import partition_of, slot, unslot
from millstream.ports import Assignment, Consumed, Gap, Message, Output, StagePosition, StateCommit

_OF_STAGE = "stage = ? AND partition = ?"


class SqliteStore:
    """State of stages beside the log. Fences come from a counter of the stage's own row."""

    def __init__(self, log: SqliteLog) -> None:
        self.log = log
        self.file = log.file

    def assign(self, stage: str, partition: int, topic_ids: Mapping[str, str]) -> Assignment:
        """Mint a fence and read everything a worker needs to restore."""
        key = (stage, partition)
        with self.file.write() as connection:
            connection.execute("INSERT INTO stage VALUES(?, ?, 0, 0) ON CONFLICT DO NOTHING", key)
            connection.execute(f"UPDATE stage SET fence = fence + 1 WHERE {_OF_STAGE}", key)  # noqa: S608
            fence, outbox = _one(connection, "fence, outbox", "stage", key)
            places = _all(connection, "slot, topic_id, next", "position", key)
            for place, topic_id, _ in places:
                topic = unslot(place)[0]
                if topic in topic_ids and topic_ids[topic] != topic_id:
                    raise PositionLost(
                        f"{self.file.path}: {topic!r} is not the topic that stage {stage!r} was reading (it was made "
                        f"again: {topic_ids[topic]}, not {topic_id}); restore the file, or start over by --accept-loss"
                    )
            snapshot = _all(connection, "data", "snapshot", key)
            journal = _all(connection, "topic, input, first, end", "journal", key, "ORDER BY n")
            marks = _all(connection, "source, n", "high_water", key)
        return Assignment(
            stage=stage,
            partition=partition,
            fence=fence,
            positions={place: offset for place, _, offset in places},
            topic_ids=dict(topic_ids),
            snapshot=snapshot[0][0] if snapshot else None,
            journal=tuple(Consumed(*row) for row in journal),
            high_water=dict(marks),
            outbox=outbox,
        )

    def commit(self, commit: StateCommit) -> None:
        """Write it all in one transaction, or nothing."""
        with self.file.write() as connection:
            self._check(connection, commit)
            self._append(connection, commit.outputs)
            self._state(connection, commit)

    def _check(self, connection: sqlite3.Connection, commit: StateCommit) -> None:
        held = commit.assignment
        key = (held.stage, held.partition)
        fence = _one(connection, "fence", "stage", key)[0]
        if fence != held.fence:
            raise Conflict(f"stage {held.stage}:{held.partition} was taken by another worker (fence {fence})")
        found = dict(_all(connection, "slot, next", "position", key))
        for place, offset in commit.expected.items():
            if found.get(place, 0) != offset:
                raise Conflict(
                    f"stage {held.stage}:{held.partition} stands at {found.get(place, 0)} of {place}, not {offset}"
                )
        for topic, topic_id in held.topic_ids.items():
            if self.log.topic_id(topic) != topic_id:
                raise PositionLost(f"{self.file.path}: topic {topic!r} was made again under stage {held.stage!r}")

    def _append(self, connection: sqlite3.Connection, outputs: Iterable[Output]) -> None:
        counts: dict[str, int] = {}
        places: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for out in outputs:
            if out.topic not in counts:
                counts[out.topic] = self.log.partitions(out.topic)
            place = out.topic, partition_of(out.key, counts[out.topic])
            places[place].append(Message(out.key, out.value, out.headers))
        if places:
            now_ms = chunks.log_ms(connection, self.log.clock.now_ms())
            for (topic, partition), messages in places.items():
                chunks.write(connection, topic, partition, messages, now_ms)

    def _state(self, connection: sqlite3.Connection, commit: StateCommit) -> None:
        held = commit.assignment
        key = (held.stage, held.partition)
        connection.execute(
            f"UPDATE stage SET outbox = outbox + ? WHERE {_OF_STAGE}",  # noqa: S608 — a constant
            (len(commit.outputs), *key),
        )
        ends = {slot(run.topic, run.partition): (held.topic_ids[run.topic], run.end) for run in commit.consumed}
        connection.executemany(
            "INSERT OR REPLACE INTO position VALUES(?, ?, ?, ?, ?)",
            [(*key, place, topic_id, end) for place, (topic_id, end) in ends.items()],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO high_water VALUES(?, ?, ?, ?)",
            [(*key, source, n) for source, n in commit.high_water.items()],
        )
        if commit.snapshot is None:
            self._journal(connection, key, commit.consumed)
        else:
            connection.execute(f"DELETE FROM journal WHERE {_OF_STAGE}", key)  # noqa: S608 — a constant
            connection.execute("INSERT OR REPLACE INTO snapshot VALUES(?, ?, ?)", (*key, commit.snapshot))

    def _journal(self, connection: sqlite3.Connection, key: tuple[str, int], consumed: Iterable[Consumed]) -> None:
        last = _all(connection, "n, topic, input, first, end", "journal", key, "ORDER BY n DESC LIMIT 1")
        n, topic, partition, first, end = last[0] if last else (0, "", 0, 0, 0)
        for run in consumed:
            if (run.topic, run.partition, run.first) == (topic, partition, end):
                end = run.end
            else:
                n, topic, partition, first, end = n + 1, run.topic, run.partition, run.first, run.end
            connection.execute(
                "INSERT OR REPLACE INTO journal VALUES(?, ?, ?, ?, ?, ?, ?)", (*key, n, topic, partition, first, end)
            )

    def positions(self) -> tuple[StagePosition, ...]:
        """Every position, sorted."""
        with self.file.read() as connection:
            rows = connection.execute("SELECT stage, partition, slot, topic_id, next FROM position").fetchall()
        return tuple(
            sorted(
                StagePosition(
                    stage=stage,
                    stage_partition=stage_partition,
                    topic=unslot(place)[0],
                    partition=unslot(place)[1],
                    topic_id=topic_id,
                    offset=offset,
                )
                for stage, stage_partition, place, topic_id, offset in rows
            )
        )

    def gaps(self) -> tuple[Gap, ...]:
        """Every accepted loss, in the order they were accepted."""
        columns = ", ".join(Gap.__struct_fields__)
        with self.file.read() as connection:
            rows = connection.execute(f"SELECT {columns} FROM gap ORDER BY n").fetchall()  # noqa: S608 — constants
        return tuple(Gap(**dict(zip(Gap.__struct_fields__, row, strict=True))) for row in rows)

    def accept_loss(self, stage: str, stage_partition: int, topic: str, partition: int) -> tuple[Gap, ...]:
        """See `millstream.adapters.sqlite_loss`."""
        with self.file.write() as connection:
            return accept_loss(self.log, connection, (stage, stage_partition), (topic, partition))


def _one(connection: sqlite3.Connection, columns: str, table: str, key: tuple[str, int]) -> tuple[int, ...]:
    found: tuple[int, ...] = _all(connection, columns, table, key)[0]
    return found


def _all(
    connection: sqlite3.Connection, columns: str, table: str, key: tuple[str, int], rest: str = ""
) -> list[tuple[Any, ...]]:
    return connection.execute(
        f"SELECT {columns} FROM {table} WHERE {_OF_STAGE} {rest}",  # noqa: S608 — constants
        key,
    ).fetchall()
