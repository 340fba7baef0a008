"""What every adapter of the `Log` port keeps."""

from __future__ import annotations

import threading

import pytest

from millstream.errors import EventError, PositionLost, SettingsError
from millstream.partition import slot
from millstream.ports import Message


def messages(*keys: str) -> list[Message]:
    return [Message(key, key.encode()) for key in keys]


def keys(log, topic="telemetry", partition=0, offset=0, max_bytes=1 << 20):
    return [record.key for record in log.read(topic, partition, offset, max_bytes)]


def test_records_come_back_in_the_order_of_appending(log):
    """Two appends are read as one sequence of dense offsets."""
    assert log.append("telemetry", messages("a", "b")) == 0
    assert log.append("telemetry", messages("c")) == 2
    records = log.read("telemetry", 0, 0)
    assert [(r.offset, r.key, r.value) for r in records] == [(0, "a", b"a"), (1, "b", b"b"), (2, "c", b"c")]
    assert {(r.topic, r.partition) for r in records} == {("telemetry", 0)}


def test_reading_begins_at_the_offset_asked_for(log):
    """An offset in the middle of an append gives the rest of it."""
    log.append("telemetry", messages("a", "b", "c"))
    assert keys(log, offset=1) == ["b", "c"]


def test_the_end_of_a_topic_is_no_error(log):
    """At the next offset to be written there is nothing yet."""
    log.append("telemetry", messages("a"))
    assert list(log.read("telemetry", 0, 1)) == []


def test_headers_none_and_bytes_round_trip(log):
    """Headers, tombstones, empty values, NULs and any text in keys come back as they were."""
    sent = [
        Message("ключ", b"\x00\xff{", {"dialect": "millstream", "ü": ""}),
        Message("", None),
        Message("k", b""),
    ]
    log.append("telemetry", sent)
    assert [Message(r.key, r.value, r.headers) for r in log.read("telemetry", 0, 0)] == sent


def test_a_key_that_is_no_text_is_refused_whole(log):
    """A lone surrogate can't be written: nothing of that append is."""
    with pytest.raises(EventError, match="UTF-8"):
        log.append("telemetry", [Message("a", b"a"), Message("\ud800", b"b")])
    assert log.bounds("telemetry") == (0, 0)


def test_bounds_follow_appending(log):
    """The bounds are the first kept and the next to be written."""
    assert log.bounds("telemetry") == (0, 0)
    log.append("telemetry", messages("a", "b"))
    assert log.bounds("telemetry") == (0, 2)


def test_an_empty_append_changes_nothing(log):
    """Appending nothing answers where the next record would be."""
    log.append("telemetry", messages("a"))
    assert log.append("telemetry", []) == 1
    assert log.bounds("telemetry") == (0, 1)


def test_a_read_stops_near_its_byte_limit_and_never_starves(log):
    """At least one record, and no more than the limit and one append beyond it."""
    for n in range(10):
        log.append("telemetry", [Message(str(n), b"x" * 1000)])
    assert keys(log, max_bytes=1) == ["0"]
    assert 2 <= len(keys(log, max_bytes=2500)) <= 4


def test_a_large_append_is_one_step_but_readable_in_parts(log):
    """3 MB appended at once need not be read at once."""
    log.append("telemetry", [Message(str(n), b"x" * 100_000) for n in range(30)])
    first = keys(log, max_bytes=1)
    assert 1 <= len(first) < 30
    assert keys(log, max_bytes=1 << 30) == [str(n) for n in range(30)]


def test_partitions_are_apart(backend):
    """Each partition has its own offsets."""
    backend.create("wide", 3)
    log, _ = backend.open()
    assert log.partitions("wide") == 3
    log.append("wide", messages("a"), partition=2)
    assert [log.bounds("wide", p) for p in range(3)] == [(0, 0), (0, 0), (0, 1)]
    assert keys(log, "wide", 2) == ["a"]


def test_single_topics_have_one_partition(log):
    """The topics with one writer are never split."""
    assert log.partitions("buffer-events") == log.partitions("policy-events") == 1


def test_an_unknown_topic_or_partition_names_what_there_is(log):
    """The mend is in the message."""
    with pytest.raises(SettingsError, match="telemetry"):
        log.append("telemetri", messages("a"))
    with pytest.raises(SettingsError, match="0 to 0"):
        log.read("telemetry", 7, 0)


def test_the_topic_id_is_the_topic_s_for_life(backend):
    """Every handle sees one id; a topic that is made again has another."""
    log, _ = backend.open()
    backend.create("t", 1)
    first = log.topic_id("t")
    assert backend.open()[0].topic_id("t") == first
    backend.create("t", 1)
    assert log.topic_id("t") == first
    backend.delete("t")
    backend.create("t", 1)
    assert log.topic_id("t") != first


def test_log_time_is_the_log_s(backend, log):
    """A record is stamped when it is appended, whatever its producer says."""
    if backend.clock is None:
        pytest.skip("this log's clock can't be moved by hand")
    log.append("telemetry", messages("a"))
    backend.clock.advance(5_000)
    log.append("telemetry", messages("b"))
    first, second = log.read("telemetry", 0, 0)
    assert second.log_ms - first.log_ms == 5_000
    assert log.now_ms() == second.log_ms


def test_log_time_never_goes_back(backend, log):
    """A clock that is set back does not move the log's time."""
    if backend.clock is None:
        pytest.skip("this log's clock can't be moved by hand")
    log.append("telemetry", messages("a"))
    backend.clock.advance(-60_000)
    log.append("telemetry", messages("b"))
    times = [record.log_ms for record in log.read("telemetry", 0, 0)]
    assert times[0] == times[1] == log.now_ms()


def test_a_position_outside_is_lost_not_moved(backend, log):
    """Beyond the end or below what is kept: an error, never a silent start at another place."""
    for key in "abc":
        log.append("telemetry", messages(key))
    with pytest.raises(PositionLost, match="offset 4 of telemetry:0"):
        log.read("telemetry", 0, 4)
    backend.trim("telemetry", 0, 2)
    assert log.bounds("telemetry") == (2, 3)
    with pytest.raises(PositionLost, match="accept-loss"):
        log.read("telemetry", 0, 1)
    assert keys(log, offset=2) == ["c"]


def test_offsets_go_on_after_everything_was_dropped(backend, log):
    """Retention never lets an offset be used twice."""
    log.append("telemetry", messages("a", "b"))
    backend.trim("telemetry", 0, 2)
    assert log.bounds("telemetry") == (2, 2)
    assert log.append("telemetry", messages("c")) == 2


def test_another_handle_reads_what_was_appended(backend, log):
    """What an append returned from is there for everybody."""
    other, _ = backend.open()
    log.append("telemetry", messages("a"))
    assert keys(other) == ["a"]


def test_many_processes_append_and_nothing_is_lost_or_mixed(log, spawn):
    """Four writers, one reader: every append whole, in its writer's order, offsets dense."""
    code = (
        "import sys\nfrom millstream.ports import Message\n"
        "for n in range(25):\n"
        "    log.append('telemetry', [Message(f'{NAME}:{n}:{i}', b'x') for i in range(4)])\n"
    )
    writers = [spawn(f"NAME = {name}\n{code}") for name in range(4)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    records = log.read("telemetry", 0, 0, 1 << 30)
    assert [r.offset for r in records] == list(range(400))
    for name in range(4):
        own = [r for r in records if r.key.startswith(f"{name}:")]
        assert [r.key for r in own] == [f"{name}:{n}:{i}" for n in range(25) for i in range(4)]
    appends = [tuple(r.key.rsplit(":", 1)[0] for r in records[i : i + 4]) for i in range(0, 400, 4)]
    assert all(len(set(four)) == 1 for four in appends)


def test_threads_of_one_process_append_and_read(log):
    """A log may be used from any thread."""
    threads = [
        threading.Thread(target=lambda name=name: [log.append("telemetry", messages(f"{name}")) for _ in range(20)])
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(log)) == sorted(str(n) for n in range(4) for _ in range(20))


def test_a_killed_writer_leaves_whole_appends(log, spawn):
    """kill -9 in the middle: what was answered is there, what was not is whole or absent."""
    writer = spawn(
        "from millstream.ports import Message\n"
        "n = 0\n"
        "while True:\n"
        "    log.append('telemetry', [Message(str(n), b'x' * 2000)] * 3)\n"
        "    print(n, flush=True)\n"
        "    n += 1\n"
    )
    for line in writer.stdout:
        answered = int(line)
        if answered == 20:
            break
    writer.kill()
    rest = writer.communicate()[0].split()
    answered = int(rest[-1]) if rest else answered
    found = keys(log, max_bytes=1 << 30)
    assert len(found) % 3 == 0
    assert len(found) >= 3 * (answered + 1)
    assert found == [str(n) for n in range(len(found) // 3) for _ in range(3)]
    log.append("telemetry", messages("after"))
    assert keys(log, offset=len(found)) == ["after"]


def test_waiting_ends_at_once_when_something_is_there(log):
    """A position behind the end needs no waiting."""
    log.append("telemetry", messages("a"))
    assert log.wait({slot("telemetry", 0): 0}, 0)
    assert not log.wait({slot("telemetry", 0): 1}, 0)


def test_waiting_is_woken_by_this_and_by_other_processes(backend, log, spawn):
    """A reader learns of an append, whoever made it, well before its patience ends."""
    timer = threading.Timer(0.02, lambda: backend.open()[0].append("grades", messages("a")))
    timer.start()
    assert log.wait({slot("telemetry", 0): 0, slot("grades", 0): 0}, 20)
    timer.join()
    spawn("from millstream.ports import Message\nlog.append('telemetry', [Message('b', b'b')])\n")
    assert log.wait({slot("telemetry", 0): 0}, 20)
