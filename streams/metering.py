"""What the stages do, as metrics: read off what they commit. The stages stay pure and know nothing of it.

A stage says everything it decides in its outputs, so the runner hands each committed group to a `Watch` and
the counting is here. Only what is committed counts: a group that is fed again after a crash counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from millstream import metrics
from millstream.events import Usage
from millstream.metrics import Labels, Meter, Metric
from millstream.ports import Consumed, Output
from millstream.prices import origin
from millstream.topics import BUFFER_EVENTS, DEAD_LETTERS, GRADES, TRAJECTORIES

LAST_EVENT = "last_ms"
"""The header of a record of ``grades``: the log time of the event that made its run complete."""

Counts = Counter[tuple[Metric, Labels]]


class Watch(Protocol):
    """Told by a runner what happened. Never raises, and waits for nothing."""

    def committed(self, stage: str, consumed: Sequence[Consumed], outputs: Sequence[Output]) -> None:
        """A group was committed: these inputs, these outputs."""
        ...

    def waiting(self, stage: str, why: str) -> None:
        """The stage tries again what is unavailable; '': it goes on."""
        ...


class _Event(Struct):
    usage: Usage | None = None


class _Run(Struct):
    status: str = "complete"
    reason: str = "complete"
    events: tuple[_Event, ...] = ()


class _Letter(Struct):
    stage: str = ""
    reason: str = ""


class _Answer(Struct):
    status: str = ""
    kind: str = ""


class _Graded(Struct):
    grader: str = ""
    grade: _Answer | None = None


class _Decided(Struct):
    kind: str = ""
    namespace: str = ""
    reason: str = ""
    rollout_ids: tuple[str, ...] = ()


_run = msgspec.json.Decoder(_Run).decode
_letter = msgspec.json.Decoder(_Letter).decode
_graded = msgspec.json.Decoder(_Graded).decode_lines
_decided = msgspec.json.Decoder(_Decided).decode_lines


class Metering:
    """A `Watch` that counts into ``meter``. ``now_ms`` is the log's clock."""

    def __init__(self, meter: Meter, now_ms: Callable[[], int]) -> None:
        self.meter = meter
        self.now_ms = now_ms

    def committed(self, stage: str, consumed: Sequence[Consumed], outputs: Sequence[Output]) -> None:
        """Count one group."""
        counts: Counts = Counter()
        for run in consumed:
            counts[metrics.RECORDS, (stage, run.topic)] += run.end - run.first
        for out in outputs:
            counts[metrics.OUTPUTS, (stage, out.topic)] += 1
            counts.update(_told(out))
        for (metric, labels), amount in counts.items():
            self.meter.add(metric, labels, amount)
        if stage == "grade":
            self.meter.observe(metrics.EVENT_TO_GRADE, _latencies(outputs, self.now_ms()))

    def waiting(self, stage: str, why: str) -> None:
        """Count one more time that something was unavailable."""
        if why:
            self.meter.add(metrics.WAITS, (stage,))


def _told(out: Output) -> Iterable[tuple[Metric, Labels]]:
    """What one output counts as, once each."""
    if out.topic == DEAD_LETTERS.name:
        letter = _letter(out.value)
        return [(metrics.DEAD_LETTERS, (letter.stage, letter.reason))]
    if out.topic == TRAJECTORIES.name and out.headers.get("kind") == "trajectory":
        run = _run(out.value)
        origins = [origin(event.usage) for event in run.events if event.usage is not None]
        calls = [(metrics.MODEL_CALLS, (told,)) for told in origins if told != "none"]
        return [(metrics.TRAJECTORIES, (run.status, run.reason)), *calls]
    if out.topic == GRADES.name:
        return _of_grades(out.value)
    if out.topic == BUFFER_EVENTS.name:
        return _of_decisions(out.value)
    return ()


def _of_grades(value: bytes) -> Iterable[tuple[Metric, Labels]]:
    for line in _graded(value):
        if line.grade is not None:
            yield metrics.GRADES, (line.grader, line.grade.status)
            if line.grade.status == "failed":
                yield metrics.GRADE_FAILURES, (line.grader, line.grade.kind)


def _of_decisions(value: bytes) -> Iterable[tuple[Metric, Labels]]:
    for line in _decided(value):
        if line.kind == "RolloutAdmitted":
            yield metrics.ADMITTED, (line.namespace,)
        elif line.kind == "RolloutRefused":
            yield metrics.REFUSED, (line.namespace, line.reason)
        elif line.kind == "RolloutsEvicted":
            yield from [(metrics.EVICTED, (line.namespace,))] * len(line.rollout_ids)


def _latencies(outputs: Sequence[Output], now_ms: int) -> list[float]:
    return [max(0, now_ms - int(told)) / 1000 for out in outputs if (told := out.headers.get(LAST_EVENT, "")).isdigit()]
