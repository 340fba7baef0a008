"""Records that are pushed give a stage exactly what the log would, whatever the pusher does."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import PositionLost
from millstream.ports import Record
from millstream.streams.delivered import Delivered

PLACE = ("telemetry", 0)


def record(offset, size=3, partition=0):
    return Record("telemetry", partition, offset, offset, "", b"x" * size)


class Kept:
    """A log of one partition: the offsets it holds, and how often it was asked."""

    def __init__(self, *offsets):
        self.offsets, self.asked = offsets, 0

    def read(self, topic, partition, offset, max_bytes):
        del topic, max_bytes
        self.asked += 1
        if self.offsets and offset < self.offsets[0]:
            raise PositionLost("trimmed")
        return [record(one, partition=partition) for one in self.offsets if one >= offset][:2]


def offsets(records):
    return [one.offset for one in records]


@pytest.fixture
def kept():
    return Kept(*range(20))


@pytest.fixture
def delivered(kept):
    made = Delivered(kept.read, max_bytes=2000)
    made.open([PLACE])
    return made


def test_what_came_is_read_in_order_without_asking_the_log(delivered, kept):
    """As long as it goes on from the position."""
    assert delivered.read(*PLACE, 0, 1 << 20) == []
    for n in range(4):
        delivered.put(record(n))
    assert offsets(delivered.read(*PLACE, 0, 1 << 20)) == [0, 1, 2, 3]
    assert delivered.read(*PLACE, 4, 1 << 20) == []
    assert kept.asked == 0


def test_what_was_fed_already_is_dropped(delivered):
    """The group began before the position."""
    for n in range(6):
        delivered.put(record(n))
    assert offsets(delivered.read(*PLACE, 4, 1 << 20)) == [4, 5]
    assert delivered.waiting_bytes == 0


def test_what_is_missing_is_read_from_the_log(delivered):
    """The group began past the position, or skipped something."""
    for n in (5, 6, 9):
        delivered.put(record(n))
    found, at = [], 3
    while got := delivered.read(*PLACE, at, 1 << 20):
        found += offsets(got)
        at = found[-1] + 1
    assert found == [3, 4, 5, 6, 7, 8, 9]


def test_offsets_that_hold_nothing_are_stepped_over(kept):
    """The log has no record between the position and what came."""
    kept.offsets = (0, 1, 8, 9)
    delivered = Delivered(kept.read)
    delivered.open([PLACE])
    delivered.put(record(8))
    assert offsets(delivered.read(*PLACE, 2, 1 << 20)) == [8]


def test_a_position_outside_the_log_is_told(kept):
    """A group that was sent back to the beginning hides nothing."""
    kept.offsets = (10, 11)
    delivered = Delivered(kept.read)
    delivered.open([PLACE])
    delivered.put(record(10))
    with pytest.raises(PositionLost):
        delivered.read(*PLACE, 3, 1 << 20)


def test_a_group_that_went_back_begins_anew(delivered):
    """After a rebalance what came before is dropped and comes again."""
    for n in (7, 8, 2, 3):
        delivered.put(record(n))
    assert offsets(delivered.read(*PLACE, 2, 1 << 20)) == [2, 3]


def test_nothing_came_although_there_is_something(delivered, kept):
    """A consumer that is stuck: once it is overdue, the log is asked."""
    delivered.overdue(PLACE)
    assert offsets(delivered.read(*PLACE, 4, 1 << 20)) == [4, 5]
    assert delivered.read(*PLACE, 6, 1 << 20) == []
    assert kept.asked == 1


def test_a_closed_place_takes_nothing(delivered):
    """Records of a partition that is not ours any more are dropped, and the room they took is free again."""
    for n in range(10):
        delivered.put(record(n, size=400))
    assert delivered.full
    delivered.close([PLACE])
    assert (delivered.full, delivered.waiting_bytes) == (False, 0)
    delivered.put(record(10))
    assert delivered.waiting_bytes == 0


def test_waiting_ends_when_something_comes(delivered):
    """The stage's thread sleeps until there is news."""
    assert not delivered.wait(0.01)
    threading.Timer(0.05, delivered.put, [record(0)]).start()
    assert delivered.wait(10)


@given(st.lists(st.one_of(st.integers(0, 19), st.just("read")), max_size=80), st.integers(0, 5))
def test_any_delivery_reads_like_the_log(steps, start):
    """Whatever offsets come, twice, late or never: what is read is the log from the position on, each record once."""
    log = Kept(*range(20))
    delivered = Delivered(log.read)
    delivered.open([PLACE])
    found = []

    def read():
        got = offsets(delivered.read(*PLACE, start + len(found), 1 << 20))
        found.extend(got)
        return got

    for step in steps:
        if step == "read":
            read()
        else:
            delivered.put(record(step))
    while start + len(found) < 20:
        delivered.overdue(PLACE)
        assert read()
    assert found == list(range(start, 20))
    assert delivered.waiting_bytes >= 0
