"""The embedded runner: what is committed, restored, skipped, ticked and tried again."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.errors import PositionLost, Unavailable
from millstream.events import Tick
from millstream.ports import Message, Output
from millstream.streams.driving import drive
from millstream.streams.runner import Limits, StageRunner


class Adder:
    """Sums the numbers it reads and tells each sum; a timer is due ``delay`` after a record."""

    def __init__(self, name="assemble", inputs=("telemetry",), target="trajectories", delay=None):
        self.name, self.inputs, self.target, self.delay = name, inputs, target, delay
        self.total = 0
        self.due = None
        self.fed = []

    def feed(self, record):
        self.fed.append((record.topic, record.offset))
        if record.value is None:
            return ()
        if record.headers.get("kind") == "tick":
            self.due = None
            return (Output(self.target, "k", b"tick"),)
        if record.value == b"poison":
            raise ZeroDivisionError
        self.total += int(record.value.split(b":")[-1])
        self.due = record.log_ms + self.delay if self.delay else None
        return (Output(self.target, "k", f"{record.topic}@{record.offset}:{self.total}".encode()),)

    def deadline_ms(self):
        return self.due

    def snapshot(self):
        return msgspec.json.encode((self.total, self.due))

    def restore(self, snapshot):
        self.total, self.due = msgspec.json.decode(snapshot)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_again(path, clock):
    """Open the file, as a new process would; closed at the end."""
    opened = []

    def again(**options):
        opened.append(open_sqlite(path, clock=clock, **options))
        return opened[-1]

    yield again
    for embedded in opened:
        embedded.close()


@pytest.fixture
def log(open_again):
    return open_again().log


@pytest.fixture
def store(open_again):
    return open_again().store


def fill(log, *numbers, topic="telemetry"):
    log.append(topic, [Message("k", str(n).encode()) for n in numbers])


def values(log, topic="trajectories"):
    found, offset, after = [], *log.bounds(topic)
    while offset < after:
        found += [r.value.decode() for r in log.read(topic, 0, offset)]
        offset = len(found)
    return found


def sums(log, topic="trajectories"):
    return [int(text.rsplit(":", 1)[-1]) for text in values(log, topic)]


def idle(*runners, log):
    drive(runners, log, threading.Event(), until_idle=True)


def test_outputs_are_numbered_and_positions_move(log, store):
    """Each output tells its stage, its source partition and its number."""
    fill(log, 1, 2, 3)
    runner = StageRunner(Adder(), log, store)
    assert runner.run_once() == 3
    assert runner.run_once() == 0
    assert [r.headers for r in log.read("trajectories", 0, 0)] == [
        {"stage": "assemble", "source": "0", "n": str(n)} for n in (1, 2, 3)
    ]
    assert runner.positions == {"telemetry:0": 3}


def test_state_is_restored_by_feeding_the_journal_again(log, store):
    """A runner that died without a snapshot is continued exactly, and nothing is emitted twice."""
    fill(log, 1, 2, 3)
    StageRunner(Adder(), log, store).run_once()
    fill(log, 4)
    idle(StageRunner(Adder(), log, store), log=log)
    assert sums(log) == [1, 3, 6, 10]
    assert [r.headers["n"] for r in log.read("trajectories", 0, 0)] == ["1", "2", "3", "4"]


def test_a_clean_stop_leaves_a_snapshot(log, store):
    """Afterwards nothing is fed again."""
    fill(log, 1, 2, 3)
    idle(StageRunner(Adder(), log, store), log=log)
    again = Adder()
    StageRunner(again, log, store).start()
    assert (again.total, again.fed) == (6, [])


def test_snapshots_bound_what_is_fed_again(log, store):
    """After so many bytes of input the state is kept."""
    limits = Limits(commit_bytes=1, snapshot_bytes=3)
    runner = StageRunner(Adder(), log, store, limits=limits)
    for n in range(10):
        fill(log, n)
        runner.run_once()
    again = Adder()
    StageRunner(again, log, store).start()
    assert again.total == sum(range(10))
    assert len(again.fed) < 4


def test_a_stateless_stage_is_not_run_again(log, store):
    """What is not pure must not be repeated: its records are never fed twice."""
    fill(log, 1, 2, 3)
    first = Adder()
    first.stateless = True
    StageRunner(first, log, store).run_once()
    second = Adder()
    second.stateless = True
    runner = StageRunner(second, log, store)
    fill(log, 4)
    runner.run_once()
    assert second.fed == [("telemetry", 3)]


def test_groups_end_at_their_byte_limit(log, store):
    """A group is committed when it is large enough, not when everything was read."""
    for n in range(10):
        fill(log, 10 + n)
    assert StageRunner(Adder(), log, store).run_once(max_bytes=6) == 3


def test_groups_end_at_their_time_limit(log, store):
    """A slow stage commits what it has."""
    fill(log, 1, 2, 3)
    runner = StageRunner(Adder(), log, store, limits=Limits(commit_s=0))
    assert runner.run_once() == 1
    assert runner.run_once() == 1
    assert sums(log) == [1, 3]


def test_two_stages_pass_records_on(log, store):
    """What one stage appends another reads, in order."""
    fill(log, 1, 2, 3)
    idle(
        StageRunner(Adder(), log, store), StageRunner(Adder("grade", ("trajectories",), "grades"), log, store), log=log
    )
    assert sums(log, "grades") == [1, 4, 10]


def test_what_was_taken_from_a_source_is_skipped(log, store):
    """A redelivered output (same stage, source and number) is counted, not fed; other sources pass."""
    numbered = lambda value, stage, n: Message("k", value, {"stage": stage, "source": "0", "n": n})  # noqa: E731
    log.append("trajectories", [numbered(b"1", "assemble", "1"), numbered(b"2", "assemble", "2")])
    log.append("trajectories", [numbered(b"1", "assemble", "1"), numbered(b"2", "assemble", "2")])
    log.append("trajectories", [numbered(b"5", "replay", "1"), numbered(b"7", "assemble", "x"), Message("k", b"9")])
    runner = StageRunner(Adder("grade", ("trajectories",), "grades"), log, store)
    assert runner.run_once() == 7
    assert runner.skipped == 2
    assert sums(log, "grades") == [1, 3, 8, 15, 24]


def test_marks_are_those_of_the_state_when_it_is_fed_again(log, store):
    """Records that were new when they were fed are new again when the journal is; repeats stay repeats."""
    for n in ("1", "2", "1", "2", "3"):
        log.append("trajectories", [Message("k", n.encode(), {"stage": "assemble", "source": "0", "n": n})])
    limits = Limits(commit_bytes=1, snapshot_bytes=2)
    runner = StageRunner(Adder("grade", ("trajectories",), "grades"), log, store, limits=limits)
    while runner.run_once():
        pass
    again = Adder("grade", ("trajectories",), "grades")
    StageRunner(again, log, store).start()
    assert again.total == 6


def test_a_rival_makes_the_worker_read_again(log, store):
    """The worker that lost its stage drops its memory and continues from what the other committed."""
    fill(log, 1, 2)
    first, second = StageRunner(Adder(), log, store), StageRunner(Adder(), log, store)
    first.run_once()
    second.start()
    fill(log, 3)
    second.run_once()
    fill(log, 4)
    first.run_once()
    second.run_once()
    assert sums(log) == [1, 3, 6, 10]


def test_a_fault_of_the_program_leaves_and_commits_nothing(log, store):
    """The group with the fault stays uncommitted, also when the same runner is asked again."""
    fill(log, 1, 2)
    runner = StageRunner(Adder(), log, store)
    runner.run_once()
    log.append("telemetry", [Message("k", b"3"), Message("k", b"poison"), Message("k", b"5")])
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            runner.run_once()
    runner.close()
    assert sums(log) == [1, 3]
    assert [p.offset for p in store.positions()] == [2]


def test_what_is_unavailable_is_tried_again_in_place(open_again, path, log):
    """A locked file: the same group is committed once it is free, nothing twice."""
    fill(log, 1, 2, 3)
    embedded = open_again(busy_s=0.01)
    runner = StageRunner(Adder(), embedded.log, embedded.store)
    runner.start()
    with contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.15, other.rollback)
        timer.start()
        assert runner.run_once() == 3
        timer.join()
    assert sums(log) == [1, 3, 6]
    assert len(runner.processor.fed) == 3


def test_waiting_for_the_unavailable_ends_when_told_to_stop(open_again, path, log):
    """`up` must end while the disk is full."""
    fill(log, 1)
    embedded = open_again(busy_s=0.01)
    stop = threading.Event()
    runner = StageRunner(Adder(), embedded.log, embedded.store, stop=stop)
    runner.start()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.1, stop.set)
        timer.start()
        with pytest.raises(Unavailable, match="locked"):
            runner.run_once()
        timer.join()


def test_a_lost_position_is_not_tried_again(log, store):
    """Records gone below the position: the stage stops until a person accepts the loss."""
    for n in range(4):
        fill(log, n)
    StageRunner(Adder(), log, store).run_once(max_bytes=1)
    log.trim("telemetry", 0, 3)
    with pytest.raises(PositionLost):
        StageRunner(Adder(), log, store).run_once()
    store.accept_loss("assemble", 0, "telemetry", 0)
    runner = StageRunner(Adder(), log, store)
    runner.run_once()
    assert runner.positions == {"telemetry:0": 4}


def test_a_tick_is_appended_when_a_timer_is_due_and_nothing_waits(log, store, clock):
    """Timers fire from records only: the owner of an idle partition appends one."""
    runner = StageRunner(Adder(delay=1_000), log, store)
    fill(log, 1)
    assert not runner.tick_if_due()
    runner.run_once()
    assert not runner.tick_if_due()
    clock.advance(1_000)
    assert runner.tick_if_due()
    assert not runner.tick_if_due()
    runner.run_once()
    assert not runner.tick_if_due()
    assert values(log) == ["telemetry@0:1", "tick"]
    record = log.read("telemetry", 0, 1)[0]
    tick = msgspec.json.decode(record.value, type=Tick)
    assert (tick.trajectory_id, record.headers["kind"], len(tick.id)) == ("-", "tick", 32)


def test_no_tick_while_records_wait(log, store, clock):
    """What waits will move the time itself."""
    runner = StageRunner(Adder(delay=1_000), log, store)
    fill(log, 1)
    runner.run_once()
    clock.advance(1_000)
    fill(log, 2)
    assert not runner.tick_if_due()


def test_inputs_are_merged_by_log_time_then_by_order(log, store, clock):
    """The same complete topics always give the same order, whatever the sizes of the groups."""
    for n in range(6):
        fill(log, n, topic="policy-events" if n % 2 else "grades")
        clock.advance(n % 3)
    orders = []
    for stage, limits in (("one", Limits()), ("two", Limits(commit_bytes=1)), ("three", Limits(commit_s=0))):
        adder = Adder(stage, ("grades", "policy-events"), "buffer-events")
        idle(StageRunner(adder, log, store, limits=limits), log=log)
        orders.append(adder.fed)
    # times: g0 0, p0 0, g1 1, p1 3, g2 3, p2 4
    expected = [("grades", 0), ("policy-events", 0), ("grades", 1), ("grades", 2), ("policy-events", 1)]
    assert orders == [[*expected, ("policy-events", 2)]] * 3


def test_the_order_taken_live_is_the_order_fed_again(log, store, clock):
    """An input that came late stays late when the state is rebuilt."""
    runner = StageRunner(Adder("buffer", ("grades", "policy-events"), "buffer-events"), log, store)
    fill(log, 1, topic="policy-events")
    runner.run_once()
    fill(log, 2, topic="grades")
    runner.run_once()
    fill(log, 3, topic="policy-events")
    runner.run_once()
    again = Adder("buffer", ("grades", "policy-events"), "buffer-events")
    StageRunner(again, log, store).start()
    assert again.fed == [("policy-events", 0), ("grades", 0), ("policy-events", 1)]


def test_one_writer_may_read_every_partition(tmp_path, clock):
    """The buffer reads all partitions of its inputs; other stages their own and the single topics."""
    embedded = open_sqlite(tmp_path / "wide.db", clock=clock, partitions=3)
    for partition in range(3):
        embedded.log.append("grades", [Message("k", b"1")], partition)
    wide = StageRunner(
        Adder("buffer", ("grades",), "buffer-events"), embedded.log, embedded.store, every_partition=True
    )
    assert wide.run_once() == 3
    narrow = StageRunner(Adder("x", ("grades", "policy-events"), "buffer-events"), embedded.log, embedded.store, 2)
    assert narrow.run_once() == 1
    assert narrow.positions == {"grades:2": 1, "policy-events:0": 0}
    embedded.close()


def test_driving_wakes_for_new_records_and_stops_when_told(log, store):
    """`up`: an append in another thread is processed soon, and a stop leaves a snapshot."""
    stop = threading.Event()
    thread = threading.Thread(target=drive, args=([StageRunner(Adder(), log, store)], log, stop))
    thread.start()
    fill(log, 1)
    assert log.wait({"trajectories:0": 0}, 20)
    stop.set()
    thread.join(20)
    again = Adder()
    StageRunner(again, log, store).start()
    assert (again.total, again.fed) == (1, [])


@given(
    numbers=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    lives=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=5),
    snapshot_bytes=st.integers(1, 8),
)
def test_dying_anywhere_changes_nothing(numbers, lives, snapshot_bytes):
    """Any number of lives of any length, ended cleanly or not: the outputs are those of one life."""
    with tempfile.TemporaryDirectory() as folder:
        embedded = open_sqlite(Path(folder) / "log.db", clock=ManualClock())
        for n in numbers:
            fill(embedded.log, n)
        limits = Limits(commit_bytes=2, snapshot_bytes=snapshot_bytes)
        for groups, clean in [*lives, (99, True)]:
            runner = StageRunner(Adder(), embedded.log, embedded.store, limits=limits)
            for _ in range(groups):
                runner.run_once()
            if clean:
                runner.close()
        assert sums(embedded.log) == [sum(numbers[: i + 1]) for i in range(len(numbers))]
        assert [r.headers["n"] for r in embedded.log.read("trajectories", 0, 0)] == [
            str(i + 1) for i in range(len(numbers))
        ]
        embedded.close()
