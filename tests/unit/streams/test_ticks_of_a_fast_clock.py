"""Ticks of a process whose clock is ahead of the log's: the timer fires when the log's time has come, not never."""

from __future__ import annotations

import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.sqlite_log import SqliteLog
from millstream.codec import encode_lines
from millstream.events import MessageReceived
from millstream.ports import Message
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.streams.runner import StageRunner

AHEAD_MS = 60_000


class FastClock(SqliteLog):
    """The embedded log as a process sees a broker's: its own clock until an append tells the broker's time."""

    ahead_ms = AHEAD_MS

    def now_ms(self):
        return super().now_ms() + self.ahead_ms

    def append(self, topic, messages, partition=0):
        self.ahead_ms = 0
        return super().append(topic, messages, partition)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def runner(tmp_path, clock):
    """Assembly with a run that is open, by a log that seems a minute ahead."""
    with_log = open_sqlite(tmp_path / "log.db", clock=clock)
    event = MessageReceived(id="e", trajectory_id="t", producer="p", seq=0, content="hello")
    with_log.log.append("telemetry", [Message("t", encode_lines([event]), {"dialect": "millstream"})])
    made = StageRunner(Assembler(Assembly(idle_s=30)), FastClock(with_log.log.file, clock), with_log.store)
    assert made.run_once() == 1
    yield made
    with_log.close()


def test_a_tick_that_came_too_early_is_repeated_in_time(runner, clock):
    """The early tick seals nothing; half a minute later by the log's time another one does."""
    assert runner.tick_if_due()
    assert runner.run_once() == 1
    assert runner.processor.open == 1
    assert not runner.tick_if_due()
    clock.advance(30_000)
    assert runner.tick_if_due()
    assert runner.run_once() == 1
    assert runner.processor.open == 0
    assert not runner.tick_if_due()
