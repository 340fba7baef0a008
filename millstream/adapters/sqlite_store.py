"""The `Store` port on SQLite: positions, journal, snapshot, marks and outputs of a stage are one
transaction. In the file that holds the log the outputs go straight into their topics; beside another
log they wait in an outbox.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from millstream.adapters import sqlite_chunks as chunks
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_log import SqliteLog
from millstream.errors import Conflict, PositionLost
from millstream.failpoints import IN_COMMIT, reach
from millstream.formats import NEWEST, Format, Owner, check, parsed
from millstream.loss import joined, mend, topic_id_of
from millstream.partition import partition_of, slot, unslot
from millstream.ports import Assignment, Consumed, Gap, Log, Message, Output, StagePosition, StateCommit
from millstream.version import __version__

_OF_STAGE = "stage = ? AND partition = ?"
_BY_N = "ORDER BY n"
_output = msgspec.msgpack.Decoder(Output)
_encode = msgspec.msgpack.encode

OUTBOX: Final = """
CREATE TABLE IF NOT EXISTS outbox(
  stage TEXT NOT NULL, partition INTEGER NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY(stage, partition, n))"""
"""Made only in a file beside another log, so the format of the embedded file stays what it is."""


FIRST: Final = Format(1, "0.1.0")
"""That of files from before it was noted."""


class SqliteStore:
    """State of stages. Fences come from a counter of the stage's own row. ``file``: where it lies, when
    that is not the file of the log.
    """

    def __init__(self, log: Log, file: SqliteFile | None = None) -> None:
        self.log = log
        self._own = log if isinstance(log, SqliteLog) and file in (None, log.file) else None
        found = file or (self._own.file if self._own else None)
        if found is None:
            raise ValueError("a store beside another log needs a file of its own")
        self.file = found
        if self._own is None:
            with self.file.write() as connection:
                connection.execute(OUTBOX)

    def assign(self, stage: str, partition: int, topic_ids: Mapping[str, str]) -> Assignment:
        """Mint a fence and read everything a worker needs to restore."""
        key = (stage, partition)
        with self.file.write() as connection:
            form = self._take(connection, key)
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
            journal = _all(connection, "topic, input, first, end", "journal", key, _BY_N)
            marks = _all(connection, "source, n", "high_water", key)
            waiting = [] if self._own else _all(connection, "data", "outbox", key, _BY_N)
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
            unpublished=tuple(_output.decode(row[0]) for row in waiting),
            format=form,
        )

    def _take(self, connection: sqlite3.Connection, key: tuple[str, int]) -> Format:
        """Note that the stage's partition is ours. Raises `Stuck` when we don't read the format."""
        form = _format(connection)
        check(form, str(self.file.path))
        _note(connection, "format", str(form))
        _note(connection, f"owner:{key[0]}:{key[1]}", f"{__version__} {NEWEST.number}")
        return form

    def commit(self, commit: StateCommit) -> tuple[Output, ...]:
        """Write it all in one transaction, or nothing."""
        held = commit.assignment
        topic_ids = {} if self._own else {topic: topic_id_of(self.log, topic) for topic in held.topic_ids}
        with self.file.write() as connection:
            if self._own:
                topic_ids = {topic: self._own.topic_id(topic) for topic in held.topic_ids}
            outbox = self._check(connection, commit, topic_ids)
            if self._own:
                self._append(self._own, connection, commit.outputs)
            else:
                self._keep(connection, commit, outbox)
            reach(IN_COMMIT)
            self._state(connection, commit)
        return () if self._own else commit.outputs

    def _check(self, connection: sqlite3.Connection, commit: StateCommit, topic_ids: Mapping[str, str]) -> int:
        """Refuse what must not be written; the last outbox number so far."""
        held = commit.assignment
        key = (held.stage, held.partition)
        fence, outbox = _one(connection, "fence, outbox", "stage", key)
        if fence != held.fence:
            raise Conflict(f"stage {held.stage}:{held.partition} was taken by another worker (fence {fence})")
        form = _format(connection)
        if form != held.format:
            raise Conflict(f"stage {held.stage}:{held.partition}: the format is {form} now, not {held.format}")
        found = dict(_all(connection, "slot, next", "position", key))
        for place, offset in commit.expected.items():
            if found.get(place, 0) != offset:
                raise Conflict(
                    f"stage {held.stage}:{held.partition} stands at {found.get(place, 0)} of {place}, not {offset}"
                )
        for topic, topic_id in held.topic_ids.items():
            if topic_ids[topic] != topic_id:
                raise PositionLost(f"{self.file.path}: topic {topic!r} was made again under stage {held.stage!r}")
        return outbox

    def _keep(self, connection: sqlite3.Connection, commit: StateCommit, outbox: int) -> None:
        """Put outputs into the outbox and drop those that the log has."""
        held = commit.assignment
        key = (held.stage, held.partition)
        connection.execute(f"DELETE FROM outbox WHERE {_OF_STAGE} AND n <= ?", (*key, commit.published))  # noqa: S608
        connection.executemany(
            "INSERT INTO outbox VALUES(?, ?, ?, ?)",
            [(*key, n, _encode(out)) for n, out in enumerate(commit.outputs, outbox + 1)],
        )

    def _append(self, log: SqliteLog, connection: sqlite3.Connection, outputs: Iterable[Output]) -> None:
        counts: dict[str, int] = {}
        places: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for out in outputs:
            if out.topic not in counts:
                counts[out.topic] = log.partitions(out.topic)
            place = out.topic, partition_of(out.key, counts[out.topic])
            places[place].append(Message(out.key, out.value, out.headers))
        if places:
            now_ms = chunks.log_ms(connection, log.clock.now_ms())
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

    def _journal(self, connection: sqlite3.Connection, key: tuple[str, int], consumed: Sequence[Consumed]) -> None:
        last = _all(connection, "topic, input, first, end, n", "journal", key, "ORDER BY n DESC LIMIT 1")
        start = last[0][4] if last else 1
        _write_journal(connection, key, joined([Consumed(*row[:4]) for row in last], consumed), start)

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

    def waiting(self) -> dict[str, int]:
        """How much the outbox holds, by stage."""
        if self._own:
            return {}
        with self.file.read() as connection:
            return dict(connection.execute("SELECT stage, count(*) FROM outbox GROUP BY stage").fetchall())

    def gaps(self) -> tuple[Gap, ...]:
        """Every accepted loss, in the order they were accepted."""
        columns = ", ".join(Gap.__struct_fields__)
        with self.file.read() as connection:
            rows = connection.execute(f"SELECT {columns} FROM gap ORDER BY n").fetchall()  # noqa: S608 — constants
        return tuple(Gap(**dict(zip(Gap.__struct_fields__, row, strict=True))) for row in rows)

    def accept_loss(self, stage: str, stage_partition: int, topic: str, partition: int) -> tuple[Gap, ...]:
        """See `millstream.loss`."""
        key, place = (stage, stage_partition), (topic, partition)
        with self.file.write() as connection:
            check(_format(connection), str(self.file.path))
            held = _all(connection, "topic_id, next", "position", key, "AND slot = ?", slot(*place))
            journal = [Consumed(*row) for row in _all(connection, "topic, input, first, end", "journal", key, _BY_N)]
            mended = mend(self.log, key, place, held[0] if held else None, journal)
            connection.execute(f"DELETE FROM journal WHERE {_OF_STAGE}", key)  # noqa: S608 — a constant
            _write_journal(connection, key, mended.journal, 1)
            connection.execute(
                "INSERT OR REPLACE INTO position VALUES(?, ?, ?, ?, ?)",
                (*key, slot(*place), mended.topic_id, mended.offset),
            )
            connection.executemany(
                "INSERT INTO gap VALUES(NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [tuple(getattr(gap, name) for name in Gap.__struct_fields__) for gap in mended.gaps],
            )
        return mended.gaps

    def format(self) -> Format:
        """What the stages of this file write in."""
        with self.file.read() as connection:
            found = _format(connection)
        check(found, str(self.file.path))
        return found

    def raise_format(self, to: Format) -> None:
        """One step for all stages."""
        with self.file.write() as connection:
            if _format(connection).number < to.number:
                _note(connection, "format", str(to))

    def owners(self) -> tuple[Owner, ...]:
        """Who took each partition last."""
        with self.file.read() as connection:
            rows = connection.execute("SELECT key, value FROM meta WHERE key LIKE 'owner:%'").fetchall()
        found = []
        for name, value in rows:
            stage, partition = unslot(name.removeprefix("owner:"))
            version, _, reads = value.partition(" ")
            found.append(Owner(stage=stage, partition=partition, version=version, reads=int(reads)))
        return tuple(sorted(found))


def _format(connection: sqlite3.Connection) -> Format:
    """That of the file; of one that has none the newest where no stage wrote yet, else the first."""
    told = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    if told:
        return parsed(told[0])
    return FIRST if connection.execute("SELECT 1 FROM stage LIMIT 1").fetchone() else NEWEST


def _note(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))


def _write_journal(connection: sqlite3.Connection, key: tuple[str, int], runs: Iterable[Consumed], start: int) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO journal VALUES(?, ?, ?, ?, ?, ?, ?)",
        [(*key, n, run.topic, run.partition, run.first, run.end) for n, run in enumerate(runs, start)],
    )


def _one(connection: sqlite3.Connection, columns: str, table: str, key: tuple[str, int]) -> tuple[int, ...]:
    found: tuple[int, ...] = _all(connection, columns, table, key)[0]
    return found


def _all(
    connection: sqlite3.Connection, columns: str, table: str, key: tuple[str, int], rest: str = "", *values: Any
) -> list[tuple[Any, ...]]:
    return connection.execute(
        f"SELECT {columns} FROM {table} WHERE {_OF_STAGE} {rest}",  # noqa: S608 — constants
        (*key, *values),
    ).fetchall()
