"""Going on without records that can't be read: the operator's ``--accept-loss``, for every store.

A topic that was made again starts at its first offset; a position below or above the topic goes to
the nearest bound; a damaged chunk is stepped over. The journal forgets what can't be read, so that the
stage restores. Each hole becomes a `Gap`, which `audit` counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from millstream.errors import PositionLost, SettingsError
from millstream.ports import Consumed, Gap, Log

_Range = tuple[int, int]
_Hole = tuple[int, int, str]


class Mended(Struct, frozen=True):
    """Where a stage goes on, in which topic, from which journal, and what it will never read."""

    offset: int
    topic_id: str
    journal: tuple[Consumed, ...]
    gaps: tuple[Gap, ...]


def mend(
    log: Log,
    stage: tuple[str, int],
    place: tuple[str, int],
    held: tuple[str, int] | None,
    journal: Sequence[Consumed],
) -> Mended:
    """What ``--accept-loss`` makes of a stage's position ``held`` = (topic id, next offset) in one place."""
    topic_id, position = held or (log.topic_id(place[0]), 0)
    first, after = log.bounds(*place)
    kept = list(journal)
    if topic_id != log.topic_id(place[0]):
        holes = [(position, position, f"the topic was made again; was {topic_id}")]
        moved = first
        kept = [run for run in journal if (run.topic, run.partition) != place]
    else:
        holes, moved = _outside(position, first, after)
        kept, more = _readable(log, place, (first, after), journal)
        holes += more
        if damaged := next(_damaged(log, place, moved, min(moved + 1, after)), None):
            holes.append((moved, damaged[1], "a damaged chunk"))
            moved = damaged[1]
    now_ms = log.now_ms()
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
    return Mended(moved, log.topic_id(place[0]), tuple(kept), gaps)


def _outside(position: int, first: int, after: int) -> tuple[list[_Hole], int]:
    if position < first:
        return [(position, first, "dropped before it was read")], first
    if position > after:
        return [(after, position, "read once, then gone from the log")], after
    return [], position


def _damaged(log: Log, place: tuple[str, int], first: int, end: int) -> Iterator[_Range]:
    """The ranges from [first, end) on that can't be read."""
    offset = first
    while offset < end:
        try:
            records = log.read(*place, offset)
            offset = records[-1].offset + 1 if records else end
        except PositionLost as lost:
            resume = end if lost.resume is None else lost.resume
            yield offset, resume
            offset = resume


def _readable(
    log: Log, place: tuple[str, int], bounds: _Range, journal: Sequence[Consumed]
) -> tuple[list[Consumed], list[_Hole]]:
    """The journal without unreadable ranges, in the order of the rest, and those ranges."""
    kept: list[Consumed] = []
    holes: list[_Hole] = []
    for run in journal:
        if (run.topic, run.partition) != place:
            kept.append(run)
            continue
        start, stop = max(run.first, bounds[0]), min(run.end, bounds[1])
        cuts = [*_damaged(log, place, start, stop), (max(stop, start), max(stop, start))]
        for cut, resume in cuts:
            if start < cut:
                kept.append(Consumed(*place, start, min(cut, stop)))
            if resume > cut:
                holes.append((max(cut, start), min(resume, stop), "state can't be rebuilt from a damaged chunk"))
            start = max(start, resume)
        holes += [
            (a, b, "state can't be rebuilt from records that are gone") for a, b in _cut(run.first, run.end, bounds)
        ]
    return kept, holes


def _cut(first: int, end: int, bounds: _Range) -> list[_Range]:
    parts = [(first, min(end, bounds[0])), (max(first, bounds[1]), end)]
    return [(a, b) for a, b in parts if a < b]


def joined(journal: Sequence[Consumed], consumed: Sequence[Consumed]) -> list[Consumed]:
    """A journal with more runs: adjoining runs of one input are one."""
    runs = list(journal)
    for run in consumed:
        last = runs[-1] if runs else None
        if last and (run.topic, run.partition, run.first) == (last.topic, last.partition, last.end):
            runs[-1] = Consumed(last.topic, last.partition, last.first, run.end)
        else:
            runs.append(run)
    return runs


def topic_id_of(log: Log, topic: str) -> str:
    """The id of a topic that a stage has been reading. Raises `PositionLost` when there is no such topic any more."""
    try:
        return log.topic_id(topic)
    except SettingsError as error:
        raise PositionLost(f"{error}; it was there when the stage was assigned") from None
