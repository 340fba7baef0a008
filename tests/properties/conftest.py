"""Logs of events for the invariants of assembly, well-formed and not, in all modes."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import strategies as st

from millstream.codec import encode, encode_lines
from millstream.events import (
    CLOSE_OPEN,
    Event,
    FeedbackGiven,
    Link,
    MessageReceived,
    ModelResponded,
    Tick,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
)
from millstream.ports import Output, Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.streams.dead_letters import DeadLetter
from millstream.trajectory import Trajectory

QUICK = Assembly(
    idle_s=0.1, gap_s=0.02, grace_s=0.005, max_age_s=1.0, retain_s=0.5, max_events=7, max_bytes=1600, max_revisions=3
)
"""In milliseconds: idle 100, gap 20, grace 5, age 1000, retain 500."""
BORN = (0, 90, 650, 1300)
RUNS = (*(f"00000000-{ms:04x}-7000-8000-{number:012x}" for number, ms in enumerate(BORN)), "without-age")
STEPS = (0, 0, 0, 1, 4, 5, 19, 20, 21, 60, 101, 600)


class Log:
    """Feeds records to an assembler and keeps what came out."""

    def __init__(self) -> None:
        self.assembler = Assembler(QUICK)
        self.outputs: list[Output] = []

    def feed(self, record: Record) -> list[Output]:
        """Feed one record; its outputs."""
        outputs = self.assembler.feed(record)
        self.outputs += outputs
        return outputs

    def feed_all(self, records: Sequence[Record]) -> "Log":
        """Feed records in order."""
        for record in records:
            self.feed(record)
        return self

    @property
    def sealed(self) -> dict[tuple[str, int], Trajectory]:
        """What was sealed, by trajectory and revision; each only once."""
        found: dict[tuple[str, int], Trajectory] = {}
        for output in self.outputs:
            if output.headers["kind"] == "trajectory":
                trajectory = msgspec.json.decode(output.value, type=Trajectory)
                assert found.setdefault((trajectory.id, trajectory.revision), trajectory) is trajectory
        return found

    @property
    def letters(self) -> list[DeadLetter]:
        """The dead letters."""
        return [
            msgspec.json.decode(o.value, type=DeadLetter) for o in self.outputs if o.headers["kind"] == "dead_letter"
        ]


class Logs:
    """What the properties draw from."""

    Log = Log
    runs = RUNS
    settings = QUICK

    @staticmethod
    def record(offset: int, log_ms: int, lines: bytes | None, headers: dict[str, str] | None = None) -> Record:
        """One record of telemetry."""
        return Record("telemetry", 0, offset, log_ms, "", lines, headers or {})

    @staticmethod
    def tick() -> bytes:
        """The line of a Tick."""
        return encode(Tick(id="tick", trajectory_id="tick"))

    @staticmethod
    def any_log(mode: str) -> st.SearchStrategy[list[Record]]:
        """Any log at all: events in and out of form, feedback, ticks, poison, nulls, foreign records. One
        draw of a few bytes an event, since a draw a field is slow.
        """
        return st.lists(st.binary(min_size=10, max_size=10), max_size=30).map(lambda items: _log(items, mode))

    @staticmethod
    @st.composite
    def whole_runs(draw, mode: str):
        """Events of some well-formed runs, by run: nothing is missing, nothing dangles, nothing is twice."""
        runs = {}
        for name in RUNS[: draw(st.integers(1, 3))]:
            runs[name] = draw(_sequenced_run(name) if mode == "sequenced" else _linked_run(name))
        return runs

    @staticmethod
    def encode(events: Sequence[Event]) -> bytes:
        """NDJSON."""
        return encode_lines(events)


class Choices:
    """Reads choices from the digits of a number."""

    def __init__(self, data: bytes) -> None:
        self.left = int.from_bytes(data, "big")

    def below(self, count: int) -> int:
        """A number from 0 to ``count`` − 1."""
        self.left, digit = divmod(self.left, count)
        return digit

    def of(self, *options):
        """One of the options."""
        return options[self.below(len(options))]


def _log(items: Sequence[bytes], mode: str) -> list[Record]:
    records: list[Record] = []
    now = 0
    for item in items:
        choose = Choices(item)
        line = _line(choose, mode)
        kind = choose.of("next", "next", "next", "same", "null", "foreign") if choose.below(3) == 0 else "next"
        if kind == "same" and records and records[-1].value is not None:
            records[-1] = msgspec.structs.replace(records[-1], value=records[-1].value + b"\n" + line)
            continue
        now += choose.of(*STEPS)
        headers = {"dialect": "other"} if kind == "foreign" else {}
        if b"without-age" in line and choose.below(2):
            headers["import"] = "1"
        records.append(Logs.record(len(records), now, None if kind == "null" else line, headers))
    return [_only_without_age(record) for record in records]


def _only_without_age(record: Record) -> Record:
    """Only ids without an age are imported: what was imported is never forgotten, what was not may be."""
    if all(b"without-age" in line for line in (record.value or b"").split(b"\n")):
        return record
    return msgspec.structs.replace(record, headers={k: v for k, v in record.headers.items() if k != "import"})


def _line(choose: Choices, mode: str) -> bytes:
    kind = choose.below(20)
    if kind == 0:
        return choose.of(b"\xff", b"{", b'{"kind":"Dream","id":"a","trajectory_id":"b"}')
    if kind == 1:
        return Logs.tick() if choose.below(4) else encode(Tick(id="close", trajectory_id="tick", flags=(CLOSE_OPEN,)))
    run = choose.of(*RUNS)
    if kind == 2:
        return encode(FeedbackGiven(id="f", trajectory_id=run))
    common = {"trajectory_id": run, "time_ns": choose.below(5) - 2}
    if mode == "linked" or (mode == "mixed" and choose.below(2)):
        link = _link(choose)
        return encode(_event(choose, {**common, "id": link.key, "link": link}, {}))
    common |= {"id": f"e{choose.below(26):02d}", "producer": choose.of("p", "p", "q"), "seq": choose.below(6)}
    if choose.below(20) == 0:
        del common["seq"]
    last = {"last_seq": {choose.of("p", "q"): choose.below(9) - 2}} if choose.below(2) else {}
    return encode(_event(choose, common, last))


def _link(choose: Choices) -> Link:
    keys = [f"k{number}" for number in range(5)]
    return Link(
        key=choose.of(*keys),
        parent=choose.of("", "", *keys, "nowhere"),
        after=choose.of("", "", "", *keys, "nowhere"),
        finality=choose.below(3),
        root=choose.below(5) == 0,
    )


def _event(choose: Choices, common, last) -> Event:
    kind = choose.below(4)
    if kind == 0:
        return MessageReceived(**common, content=choose.of("", "x" * 300))
    if kind == 1:
        return ModelResponded(
            **common, tool_calls=tuple(ToolCall(id=i) for i in choose.of((), ("c1",), ("c1", "c2"), ("",)))
        )
    if kind == 2:
        return ToolReturned(**common, call_id=choose.of("", "c1", "c2"))
    return TrajectoryEnded(**common, **last, reason=choose.of("done", "limit", "crash", "cancelled"))


@st.composite
def _sequenced_run(draw, name: str):
    lengths = {"p": draw(st.integers(1, 4)), "q": draw(st.integers(0, 2))}
    events = []
    for producer, length in lengths.items():
        for seq in range(length):
            common = {
                "id": f"{producer}{seq}",
                "trajectory_id": name,
                "producer": producer,
                "seq": seq,
                "time_ns": draw(st.integers(-3, 3)),
            }
            if producer == "p" and seq == length - 1:
                events.append(TrajectoryEnded(**common, last_seq={"q": lengths["q"] - 1}))
            else:
                events.append(MessageReceived(**common))
    return events


@st.composite
def _linked_run(draw, name: str):
    events = [MessageReceived(id="root", trajectory_id=name, link=Link(key="root", root=True, finality=1))]
    keys = ["root"]
    for number in range(draw(st.integers(0, 4))):
        link = Link(
            key=f"k{number}", parent=draw(st.sampled_from(keys)), after=draw(st.sampled_from(["", *keys])), finality=1
        )
        events += [
            MessageReceived(
                id=link.key,
                trajectory_id=name,
                time_ns=draw(st.integers(-3, 3)),
                link=msgspec.structs.replace(link, finality=finality),
                content=draw(st.sampled_from(["", "x"])),
            )
            for finality in range(draw(st.integers(0, 1)), 2)
        ]
        keys.append(link.key)
    return events


@pytest.fixture(scope="session")
def logs() -> type[Logs]:
    """Logs to draw and to feed."""
    return Logs
