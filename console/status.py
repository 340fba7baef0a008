"""``status``: what is going on – topics, stages and how far behind they are, the buffer, trainings,
champions – from the log and the positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from millstream.console.alarms import notes as alarm_notes
from millstream.console.catalog import ledger
from millstream.console.recalled import notes as recall_notes
from millstream.console.tables import columns
from millstream.policy import Lineage, PolicyLedger
from millstream.ports import BufferStats, Log, StagePosition
from millstream.topics import ALL


class TopicEnd(Struct, frozen=True, kw_only=True):
    """A partition of a topic: records [first, end) are there."""

    topic: str
    partition: int
    first: int
    end: int


class StageLag(Struct, frozen=True, kw_only=True):
    """How far a stage has read a partition, and how many records are left."""

    stage: str
    topic: str
    partition: int
    position: int
    lag: int


class LineageState(Struct, frozen=True, kw_only=True):
    """A lineage: what serves, what waits for the gate, and the last verdict."""

    lineage: str
    champion: int | None
    previous: int | None
    versions: int
    waiting: tuple[int, ...]
    last_verdict: str = ""


class Status(Struct, frozen=True, kw_only=True):
    """All of it. ``notes`` say what a person should know or do."""

    topics: tuple[TopicEnd, ...]
    stages: tuple[StageLag, ...]
    buffers: dict[str, BufferStats]
    trainings: dict[str, int]
    lineages: tuple[LineageState, ...]
    notes: tuple[str, ...]


def status(
    log: Log,
    positions: Sequence[StagePosition],
    buffers: Mapping[str, BufferStats],
    *,
    policy_base: str = "",
) -> Status:
    """What is going on now."""
    fold = ledger(log)
    topics = tuple(_ends(log))
    stages = tuple(_lag(log, place) for place in positions)
    return Status(
        topics=topics,
        stages=stages,
        buffers=dict(buffers),
        trainings=dict(Counter(t.state for t in fold.trainings.values())),
        lineages=tuple(_lineage(fold, lineage) for lineage in fold.lineages.values()),
        notes=(*alarm_notes(fold.graders), *recall_notes(fold), *_notes(topics, stages, buffers, policy_base)),
    )


def _ends(log: Log) -> list[TopicEnd]:
    return [
        TopicEnd(topic=topic.name, partition=partition, first=bounds[0], end=bounds[1])
        for topic in ALL
        for partition in range(log.partitions(topic.name))
        for bounds in (log.bounds(topic.name, partition),)
    ]


def _lag(log: Log, place: StagePosition) -> StageLag:
    end = log.bounds(place.topic, place.partition)[1]
    return StageLag(
        stage=place.stage,
        topic=place.topic,
        partition=place.partition,
        position=place.offset,
        lag=max(0, end - place.offset),
    )


def _lineage(fold: PolicyLedger, lineage: Lineage) -> LineageState:
    decided = [gate for (name, _), gates in fold.gates.items() if name == lineage.name for gate in gates]
    last = max(decided, key=lambda gate: gate.log_ms, default=None)
    return LineageState(
        lineage=lineage.name,
        champion=lineage.champion,
        previous=lineage.previous,
        versions=len(lineage.versions),
        waiting=tuple(sorted(v.version for v in lineage.versions.values() if _waits(v.stage, v.verdict))),
        last_verdict=f"version {last.version}: {last.verdict}" if last else "",
    )


def _waits(stage: str, verdict: str | None) -> bool:
    return stage == "candidate" and verdict is None


def _notes(
    topics: Sequence[TopicEnd], stages: Sequence[StageLag], buffers: Mapping[str, BufferStats], policy_base: str
) -> list[str]:
    notes = []
    if not policy_base:
        notes.append("training is off: [policy] base names no model directory")
    dead = sum(t.end - t.first for t in topics if t.topic == "dead-letters")
    if dead:
        notes.append(f"{dead} dead letters: `millstream dead-letters list` says why")
    if any(t.end for t in topics if t.topic == "telemetry") and not stages:
        notes.append("nothing has been processed yet: run `millstream up`")
    behind = sum(stage.lag for stage in stages)
    if behind:
        notes.append(f"{behind} records are waiting: run `millstream up`, unless it is running")
    notes += [
        f"buffer {name!r}: {stats.unreadable} rollouts cannot be read; `millstream buffer rebuild` mends it"
        for name, stats in buffers.items()
        if stats.unreadable
    ]
    return notes


def render(found: Status) -> str:
    """The status as text."""
    lines = columns(
        ((f"{t.topic}:{t.partition}", t.first, t.end, t.end - t.first) for t in found.topics),
        ("topic", "first", "end", "records"),
    )
    lines += [
        "",
        *columns(
            ((s.stage, f"{s.topic}:{s.partition}", s.position, s.lag) for s in found.stages),
            ("stage", "reads", "at", "behind"),
        ),
    ]
    lines += [
        f"buffer {name!r}: {s.rollouts} rollouts in {s.groups} groups, {s.bytes:,} bytes, {s.leased} leased, "
        f"{s.consumed} consumed"
        for name, s in found.buffers.items()
    ]
    if found.trainings:
        lines.append("trainings: " + ", ".join(f"{n} {state}" for state, n in sorted(found.trainings.items())))
    lines += [_lineage_line(lineage) for lineage in found.lineages]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _lineage_line(state: LineageState) -> str:
    champion = "no champion yet" if state.champion is None else f"champion is version {state.champion}"
    waiting = f"; waiting for the gate: {', '.join(map(str, state.waiting))}" if state.waiting else ""
    last = f"; last verdict: {state.last_verdict}" if state.last_verdict else ""
    return f"lineage {state.lineage!r}: {champion} of {state.versions} versions{waiting}{last}"
