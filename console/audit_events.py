"""The books of events: each event of ``telemetry`` is in exactly one place.

The places are found from the log alone: in a trajectory, still open, a duplicate, superseded, late, in
conflict, after the end, a dead letter (or one that was replayed), feedback, a tick, a null value. What is in
none of them is lost. A line of a dialect is read as assembly reads it; one that tells no event is unmapped. What
a trajectory of an older mapping tells otherwise is counted as such until `millstream replay` has read it again.
"""

from __future__ import annotations

from msgspec import Struct, field

from millstream.codec import content_digest, decode_lines
from millstream.console.audit_reading import ASSEMBLE
from millstream.console.audit_report import Books
from millstream.console.audit_sealed import AMENDABLE, Downstream, Sealed
from millstream.dialects.reading import DIALECTS, MAPPING_EPOCH, lines_of, mapped
from millstream.errors import EventError
from millstream.events import NO_RUN, Event, FeedbackGiven, Tick, TrajectoryEnded
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly_binding import unbound
from millstream.streams.dead_letters import REPLAY, Origin
from millstream.topics import TELEMETRY

DIALECT = "millstream"
OLDER = "of an older mapping"
_REFUSED = {
    "late:conflict": "conflict",
    "late:after_end": "after the end",
    "unknown_dialect": "unmapped",
}


class _Open(Struct):
    """A trajectory of which events were read that nothing downstream holds."""

    first: str
    last_ms: int
    partition: int
    events: int = 0
    seqs: set[tuple[str, int]] = field(default_factory=set)
    last_seq: dict[str, int] | None = None

    @property
    def whole(self) -> bool:
        """Whether every event that its end names has come."""
        last = self.last_seq
        return last is not None and all((p, n) in self.seqs for p, seq in last.items() for n in range(seq + 1))


class EventBooks:
    """Goes through ``telemetry`` once. ``settings``: how long a trajectory may stay open."""

    def __init__(self, books: Books, found: Downstream, settings: Assembly) -> None:
        self.books = books
        self.found = found
        self.patience_ms = round(1000 * max(settings.idle_s, settings.gap_s + settings.grace_s))
        self._seen: dict[str, set[str]] = {}
        self._claimed: set[tuple[str, str]] = set()
        self._open: dict[str, _Open] = {}
        self._now: dict[int, int] = {}
        self._topic_id = books.reading.ids[TELEMETRY.name]
        self._letters: dict[Origin, str] = {}
        self._replayed: set[Origin] = set()
        self._older: set[str] = set()
        """Trajectories of spans whose last revision is of an older mapping."""
        self._passed = {(p.trajectory_id, p.event_id) for p in found.feedback}

    def fill(self) -> None:
        """Count every event and name what is unexplained."""
        for record in self.books.reading.records(TELEMETRY.name):
            self._record(record)
        for name, run in self._open.items():
            self._judge(name, run)
        for origin in self._replayed & self._letters.keys():
            self.books.move("events", self._letters[origin], "replayed")
        if self.books.reading.whole(TELEMETRY.name):
            for name, sealed in self.found.sealed.items():
                if name in self._older:
                    continue
                for event_id in sorted(sealed.unseen):
                    self.books.differ("invented event", event_id, f"is in trajectory {name}, but not in telemetry")

    def _record(self, record: Record) -> None:
        read = record.offset < self.books.reading.position(ASSEMBLE, TELEMETRY.name, record.partition)
        if read:
            self._now[record.partition] = max(self._now.get(record.partition, 0), record.log_ms)
        if REPLAY in record.headers:
            self._replayed.add(Origin.read(record.headers[REPLAY]))
        excuse = "" if read else "not read yet"
        if self.books.reading.lost(ASSEMBLE, TELEMETRY.name, record.partition, record.offset):
            excuse = "accepted loss"
        dialect = record.headers.get("dialect", DIALECT)
        if dialect in DIALECTS and record.value:
            for index, raw in lines_of(record.value):
                self._line(record, index, raw, excuse)
            return
        if dialect != DIALECT:
            self._count(record, -1, self._letter(record, -1) or excuse, f"dialect {record.headers['dialect']!r}")
            return
        lines = decode_lines(record.value or b"")
        if not lines:
            self.books.add("events", "null")
        for index, (event, raw) in enumerate(lines):
            if isinstance(event, EventError):
                self._count(record, index, self._letter(record, index) or excuse, str(event))
            else:
                self._count(record, index, self._place(record, index, event, raw, excuse), event.id)

    def _line(self, record: Record, index: int, raw: bytes, excuse: str) -> None:
        """Count the events that a line of a dialect tells, or the line where it tells none or was refused."""
        letter = self._letter(record, index)
        try:
            told = mapped(raw, record.headers)
        except EventError as error:
            unread = OLDER if any(one.mapping_epoch < MAPPING_EPOCH for one in self.found.sealed.values()) else ""
            self._count(record, index, letter or excuse or unread, str(error))
            return
        seen = self._seen.setdefault(told.trajectory_id, set()) if told.events else set()
        identity = content_digest(raw)
        sealed = self.found.sealed.get(told.trajectory_id)
        if sealed is not None:
            sealed.unseen.difference_update(event.id for event in told.events)
            if sealed.mapping_epoch < MAPPING_EPOCH:
                self._older.add(told.trajectory_id)
        if letter and sealed is not None and any(event.id in sealed.ids for event in told.events):
            letter = ""  # a mapping that came later could read it
        whole = letter or (told.events and identity in seen and "duplicate") or (not told.events and "unmapped")
        seen.add(identity)
        if whole:
            self._count(record, index, whole, f"span {told.span_id} of {told.trajectory_id}")
            return
        for event in told.events:
            self._count(record, index, self._told(record, event, sealed, excuse), event.id)

    def _told(self, record: Record, event: Event, sealed: Sealed | None, excuse: str) -> str:
        if isinstance(event, FeedbackGiven):
            return "feedback" if (event.trajectory_id, event.id) in self._passed else excuse
        held = self._held(event, sealed)
        if not held and sealed is not None and unbound(event):
            return "superseded"
        if not held and event.trajectory_id in self._older:
            return OLDER
        return held or excuse or self._wait(record, event, sealed)

    def _count(self, record: Record, index: int, name: str, what: str) -> None:
        self.books.add("events", name or "lost")
        if not name:
            where = f"{TELEMETRY.name}:{record.partition} at {record.offset}.{index}"
            self.books.differ(
                "lost event", what, f"{where} was read by assemble, but is in no trajectory or dead letter"
            )

    def _letter(self, record: Record, index: int) -> str:
        reason = self.found.letters.get((TELEMETRY.name, record.partition, record.offset, index), "")
        name = reason and _REFUSED.get(reason, "late" if reason.startswith("late:") else "dead letter")
        if name:
            self._letters[Origin(self._topic_id, record.partition, record.offset, index)] = name
        return name

    def _place(self, record: Record, index: int, event: Event, raw: bytes, excuse: str) -> str:
        if isinstance(event, Tick):
            return "tick"
        if isinstance(event, FeedbackGiven) and event.trajectory_id == NO_RUN:
            return self._letter(record, index) or excuse
        if isinstance(event, FeedbackGiven):
            return "feedback" if (event.trajectory_id, event.id) in self._passed else excuse
        seen = self._seen.setdefault(event.trajectory_id, set())
        identity = event.id if event.link is None else content_digest(raw)
        repeated = identity in seen
        seen.add(identity)
        sealed = self.found.sealed.get(event.trajectory_id)
        if sealed is not None:
            sealed.unseen.discard(event.id)
        if letter := self._letter(record, index):
            return letter
        held = self._held(event, sealed) if REPLAY in record.headers or not repeated else ""
        if repeated:
            return held or "duplicate"
        return held or excuse or self._wait(record, event, sealed)

    def _held(self, event: Event, sealed: Sealed | None) -> str:
        if sealed is None:
            return ""
        if event.link is None:
            return "in a trajectory" if event.id in sealed.ids else ""
        if event.link.key in sealed.aliases:
            return "superseded"
        held = sealed.links.get(event.link.key)
        claim = (event.trajectory_id, event.link.key)
        if held is None:
            return ""
        if held == (event.id, event.link.finality) and claim not in self._claimed:
            self._claimed.add(claim)
            return "in a trajectory"
        return "superseded"

    def _wait(self, record: Record, event: Event, sealed: Sealed | None) -> str:
        if sealed is not None and sealed.last.reason not in AMENDABLE:
            return ""
        where = f"{TELEMETRY.name}:{record.partition} at {record.offset}"
        run = self._open.setdefault(event.trajectory_id, _Open(where, record.log_ms, record.partition))
        run.last_ms, run.events = record.log_ms, run.events + 1
        if event.link is None:
            run.seqs.add((event.producer, -1 if event.seq is None else event.seq))
        if isinstance(event, TrajectoryEnded) and event.link is None:
            run.last_seq = {**(run.last_seq or {}), **event.last_seq}
        return "open"

    def _judge(self, name: str, run: _Open) -> None:
        """An open trajectory must still have something to wait for."""
        if run.last_ms + self.patience_ms < self._now.get(run.partition, 0):
            why = "its timers have passed, but it was not sealed"
        elif run.whole and name not in self.found.sealed:
            why = "it is whole, but was not sealed"
        else:
            self.books.add("trajectories", "open")
            return
        self.books.differ("lost trajectory", name, f"{run.events} events from {run.first} on: {why}")
