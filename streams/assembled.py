"""What assembly has put out so far, for who reads its input again: the last revision of each trajectory, which feedback
went on, and which lines are dead letters.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from millstream.ledger import read_all
from millstream.ndjson import UNREADABLE
from millstream.ports import Log, Output, Record
from millstream.streams.dead_letters import DeadLetter, Origin
from millstream.topics import DEAD_LETTERS, TELEMETRY, TRAJECTORIES


class Version(Struct, frozen=True):
    """A revision of a trajectory, without its events."""

    revision: int
    content_hash: str
    status: str
    reason: str
    events: int
    mapping_epoch: int
    first_ms: int


class Downstream(Struct):
    """What assembly has put out so far: the last revision of each trajectory, feedback by (trajectory, event), and
    which lines are dead letters.
    """

    last: dict[str, Version] = field(default_factory=dict)
    feedback: set[tuple[str, str]] = field(default_factory=set)
    letters: set[Origin] = field(default_factory=set)

    @classmethod
    def read(cls, log: Log) -> Downstream:
        """Both topics, as they are now."""
        found = cls()
        for partition in range(log.partitions(TRAJECTORIES.name)):
            for record in read_all(log, TRAJECTORIES.name, partition):
                found.take(record)
        for partition in range(log.partitions(DEAD_LETTERS.name)):
            for record in read_all(log, DEAD_LETTERS.name, partition):
                if (letter := letter_of(record.value or b"")) is not None and letter.topic == TELEMETRY.name:
                    found.letters.add(letter.origin)
        return found

    def take(self, record: Record) -> None:
        """One record of ``trajectories``; one that can't be read is none."""
        try:
            if record.headers.get("kind") == "feedback":
                self.feedback.add((record.key, _named(record.value or b"").id))
                return
            sealed = _sealed(record.value or b"")
        except UNREADABLE:
            return
        if sealed.id not in self.last or self.last[sealed.id].revision < sealed.revision:
            self.last[sealed.id] = sealed.version


class _Named(Struct):
    id: str


class _Evidence(Struct):
    first_log_ms: int = 0


class _Sealed(Struct):
    id: str
    content_hash: str = ""
    revision: int = 1
    status: str = "complete"
    reason: str = "complete"
    events: tuple[msgspec.Raw, ...] = ()
    evidence: _Evidence = field(default_factory=_Evidence)
    mapping_epoch: int = 0

    @property
    def version(self) -> Version:
        """It, without its events."""
        first_ms = self.evidence.first_log_ms
        told = self.revision, self.content_hash, self.status, self.reason, len(self.events)
        return Version(*told, self.mapping_epoch, first_ms)


_named = msgspec.json.Decoder(_Named).decode
_sealed = msgspec.json.Decoder(_Sealed).decode
_letters = msgspec.json.Decoder(DeadLetter)


def letter_of(value: bytes) -> DeadLetter | None:
    """The dead letter of a value, None when it is none."""
    try:
        return _letters.decode(value)
    except UNREADABLE:
        return None


def version_of(output: Output) -> Version:
    """The revision that assembly puts out."""
    return _sealed(output.value).version


def event_of(output: Output) -> str:
    """The id of the feedback that assembly puts out."""
    return _named(output.value).id
