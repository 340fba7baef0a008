"""The partitions of a worker: runners come and go with them, and each record counts once."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_store import SqliteStore
from millstream.errors import Stuck, Unavailable
from millstream.ledger import read_all
from millstream.ports import Message, Output
from millstream.streams.delivered import Delivered
from millstream.streams.ownership import Ownership
from millstream.streams.poison import FEWEST, DeadShare
from millstream.streams.runner import StageRunner

PARTITIONS = 3


class Echo:
    """Tells each record on, with a count that is its state."""

    name, inputs = "assemble", ("telemetry",)

    def __init__(self):
        self.count = 0

    def feed(self, record):
        self.count += 1
        dead = record.value == b"dead"
        return (Output("dead-letters" if dead else "trajectories", record.key, b"%s" % record.value),)

    def deadline_ms(self):
        return None

    def snapshot(self):
        return msgspec.json.encode(self.count)

    def restore(self, snapshot):
        self.count = msgspec.json.decode(snapshot)


@pytest.fixture
def log(tmp_path):
    made = open_sqlite(tmp_path / "log.db", partitions=PARTITIONS)
    yield made.log
    made.close()


@pytest.fixture
def store(tmp_path, log):
    file = SqliteFile(tmp_path / "state.db")
    yield SqliteStore(log, file)
    file.close()


@pytest.fixture
def member(log, store):
    """Makes workers that run in threads; ended and joined after the test."""
    started = []

    def start(delivered=None, make=None):
        stop = threading.Event()
        made = Ownership(make or (lambda p: [StageRunner(Echo(), log, store, p)]), log, delivered, stop)
        made.raised = []

        def run():
            try:
                made.run()
            except Exception as error:  # noqa: BLE001 — the test looks at it
                made.raised.append(error)

        made.thread = threading.Thread(target=run)
        made.thread.start()
        started.append(made)
        return made

    yield start
    for one in started:
        one.end()
        one.thread.join()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def fill(log, *values):
    for partition in range(PARTITIONS):
        log.append("telemetry", [Message(f"{value}-{partition}", value.encode()) for value in values], partition)


def told(log):
    return sorted(r.key for p in range(PARTITIONS) for r in read_all(log, "trajectories", p))


def expected(*values):
    return sorted(f"{value}-{partition}" for value in values for partition in range(PARTITIONS))


def test_owned_partitions_are_worked_off_and_others_are_not(log, member):
    """A worker that owns two of three leaves the third alone, until it is given it."""
    fill(log, "a", "b")
    one = member()
    one.assigned([0, 2])
    until(lambda: len(told(log)) == 4)
    assert {runner.partition for runner in one.runners} == {0, 2}
    one.assigned([0, 1, 2])
    until(lambda: told(log) == expected("a", "b"))


def test_partitions_move_between_workers(log, store, member):
    """What is revoked is left with a snapshot; the next owner goes on there, nothing is told twice."""
    first, second = member(), member()
    first.assigned(range(PARTITIONS))
    fill(log, "a")
    until(lambda: told(log) == expected("a"))
    first.revoked([1, 2])
    assert {runner.partition for runner in first.runners} == {0}
    held = store.assign("assemble", 1, {"telemetry": log.topic_id("telemetry")})
    assert (held.snapshot is not None, held.journal) == (True, ())
    second.assigned([1, 2])
    fill(log, "b")
    until(lambda: told(log) == expected("a", "b"))
    assert first.moved == 4
    assert second.moved == 2


def test_delivered_records_are_what_a_runner_reads(log, member):
    """Pushed in, one partition twice and one not at all: the overdue one is read from the log."""
    delivered = Delivered(log.read)
    fill(log, "a", "b")
    one = member(delivered)
    one.assigned(range(PARTITIONS))
    until(lambda: len(one.runners) == PARTITIONS)
    for partition in (0, 1):
        for _ in range(partition + 1):
            for record in log.read("telemetry", partition, 0):
                delivered.put(record)
    until(lambda: told(log) == expected("a", "b"))


def test_a_revoked_partition_does_not_wait_for_what_is_away(log, store, member):
    """A store that does not answer holds up nobody who takes a partition away."""

    class Away:
        def __getattr__(self, name):
            return getattr(store, name)

        def commit(self, commit):
            raise Unavailable("no store")

    one = member(make=lambda p: [StageRunner(Echo(), log, Away(), p)])
    one.assigned([0])
    fill(log, "a")
    until(lambda: one.runners)
    begun = time.monotonic()
    one.revoked([0])
    assert time.monotonic() - begun < 10
    assert one.runners == []
    assert one.raised == []


def test_a_fault_of_a_stage_ends_the_worker(log, member):
    """What a stage raises comes out of the thread."""

    class Broken(Echo):
        def feed(self, record):
            raise ZeroDivisionError

    one = member(make=lambda p: [StageRunner(Broken(), log, SqliteStore(log), p)])
    one.assigned([0])
    fill(log, "a")
    until(lambda: one.raised)
    assert isinstance(one.raised[0], ZeroDivisionError)
    assert one.stop.is_set()


def test_too_many_dead_letters_end_the_worker(log, store, member):
    """What was fed is committed first, so that the next start does not meet it again."""

    def make(partition):
        runner = StageRunner(Echo(), log, store, partition)
        runner.dead = DeadShare(0.5, FEWEST)
        return [runner]

    log.append("telemetry", [Message("k", b"dead")] * FEWEST)
    one = member(make=make)
    one.assigned([0])
    until(lambda: one.raised)
    assert isinstance(one.raised[0], Stuck)
    assert f"{FEWEST} of the last {FEWEST} events" in str(one.raised[0])
    assert {p.offset for p in store.positions()} == {FEWEST}


def test_a_share_is_taken_of_events_and_not_of_records(log):
    """A record of fifty lines of which one is dead is 2 % dead."""
    share = DeadShare(0.05, 100)
    log.append("telemetry", [Message("k", b"\n".join([b"line"] * 50))])
    (record,) = log.read("telemetry", 0, 0)
    for _ in range(4):
        share.count(record, [Output("dead-letters", "k", b"")])
        share.check("assemble")
