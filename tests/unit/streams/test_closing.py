"""Closing what is open: a flagged tick seals runs and closes groups, through the log like any timer."""

from __future__ import annotations

import msgspec

from millstream.codec import encode
from millstream.events import CLOSE_OPEN, NO_RUN, EventId, ModelResponded, Tick, TrajectoryId
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.topics import TELEMETRY
from millstream.trajectory import Trajectory


def record(offset: int, value: bytes) -> Record:
    return Record(TELEMETRY.name, 0, offset, 1000, "", value)


def open_run() -> Record:
    event = ModelResponded(id=EventId("e"), trajectory_id=TrajectoryId("t"), producer="p", seq=1, text="hm")
    return record(0, encode(event))


def test_a_closing_tick_seals_open_runs_as_their_timers_would() -> None:
    """The run is sealed as idle, with the seq that never came, though no time has passed."""
    assembler = Assembler(Assembly())
    assembler.feed(open_run())
    tick = Tick(id=EventId("c"), trajectory_id=NO_RUN, flags=(CLOSE_OPEN,))
    (output,) = assembler.feed(record(1, encode(tick)))
    sealed = msgspec.json.decode(output.value, type=Trajectory)
    assert (sealed.status, sealed.reason, sealed.missing) == ("timed_out", "idle_timeout", ("p:0",))
    assert assembler.deadline_ms() is None


def test_a_plain_tick_closes_nothing() -> None:
    """Without the flag a tick is only a moment of log time."""
    assembler = Assembler(Assembly())
    assembler.feed(open_run())
    assert assembler.feed(record(1, encode(Tick(id=EventId("c"), trajectory_id=NO_RUN)))) == []
    assert assembler.deadline_ms() is not None
