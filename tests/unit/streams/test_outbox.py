"""The outbox: what a stage committed reaches the log, whenever it dies, and counts once."""

from __future__ import annotations

import json
import threading

import msgspec
import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_store import SqliteStore
from millstream.delivery import Marks
from millstream.errors import TooLarge, Unavailable
from millstream.ledger import read_all
from millstream.ports import Message, Output, Record
from millstream.streams.driving import drive
from millstream.streams.publishing import batches
from millstream.streams.runner import StageRunner


class Echo:
    """Tells each record on, with a count that is its state."""

    def __init__(self, name="assemble", source="telemetry", target="trajectories"):
        self.name, self.inputs, self.target, self.count = name, (source,), target, 0

    def feed(self, record):
        self.count += 1
        return (Output(self.target, record.key, b"%s/%d" % (record.value, self.count)),)

    def deadline_ms(self):
        return None

    def snapshot(self):
        return msgspec.json.encode(self.count)

    def restore(self, snapshot):
        self.count = msgspec.json.decode(snapshot)


class Dying:
    """A log whose appends to one topic fail as often as told: before they are written, or after."""

    def __init__(self, log, topic, *faults):
        self.log, self.topic, self.faults = log, topic, list(faults)

    def __getattr__(self, name):
        return getattr(self.log, name)

    def append(self, topic, messages, partition=0):
        fault = self.faults.pop(0) if topic == self.topic and self.faults else ""
        if fault == "before":
            raise KeyboardInterrupt
        offset = self.log.append(topic, messages, partition)
        if fault == "after":
            raise KeyboardInterrupt
        if fault == "unheard":
            raise Unavailable("no answer")
        return offset


@pytest.fixture
def log(tmp_path):
    with_store = open_sqlite(tmp_path / "log.db", partitions=3)
    yield with_store.log
    with_store.close()


@pytest.fixture
def file(tmp_path):
    made = SqliteFile(tmp_path / "state.db")
    yield made
    made.close()


def fill(log, *values, partition=0):
    log.append("telemetry", [Message(f"key-{value}", value.encode()) for value in values], partition)


def told(log, topic="trajectories"):
    found = [r for p in range(log.partitions(topic)) for r in read_all(log, topic, p)]
    return sorted(record.value.decode() for record in found)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_stage_that_dies_while_publishing_publishes_again(log, file, fault):
    """Whether the batch had arrived or not: after the next start each output counts once."""
    fill(log, *"abcdef")
    dying = StageRunner(Echo(), Dying(log, "trajectories", "", fault), SqliteStore(log, file))
    with pytest.raises(KeyboardInterrupt):
        dying.run_once()
    again = StageRunner(Echo(), log, SqliteStore(log, file))
    assert again.run_once() == 0
    assert told(log) == ["a/1", "b/2", "c/3", "d/4", "e/5", "f/6"]


def test_an_unheard_append_is_tried_again_and_counts_once(log, file):
    """The append arrived and its answer did not."""
    fill(log, *"abc")
    StageRunner(Echo(), Dying(log, "trajectories", "unheard"), SqliteStore(log, file)).run_once()
    assert told(log) == ["a/1", "b/2", "c/3"]
    next_stage = StageRunner(Echo("grade", "trajectories", "grades"), log, SqliteStore(log, file), every_partition=True)
    drive([next_stage], log, threading.Event(), until_idle=True)
    assert len(told(log, "grades")) == 3
    assert next_stage.skipped >= 1


def test_a_clean_stop_leaves_an_empty_outbox(log, file):
    """The last group is noted as published, also by a stage without state."""
    for stateless in (False, True):
        echo = Echo(f"echo-{stateless}")
        echo.stateless = stateless
        fill(log, "a")
        runner = StageRunner(echo, log, SqliteStore(log, file))
        drive([runner], log, threading.Event(), until_idle=True)
        ids = {"telemetry": log.topic_id("telemetry")}
        assert SqliteStore(log, file).assign(echo.name, 0, ids).unpublished == ()


def test_an_idle_stage_notes_what_was_published(log, file):
    """Nothing is said to wait once the stage has nothing to do."""
    fill(log, "a")
    store = SqliteStore(log, file)
    runner = StageRunner(Echo(), log, store)
    assert runner.run_once() == 1
    assert store.waiting() == {"assemble": 1}
    assert runner.run_once() == 0
    assert store.waiting() == {}


def test_batches_keep_the_order_of_each_partition(log):
    """Outputs go by partition, in pieces of at most the bytes asked (and one more)."""
    outputs = [Output("grades", f"k{n % 7}", b"%03d" % n) for n in range(100)]
    places = {}
    for (_, partition), messages in batches(log, outputs, 10):
        assert len(messages) <= 4
        places.setdefault(partition, []).extend(m.value for m in messages)
    assert len(places) == 3
    assert all(values == sorted(values) for values in places.values())
    assert sorted(v for values in places.values() for v in values) == [out.value for out in outputs]


def test_marks_take_each_number_of_a_source_once():
    """Sources, partitions and topics are apart; what no stage wrote is always new."""
    marks = Marks()

    def record(n, source="0", partition=0, topic="grades"):
        return Record(topic, partition, 0, 0, "", b"", {"stage": "grade", "source": source, "n": n} if n else {})

    assert [marks.take(record(n)) for n in ("1", "2", "2", "1", "3", "", "")] == [
        True, True, False, False, True, True, True,
    ]  # fmt: skip
    assert marks.take(record("1", source="1"))
    assert marks.take(record("1", partition=1))
    assert marks.take(record("1", topic="trajectories"))


def test_an_output_that_no_topic_takes_is_a_dead_letter(log, file):
    """Its neighbours arrive, nothing is tried for ever, and the dead letter says what was too large."""

    class Narrow(Dying):
        def append(self, topic, messages, partition=0):
            if topic == self.topic and any(len(m.value) > 9 for m in messages):
                raise TooLarge("a record of many bytes")
            return self.log.append(topic, messages, partition)

    fill(log, "a", "b" * 20, "c")
    StageRunner(Echo(), Narrow(log, "trajectories"), SqliteStore(log, file)).run_once()
    assert told(log) == ["a/1", "c/3"]
    (letter,) = (json.loads(text) for text in told(log, "dead-letters"))
    assert (letter["reason"], letter["topic"], letter["original"]) == ("too_large", "trajectories", "b" * 20 + "/2")
