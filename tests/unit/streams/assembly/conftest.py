"""A log of one partition with an assembler at its end, and makers of events."""

from collections.abc import Iterable

import msgspec
import pytest

from millstream.codec import encode_lines
from millstream.events import Event, Tick
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.streams.dead_letters import DeadLetter
from millstream.trajectory import Trajectory

QUICK = Assembly(
    idle_s=0.1, gap_s=0.02, grace_s=0.005, max_age_s=1.0, retain_s=0.5, max_events=8, max_bytes=4000, max_revisions=3
)
"""In milliseconds: idle 100, gap 20, grace 5, age 1000, retain 500."""


class Mill:
    """Feeds records and keeps what came out."""

    def __init__(self, settings: Assembly = QUICK) -> None:
        self.settings = settings
        self.assembler = Assembler(settings, topic_id="topic-1")
        self.now = 0
        self.records: list[Record] = []
        self.trajectories: list[Trajectory] = []
        self.letters: list[DeadLetter] = []
        self.feedback: list[bytes] = []

    def put(self, *events: Event, at: int | None = None, imported: bool = False) -> None:
        """Append one record with these events; ``at``: log time."""
        self.raw(encode_lines(events), at=at, headers={"import": "1"} if imported else {})

    def raw(self, value: bytes | None, *, at: int | None = None, headers: dict[str, str] | None = None) -> None:
        """Append one record with this value."""
        self.now = self.now if at is None else at
        self.feed(Record("telemetry", 3, len(self.records), self.now, "key", value, headers or {}))

    def feed(self, record: Record) -> None:
        """Feed a record and sort its outputs."""
        self.records.append(record)
        for output in self.assembler.feed(record):
            kind = output.headers["kind"]
            if kind == "trajectory":
                self.trajectories.append(msgspec.json.decode(output.value, type=Trajectory))
            elif kind == "feedback":
                self.feedback.append(output.value)
            else:
                self.letters.append(msgspec.json.decode(output.value, type=DeadLetter))

    def each(self, events: Iterable[Event]) -> None:
        """One record an event."""
        for event in events:
            self.put(event)

    def tick(self, at: int) -> None:
        """Let time pass."""
        self.put(Tick(id=f"tick-{at}", trajectory_id="tick"), at=at)

    @property
    def sealed(self) -> list[tuple[int, str, list[str]]]:
        """(revision, reason, ids of the events) of each sealed trajectory, oldest first."""
        return [(t.revision, t.reason, [e.id for e in t.events]) for t in self.trajectories]

    @property
    def reasons(self) -> list[str]:
        """Why things became dead letters."""
        return [letter.reason for letter in self.letters]

    def counts(self) -> dict[str, int]:
        """The ledger without what is 0, balanced."""
        assert self.assembler.ledger.balance == 0
        plain = msgspec.to_builtins(self.assembler.ledger)
        return {name: n for name, n in plain.items() if n and name not in ("inputs", "revisions", "sealed", "purged")}


@pytest.fixture
def mill() -> Mill:
    """A fresh log with quick timers."""
    return Mill()


@pytest.fixture
def crowded() -> Mill:
    """A log whose partition holds three runs at most."""
    return Mill(msgspec.structs.replace(QUICK, max_open=3))


@pytest.fixture
def mill_of() -> type[Mill]:
    """More logs of the kind, for comparing."""
    return Mill
