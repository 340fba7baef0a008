"""Going on without records that can't be read: the operator's ``--accept-loss``.

A topic that was made again starts at its first offset; a position below or above the topic goes to
the nearest bound; a damaged chunk is stepped over. The journal forgets what can't be read, so that the
stage restores. Each hole is a row of ``gap``, which `audit` counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from millstream.adapters import sqlite_chunks as chunks
from millstream.adapters.sqlite_log import SqliteLog
from millstream.errors import PositionLost
from millstream.partition import slot
from millstream.ports import Gap

_Range = tuple[int, int]


def accept_loss(
    log: SqliteLog, connection: sqlite3.Connection, stage: tuple[str, int], place: tuple[str, int]
) -> tuple[Gap, ...]:
    """Move the position and mend the journal inside the caller's transaction; the gaps it recorded."""
    found = connection.execute(
        "SELECT topic_id, next FROM position WHERE stage = ? AND partition = ? AND slot = ?", (*stage, slot(*place))
    ).fetchone()
    topic_id, position = found or (log.topic_id(place[0]), 0)
    first, after = log.bounds(*place)
    if topic_id != log.topic_id(place[0]):
        holes = [(position, position, f"the topic was made again; was {topic_id}")]
        moved = first
        _forget(connection, stage, place)
    else:
        holes, moved = _outside(position, first, after)
        holes += _mend(log, connection, stage, place)
        if damaged := next(_damaged(log, place, moved, min(moved + 1, after)), None):
            holes.append((moved, damaged[1], "a damaged chunk"))
            moved = damaged[1]
    connection.execute(
        "INSERT OR REPLACE INTO position VALUES(?, ?, ?, ?, ?)",
        (*stage, slot(*place), log.topic_id(place[0]), moved),
    )
    now_ms = chunks.log_ms(connection, log.clock.now_ms())
    gaps = tuple(
        Gap(
            stage=stage[0],
            stage_partition=stage[1],
            topic=place[0],
            partition=place[1],
            topic_id=topic_id,
            first=start,
            end=end,
            reason=reason,
            log_ms=now_ms,
        )
        for start, end, reason in holes
    )
    connection.executemany(
        "INSERT INTO gap VALUES(NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [tuple(getattr(gap, name) for name in Gap.__struct_fields__) for gap in gaps],
    )
    return gaps


def _outside(position: int, first: int, after: int) -> tuple[list[tuple[int, int, str]], int]:
    if position < first:
        return [(position, first, "dropped before it was read")], first
    if position > after:
        return [(after, position, "read once, then gone from the log")], after
    return [], position


def _damaged(log: SqliteLog, place: tuple[str, int], first: int, end: int) -> Iterator[_Range]:
    """The ranges from [first, end) on that can't be read."""
    offset = first
    while offset < end:
        try:
            offset += len(log.read(*place, offset, chunks.CHUNK_BYTES))
        except PositionLost as lost:
            resume = end if lost.resume is None else lost.resume
            yield offset, resume
            offset = resume


def _forget(connection: sqlite3.Connection, stage: tuple[str, int], place: tuple[str, int]) -> None:
    connection.execute(
        "DELETE FROM journal WHERE stage = ? AND partition = ? AND topic = ? AND input = ?", (*stage, *place)
    )


def _mend(
    log: SqliteLog, connection: sqlite3.Connection, stage: tuple[str, int], place: tuple[str, int]
) -> list[tuple[int, int, str]]:
    """Cut unreadable ranges out of the journal, keeping the order of the rest."""
    bounds = log.bounds(*place)
    rows = connection.execute(
        "SELECT topic, input, first, end FROM journal WHERE stage = ? AND partition = ? ORDER BY n", stage
    ).fetchall()
    kept: list[tuple[str, int, int, int]] = []
    holes: list[tuple[int, int, str]] = []
    for topic, partition, first, end in rows:
        if (topic, partition) != place:
            kept.append((topic, partition, first, end))
            continue
        start, stop = max(first, bounds[0]), min(end, bounds[1])
        cuts = [*_damaged(log, place, start, stop), (max(stop, start), max(stop, start))]
        for cut, resume in cuts:
            if start < cut:
                kept.append((topic, partition, start, min(cut, stop)))
            if resume > cut:
                holes.append((max(cut, start), min(resume, stop), "state can't be rebuilt from a damaged chunk"))
            start = max(start, resume)
        holes += [(a, b, "state can't be rebuilt from records that are gone") for a, b in _cut(first, end, bounds)]
    connection.execute("DELETE FROM journal WHERE stage = ? AND partition = ?", stage)
    connection.executemany(
        "INSERT INTO journal VALUES(?, ?, ?, ?, ?, ?, ?)", [(*stage, n + 1, *row) for n, row in enumerate(kept)]
    )
    return holes


def _cut(first: int, end: int, bounds: _Range) -> list[_Range]:
    parts = [(first, min(end, bounds[0])), (max(first, bounds[1]), end)]
    return [(a, b) for a, b in parts if a < b]
