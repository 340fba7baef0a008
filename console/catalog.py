"""Lists and single items, read straight from the log: what `trajectories` and `grades` print (`decided`
has the rest). ``as_of_ms`` reads the log as it stood at a log time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from millstream import ledger as ledgers
from millstream.events import HISTORY
from millstream.grade import GradeGiven
from millstream.ledger import read_all
from millstream.ndjson import filled
from millstream.policy import AnyPolicyEvent, PolicyLedger
from millstream.ports import Log, Record
from millstream.rollout import BufferDecision, GradingFinished
from millstream.topics import BUFFER_EVENTS, GRADES, POLICY_EVENTS, TRAJECTORIES
from millstream.trajectory import CALL_FAILED, SealReason, Status, Trajectory

_GRADE_EVENT = msgspec.json.Decoder(GradeGiven | GradingFinished)
_DECISION = msgspec.json.Decoder(BufferDecision)
_TRAJECTORY = msgspec.json.Decoder(Trajectory)


class _Task(Struct):
    id: str = ""
    question: str = ""


class _EventHead(Struct):
    kind: str = ""
    task: _Task | None = None
    group: str = ""
    attempt: int = 0
    policy_version: int | None = None
    lineage: str = ""
    final_answer: str | None = None
    text: str = ""
    tool_calls: tuple[msgspec.Raw, ...] = ()
    flags: tuple[str, ...] = ()


class _Head(Struct):
    id: str
    revision: int = 1
    status: Status = "complete"
    reason: SealReason = "complete"
    content_hash: str = ""
    events: tuple[_EventHead, ...] = ()


_HEAD = msgspec.json.Decoder(_Head)


class TrajectoryRow(Struct, frozen=True, kw_only=True):
    """A line of ``trajectories list``: the highest revision of one run."""

    id: str
    revision: int
    status: Status
    reason: SealReason
    events: int
    task_id: str
    group: str
    attempt: int
    lineage: str
    policy_version: int | None
    final_answer: str | None
    log_ms: int


def records(log: Log, topic: str, as_of_ms: int | None = None) -> Iterator[Record]:
    """Every record of a topic, partition by partition, up to a log time."""
    for partition in range(log.partitions(topic)):
        for record in read_all(log, topic, partition):
            if as_of_ms is not None and record.log_ms > as_of_ms:
                break
            yield record


def lines(record: Record) -> Iterator[bytes]:
    """The NDJSON lines of a record."""
    return filled(record.value)


def trajectories(log: Log, as_of_ms: int | None = None) -> list[TrajectoryRow]:
    """The highest revision of each run, in the order in which runs were first sealed."""
    latest: dict[str, TrajectoryRow] = {}
    for record in records(log, TRAJECTORIES.name, as_of_ms):
        if record.headers.get("kind") != "trajectory" or record.value is None:
            continue
        row = _row(_HEAD.decode(record.value), record.log_ms)
        if row.id not in latest or latest[row.id].revision < row.revision:
            latest[row.id] = row
    return list(latest.values())


def _row(head: _Head, log_ms: int) -> TrajectoryRow:
    start = next((e for e in head.events if e.kind == "TrajectoryStarted"), _EventHead())
    end = next((e for e in head.events if e.kind == "TrajectoryEnded"), _EventHead())
    return TrajectoryRow(
        id=head.id,
        revision=head.revision,
        status=head.status,
        reason=head.reason,
        events=len(head.events),
        task_id=start.task.id if start.task else "",
        group=start.group,
        attempt=start.attempt,
        lineage=start.lineage,
        policy_version=start.policy_version,
        final_answer=_last_answer(head.events) if end.final_answer is None else end.final_answer,
        log_ms=log_ms,
    )


def _last_answer(events: Sequence[_EventHead]) -> str | None:
    """As `Trajectory.final_answer`, which graders see: the last response without calls that is an action."""
    said = (e for e in reversed(events) if e.kind == "ModelResponded" and e.text and not e.tool_calls)
    return next((e.text for e in said if not {CALL_FAILED, HISTORY} & set(e.flags)), None)


def trajectory(log: Log, trajectory_id: str, as_of_ms: int | None = None) -> Trajectory | None:
    """The highest revision of one run, whole, or None."""
    found: Trajectory | None = None
    for record in records(log, TRAJECTORIES.name, as_of_ms):
        if record.key != trajectory_id or record.value is None:
            continue
        if record.headers.get("kind") == "trajectory":
            candidate = _TRAJECTORY.decode(record.value)
            if found is None or candidate.revision > found.revision:
                found = candidate
    return found


def grade_events(
    log: Log, as_of_ms: int | None = None, valid_at_ms: int | None = None
) -> Iterator[GradeGiven | GradingFinished]:
    """All of ``grades`` in order; the first of a grade id wins. ``valid_at_ms``: only grades that held by then, and
    runs that were sealed by then.
    """
    seen: set[str] = set()
    for record in records(log, GRADES.name, as_of_ms):
        if record.headers.get("kind", "grades") != "grades":
            continue
        for line in lines(record):
            event = _GRADE_EVENT.decode(line)
            if valid_at_ms is not None and _since_ms(event) > valid_at_ms:
                continue
            if isinstance(event, GradeGiven):
                if event.id in seen:
                    continue
                seen.add(event.id)
            yield event


def _since_ms(event: GradeGiven | GradingFinished) -> int:
    """Since when the fact of an event held: a grade's own time, or when its run was sealed."""
    return event.valid_ms if isinstance(event, GradeGiven) else event.known_ms


def grades(log: Log, as_of_ms: int | None = None) -> list[GradeGiven]:
    """Every grade once."""
    return [e for e in grade_events(log, as_of_ms) if isinstance(e, GradeGiven)]


def decisions(log: Log, as_of_ms: int | None = None) -> Iterator[BufferDecision]:
    """All of ``buffer-events`` in order."""
    for record in records(log, BUFFER_EVENTS.name, as_of_ms):
        for line in lines(record):
            yield _DECISION.decode(line)


def policy_events(log: Log, as_of_ms: int | None = None) -> Iterator[AnyPolicyEvent]:
    """All of ``policy-events`` in order, each stamped with the log time of its record."""
    for record in records(log, POLICY_EVENTS.name, as_of_ms):
        yield from (event for event in ledgers.policy_events(record) if event is not None)


def ledger(log: Log, as_of_ms: int | None = None) -> PolicyLedger:
    """The policies as they stand."""
    fold = PolicyLedger()
    for event in policy_events(log, as_of_ms):
        fold.apply(event)
    return fold


def plain(value: Any) -> Any:
    """A struct as JSON-ready builtins."""
    return msgspec.to_builtins(value)


def whole_trajectories(log: Log, as_of_ms: int | None = None) -> list[Trajectory]:
    """The highest revision of each run, whole."""
    latest: dict[str, Trajectory] = {}
    for record in records(log, TRAJECTORIES.name, as_of_ms):
        if record.headers.get("kind") == "trajectory" and record.value is not None:
            item = _TRAJECTORY.decode(record.value)
            if item.id not in latest or latest[item.id].revision < item.revision:
                latest[item.id] = item
    return list(latest.values())
