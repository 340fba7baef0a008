"""The audit's view of ``trajectories`` and ``dead-letters``: what became of events, told by the records
themselves.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from millstream.console.audit_report import Books
from millstream.events import Link
from millstream.ndjson import UNREADABLE
from millstream.ports import Record
from millstream.streams.dead_letters import DeadLetter
from millstream.topics import DEAD_LETTERS, TRAJECTORIES

AMENDABLE = frozenset({"idle_timeout", "max_age", "gap_timeout", "dangling_link", "unanswered_call"})
"""Reasons to seal after which a new event can still raise the revision (the last: of linked runs)."""


class _Event(Struct):
    id: str
    link: Link | None = None


class _Sealed(Struct):
    id: str
    content_hash: str
    reason: str = "complete"
    status: str = "complete"
    revision: int = 1
    events: tuple[_Event, ...] = ()
    mapping_epoch: int = 0


_SEALED = msgspec.json.Decoder(_Sealed)
_EVENT = msgspec.json.Decoder(_Event)
_LETTER = msgspec.json.Decoder(DeadLetter)


class Revision(Struct, frozen=True):
    """One record of ``trajectories``."""

    number: int
    content_hash: str
    reason: str
    partition: int
    offset: int


class Sealed(Struct):
    """One trajectory: its revisions, and the events of all of them that telemetry has not shown yet; those of the
    last mapping only, where spans were read again by another. ``mapping_epoch`` is that of the last revision.
    """

    mapping_epoch: int = 0
    revisions: dict[int, Revision] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    links: dict[str, tuple[str, int]] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)

    @property
    def last(self) -> Revision:
        """The revision that counts."""
        return self.revisions[max(self.revisions)]


class Passed(Struct, frozen=True):
    """Feedback on its way to the grades."""

    trajectory_id: str
    event_id: str
    partition: int
    offset: int


class Downstream(Struct):
    """Everything that assembly has put out."""

    sealed: dict[str, Sealed] = field(default_factory=dict)
    feedback: list[Passed] = field(default_factory=list)
    letters: dict[tuple[str, int, int, int], str] = field(default_factory=dict)
    """(topic, partition, offset, index) → reason."""


def downstream(books: Books) -> Downstream:
    """Read both topics; doubled and unreadable records are differences."""
    found = Downstream()
    for record in books.reading.records(DEAD_LETTERS.name):
        _letter(books, found, record)
    for record in books.reading.records(TRAJECTORIES.name):
        _trajectory(books, found, record)
    for name, sealed in found.sealed.items():
        missing = sorted(set(range(1, max(sealed.revisions) + 1)) - sealed.revisions.keys())
        if missing and books.reading.whole(TRAJECTORIES.name):
            books.differ(
                "missing revision", name, f"trajectories has revision {max(sealed.revisions)} but not {missing}"
            )
    return found


def _letter(books: Books, found: Downstream, record: Record) -> None:
    try:
        letter = _LETTER.decode(record.value or b"")
    except UNREADABLE as error:
        books.differ("unreadable", _at(record), f"not a dead letter: {error}")
        return
    if letter.topic_id not in ("", books.reading.ids.get(letter.topic)):
        return  # of a topic that is no more: its places are others' now
    place = (letter.topic, letter.partition, letter.offset, letter.index)
    if place in found.letters:
        books.differ(
            "doubled dead letter", _at(record), f"{letter.topic}:{place[1]} at {place[2]}.{place[3]} is there twice"
        )
    found.letters[place] = letter.reason


def _trajectory(books: Books, found: Downstream, record: Record) -> None:
    if record.value is None:
        return
    try:
        if record.headers.get("kind") == "feedback":
            event = _EVENT.decode(record.value)
            found.feedback.append(Passed(record.key, event.id, record.partition, record.offset))
            return
        sealed = _SEALED.decode(record.value)
    except UNREADABLE as error:
        if (TRAJECTORIES.name, record.partition, record.offset, -1) not in found.letters:
            books.differ("unreadable", _at(record), f"neither a trajectory nor in the dead letters: {error}")
        return
    known = found.sealed.setdefault(sealed.id, Sealed())
    if sealed.revision in known.revisions:
        books.differ("doubled trajectory", sealed.id, f"revision {sealed.revision} is there again at {_at(record)}")
        return
    known.revisions[sealed.revision] = Revision(
        sealed.revision, sealed.content_hash, sealed.reason, record.partition, record.offset
    )
    if sealed.mapping_epoch > known.mapping_epoch:
        known.mapping_epoch = sealed.mapping_epoch
        for told in (known.ids, known.links, known.aliases, known.unseen):
            told.clear()
    names = [event.id for event in sealed.events]
    if len(set(names)) < len(names) and not any(event.link for event in sealed.events):
        books.differ("doubled event", sealed.id, f"revision {sealed.revision} holds an event twice")
    known.ids.update(names)
    known.unseen.update(names)
    links = [(event.id, event.link) for event in sealed.events if event.link is not None]
    known.links.update({link.key: (name, link.finality) for name, link in links})
    known.aliases.update(link.alias for _, link in links if link.alias)


def _at(record: Record) -> str:
    return f"{record.topic}:{record.partition} at {record.offset}"
