"""One trajectory while it is being assembled: its events as raw lines, and what completeness needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

from millstream.dialects.reading import Place
from millstream.events import MAX_SEQ, TrajectoryEnded
from millstream.settings import Assembly

MAX_MISSING = 1000
"""How many missing seqs a trajectory names; the rest is a number."""

INDEX_BITS = 20
INDEX_MASK = (1 << INDEX_BITS) - 1

Line: TypeAlias = tuple[bytes, int, int]
"""A raw line, and the offset and index where it lay."""


class Run(Struct):
    """The state of one trajectory that may still change: open, ending (its end is known) or sealed
    and amendable (``reason`` set). Times are log times in milliseconds, −1 for not yet.

    ``born``: the time inside the id, −1 when it tells none. ``age_ms`` is where the maximum age counts
    from (the first event, or the reopening). ``replays``: revisions that came of reading history again.
    ``graced``: the grace after a linked root's end is over.
    A lane holds sequenced events by seq: ``lane`` those of the first ``producer``, ``others`` of the
    rest; ``spans`` hold linked ones by key, ``aliases`` the second keys of all that ever were, ``hung`` where
    the spans of a dialect hang, also of those that tell no event. ``last``: the last seq of each producer
    that an end event listed, None while no end came. ``identities``: of every event ever seen (event ids; for linked
    events the hash of the line), in order of arrival, with where it lay: offset << `INDEX_BITS` + index.
    What the hot path touches stands first.

    ``asked``, ``answered`` and ``end_reason`` spare decoding the lines again when the run is sealed;
    ``disturbed`` says that an accepted event was taken out again, so that they can't be trusted.
    Derived: ``plain`` (``producer`` while the run is open, its end unknown and without links, else None),
    ``rooted`` (a span of it is a root), ``heavy`` (it may reach a cap), ``weight`` (its bytes, −1 while
    nobody asked), ``scheduled`` (its timer).
    """

    producer: str
    lane: dict[int, bytes]
    identities: dict[str, int]
    asked: list[str]
    answered: list[str]
    plain: str | None
    last_ms: int
    heavy: bool
    weight: int
    scheduled: int
    first_ms: int
    age_ms: int
    born: int
    revision: int = 1
    replays: int = 0
    end_ms: int = -1
    sealed_ms: int = -1
    reason: str = ""
    duplicates: int = 0
    conflicts: int = 0
    imported: bool = False
    linked: bool = False
    rooted: bool = False
    graced: bool = False
    disturbed: bool = False
    end_reason: str = ""
    last: dict[str, int] | None = None
    others: dict[str, dict[int, bytes]] = field(default_factory=dict)
    spans: dict[str, bytes] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    hung: dict[str, Place] = field(default_factory=dict)

    @property
    def lanes(self) -> dict[str, dict[int, bytes]]:
        """Every producer's lane that holds something."""
        lanes = {self.producer: self.lane, **self.others}
        return {producer: lane for producer, lane in lanes.items() if lane}

    def lane_of(self, producer: str) -> dict[int, bytes]:
        """A producer's lane, made if there was none."""
        if producer == self.producer:
            return self.lane
        return self.others.setdefault(producer, {})

    @property
    def events(self) -> int:
        """How many events it holds, and spans that tell none."""
        return sum(map(len, self.lanes.values())) + max(len(self.spans), len(self.hung))

    @property
    def silent(self) -> bool:
        """Whether it holds no event: all that came are spans that tell none."""
        return not (self.spans or self.lane or any(self.others.values()))

    @property
    def size(self) -> int:
        """The bytes of its lines."""
        return sum(map(len, self.lines()))

    def lines(self) -> Iterator[bytes]:
        """Every accepted line, in no order that means anything."""
        for lane in self.lanes.values():
            yield from lane.values()
        yield from self.spans.values()

    def line(self, identity: str, raw: bytes) -> Line:
        """An event's line with where it lay."""
        place = self.identities[identity]
        return raw, place >> INDEX_BITS, place & INDEX_MASK


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
        if run.hung and run.silent:
            return run.last_ms + self.gap
        if run.end_ms >= 0:
            return min(run.end_ms + self.patience(run), run.age_ms + self.max_age)
        return min(run.last_ms + self.idle, run.age_ms + self.max_age)


def new_run(producer: str, now: int, born: int | None, *, imported: bool) -> Run:
    """A run that begins now with an event of ``producer``."""
    return Run(
        producer,
        {},
        {},
        [],
        [],
        producer,
        now,
        False,
        -1,
        -1,
        now,
        now,
        -1 if born is None else born,
        imported=imported,
    )


def last_after(last: dict[str, int] | None, event: TrajectoryEnded) -> dict[str, int]:
    """The last seqs, once an end event is known that lists some (its own at least): of several ends
    the smallest counts.
    """
    listed = event.last_seq
    seq, producer = event.seq, event.producer
    if seq is not None and event.link is None and listed.get(producer, -1) < seq:
        listed = {**listed, producer: seq}
    if last is None and len(listed) == 1 and listed.get(producer) == seq:
        return listed
    if last is None and min(listed.values(), default=0) >= 0 and max(listed.values(), default=0) <= MAX_SEQ:
        return listed
    known = last or {}
    bounded = {name: min(max(seq, -1), MAX_SEQ) for name, seq in listed.items()}
    return known | {name: min(seq, known.get(name, MAX_SEQ)) for name, seq in bounded.items()}


def _expected(run: Run) -> dict[str, int]:
    """The last seq of each producer: what an end listed, else the highest seen."""
    return {producer: max(lane) for producer, lane in run.lanes.items()} | (run.last or {})


def gapless(run: Run) -> bool:
    """Whether every producer's seqs 0..last are there; links are not looked at."""
    last = run.last
    if last is not None and not run.others and last.keys() == {run.producer}:
        return len(run.lane) == last[run.producer] + 1
    lanes = run.lanes
    return all(len(lanes.get(producer, ())) == seq + 1 for producer, seq in _expected(run).items())


def missing_seqs(run: Run) -> tuple[str, ...]:
    """The seqs that never came, as ``producer:seq``; at most `MAX_MISSING` of them are named."""
    found: list[str] = []
    total = 0
    lanes = run.lanes
    for producer, last in sorted(_expected(run).items()):
        here = sorted(lanes.get(producer, ()))
        total += last + 1 - len(here)
        expected = 0
        for seq in [*here, last + 1]:
            room = MAX_MISSING - len(found)
            found += [f"{producer}:{gap}" for gap in range(expected, min(seq, expected + room))]
            expected = seq + 1
    return (*found, f"and {total - len(found)} more") if total > len(found) else tuple(found)
