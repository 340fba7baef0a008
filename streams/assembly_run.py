"""One trajectory while it is being assembled: its events as raw lines, and what completeness needs."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from millstream.events import Link, TrajectoryEnded
from millstream.settings import Assembly
from millstream.streams.dead_letters import Place

STARTED, MESSAGE, RESPONSE, RESULT, ENDED = range(5)
MAX_SEQ = 2**31 - 1
MAX_MISSING = 1000
"""How many missing seqs a trajectory names; the rest is a number."""

Key: TypeAlias = tuple[str, int] | str
"""(producer, seq), or the key of a link."""


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """One accepted event: its raw line, what ordering needs of it, and where it lay.

    ``identity`` is the event id, or for a linked event the hash of its line. ``calls``: the ids a
    response asks for, or the one a result answers. ``reason``: an end event's.
    """

    identity: str
    raw: bytes
    kind: int
    producer: str
    seq: int
    time_ns: int
    calls: tuple[str, ...]
    offset: int
    index: int
    reason: str = ""
    link: Link | None = None

    @property
    def key(self) -> Key:
        """Its slot in the trajectory."""
        return self.link.key if self.link is not None else (self.producer, self.seq)

    @property
    def place(self) -> Place:
        """Where it lies in the partition."""
        return Place(self.offset, self.index)

    @property
    def rank(self) -> tuple[int, str]:
        """Of several versions of a linked event the highest wins, in whatever order they come."""
        return (self.link.finality if self.link is not None else 0, self.identity)


class Run(Struct):
    """The state of one trajectory that may still change: open, ending (its end is known) or sealed
    and amendable (``reason`` set). Times are log times in milliseconds, −1 for not yet.

    ``age_ms`` is where the maximum age counts from (the first event, or the reopening). ``last``: the
    last seq of each producer that an end event listed, None while no end came. ``graced``: the grace
    after a linked root's end is over. ``scheduled`` is derived: the timer in the heap.
    """

    first_ms: int
    last_ms: int
    age_ms: int
    born: int
    revision: int = 1
    end_ms: int = -1
    sealed_ms: int = -1
    reason: str = ""
    bytes: int = 0
    duplicates: int = 0
    conflicts: int = 0
    imported: bool = False
    linked: bool = False
    graced: bool = False
    producers: set[str] = field(default_factory=set)
    last: dict[str, int] | None = None
    entries: dict[Key, Entry] = field(default_factory=dict)
    identities: set[str] = field(default_factory=set)
    scheduled: int = -1


class Timers(Struct, frozen=True):
    """The settings of assembly in milliseconds."""

    idle: int
    gap: int
    grace: int
    max_age: int
    retain: int

    @classmethod
    def of(cls, settings: Assembly) -> Timers:
        """From settings in seconds."""
        seconds = (settings.idle_s, settings.gap_s, settings.grace_s, settings.max_age_s, settings.retain_s)
        return cls(*(round(value * 1000) for value in seconds))

    def patience(self, run: Run) -> int:
        """How long after its end a run waits for what is still missing."""
        if not run.linked:
            return self.gap
        return self.grace + self.gap if run.graced else self.grace

    def deadline(self, run: Run) -> int:
        """When something happens to a run by itself."""
        if run.reason:
            return max(run.sealed_ms, run.born) + self.retain
        if run.end_ms >= 0:
            return min(run.end_ms + self.patience(run), run.age_ms + self.max_age)
        return min(run.last_ms + self.idle, run.age_ms + self.max_age)


def note_end(run: Run, event: TrajectoryEnded) -> None:
    """Learn the last seqs that an end event lists (its own at least), the smallest of all ends."""
    listed = {producer: min(max(seq, -1), MAX_SEQ) for producer, seq in event.last_seq.items()}
    if event.seq is not None and event.link is None:
        listed[event.producer] = max(listed.get(event.producer, -1), event.seq)
    last = run.last or {}
    run.last = last | {p: min(seq, last.get(p, MAX_SEQ)) for p, seq in listed.items()}


def past_end(run: Run) -> list[Key]:
    """Slots of accepted events that lie after their producer's end."""
    last = run.last or {}
    return [e.key for e in run.entries.values() if e.link is None and e.seq > last.get(e.producer, MAX_SEQ)]


def _highest(run: Run) -> dict[str, int]:
    """The last seq expected of each producer: what an end listed, else the highest seen."""
    highest: dict[str, int] = {}
    for entry in run.entries.values():
        if entry.link is None and entry.seq > highest.get(entry.producer, -1):
            highest[entry.producer] = entry.seq
    return highest | (run.last or {})


def gapless(run: Run) -> bool:
    """Whether every producer's seqs 0..last are there. Sequenced events only; links are not looked at."""
    last = run.last or {}
    if not run.linked and run.producers <= last.keys():
        return len(run.entries) == sum(last.values()) + len(last)
    highest = _highest(run)
    here = sum(entry.link is None for entry in run.entries.values())
    return here == sum(highest.values()) + len(highest)


def missing_seqs(run: Run) -> tuple[str, ...]:
    """The seqs that never came, as ``producer:seq``; at most `MAX_MISSING` of them are named."""
    found: list[str] = []
    total = 0
    for producer, last in sorted(_highest(run).items()):
        here = sorted(e.seq for e in run.entries.values() if e.link is None and e.producer == producer)
        total += last + 1 - len(here)
        expected = 0
        for seq in [*here, last + 1]:
            room = MAX_MISSING - len(found)
            found += [f"{producer}:{gap}" for gap in range(expected, min(seq, expected + room))]
            expected = seq + 1
    return (*found, f"and {total - len(found)} more") if total > len(found) else tuple(found)
