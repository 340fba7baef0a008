"""Grades as ``gen_ai.evaluation.result`` events of OpenTelemetry: a projection of ``grades``, in OTLP JSON.

The event and its attributes are those of the GenAI semantic conventions (development status): name, score value and
label, explanation, and ``error.type`` where the grader failed. A failed grade has an error and no score; one that
abstained or was censored has neither. What the conventions do not know stands under ``millstream.``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from millstream import __version__
from millstream.grade import Failed, GradeGiven, Scored
from millstream.ledger import next_batch
from millstream.ports import Log, Output, Record
from millstream.streams.grade_lines import BufferingCounts, read_lines
from millstream.topics import GRADES

EVENT: Final = "gen_ai.evaluation.result"
BATCH_BYTES: Final = 256 << 10
REMEMBERED: Final = 20_000
"""How many grade ids are kept, so that a record that stands twice in the log is one event."""
_NS: Final = 1_000_000

Offsets = Mapping[int, int]
"""The next offset of each partition."""


class Sink(Protocol):
    """Where events go. It keeps the offsets with them, so that a restart goes on where it was."""

    def offsets(self, topic_id: str) -> Offsets:
        """The offsets kept for this topic; none for another one."""
        ...

    def write(self, body: bytes, topic_id: str, offsets: Offsets) -> None:
        """Take one OTLP request and the offsets after it. Raises `Unavailable`."""
        ...


class EvaluationExporter:
    """A worker that carries grades to a sink, in the order of each partition. At most once a grade in one life; after
    a crash a sink that can't keep both in one step may see the last request again (each event bears its grade's id).
    """

    busy: Final = False

    def __init__(self, log: Log, sink: Sink) -> None:
        self._log, self._sink = log, sink
        self._topic_id = log.topic_id(GRADES.name)
        self._offsets = dict(sink.offsets(self._topic_id))
        self._seen: OrderedDict[str, None] = OrderedDict()

    def step(self) -> bool:
        """Carry what is new, one batch; whether there was any. Raises `Unavailable`, and the batch comes again."""
        found = next_batch(self._log, GRADES.name, self._offsets, BATCH_BYTES)
        if found is not None:
            self._carry(*found)
        return found is not None

    def _carry(self, partition: int, records: Sequence[Record]) -> None:
        events = [(given, record.log_ms) for record in records for given in _grades(record)]
        fresh = {given.id: (given, ms) for given, ms in events if given.id not in self._seen}
        offsets = {**self._offsets, partition: records[-1].offset + 1}
        self._sink.write(request_of(fresh.values()) if fresh else b"", self._topic_id, offsets)
        self._offsets = offsets
        self._seen.update(dict.fromkeys(fresh))
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


def _grades(record: Record) -> Iterator[GradeGiven]:
    """The grades of a record; what can't be read is the other readers' dead letter."""
    if record.value:
        for line in read_lines("evaluations", record, record.value, BufferingCounts()):
            if isinstance(line, GradeGiven) and not isinstance(line, Output):
                yield line


def request_of(grades: Iterable[tuple[GradeGiven, int]]) -> bytes:
    """One OTLP ``ExportLogsServiceRequest`` as a line of JSON, of grades with their log times (ms)."""
    scope = {"name": "millstream.graders", "version": __version__}
    records = [log_record(given, log_ms) for given, log_ms in grades]
    resource = {"attributes": [_attribute("service.name", "millstream")]}
    document = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}
    return msgspec.json.encode(document)


def log_record(given: GradeGiven, log_ms: int) -> dict[str, Any]:
    """One grade as a log record of OTLP JSON."""
    return {
        "timeUnixNano": str((given.known_ms or log_ms) * _NS),
        "observedTimeUnixNano": str(log_ms * _NS),
        "eventName": EVENT,
        "attributes": [_attribute(name, value) for name, value in attributes(given).items()],
    }


def attributes(given: GradeGiven) -> dict[str, str | float | int]:
    """The attributes of a grade's event, those that it has."""
    grade = given.grade
    found: dict[str, str | float | int] = {
        "gen_ai.evaluation.name": given.grader,
        "gen_ai.conversation.id": given.trajectory_id,
        "millstream.grade.id": given.id,
        "millstream.grade.status": str(type(grade).__struct_config__.tag),
        "millstream.grade.attempt": given.attempt,
        "millstream.grader.epoch": given.epoch,
        "millstream.trajectory.revision": given.revision,
    }
    if isinstance(grade, Scored):
        found["gen_ai.evaluation.score.value"] = grade.score
        if grade.label:
            found["gen_ai.evaluation.score.label"] = grade.label
    if isinstance(grade, Failed):
        found["error.type"] = grade.kind
    if grade.reason:
        found["gen_ai.evaluation.explanation"] = grade.reason
    if given.cost:
        found["millstream.grade.cost"] = given.cost
    if given.flags:
        found["millstream.grade.flags"] = ",".join(given.flags)
    return found


def _attribute(name: str, value: str | float) -> dict[str, Any]:
    """A key and its value as OTLP JSON has them: whole numbers are texts."""
    if isinstance(value, str):
        return {"key": name, "value": {"stringValue": value}}
    if isinstance(value, int):
        return {"key": name, "value": {"intValue": str(value)}}
    return {"key": name, "value": {"doubleValue": value}}
