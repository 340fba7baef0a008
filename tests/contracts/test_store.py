"""What every adapter of the `Store` port keeps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from contracts.store_backends import redis_beside, sqlite_beside

from millstream.adapters.valkey import Valkey
from millstream.errors import Conflict, PositionLost, SettingsError, Stuck
from millstream.formats import NEWEST, Format, Owner, check_owners
from millstream.partition import partition_of
from millstream.ports import Consumed, Message, Output, StagePosition, StateCommit
from millstream.streams.publishing import batches
from millstream.version import __version__


@pytest.fixture(scope="module")
def valkey():
    """The embedded server, its socket in a folder with a short name."""
    folder = Path(tempfile.mkdtemp(prefix="ms-test-"))
    server = Valkey(folder / "valkey")
    yield server.start()
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(
    params=["sqlite", "sqlite beside", "valkey", pytest.param("redis", marks=pytest.mark.services)],
)
def backend(request, sqlite_backend, tmp_path):
    """One store, empty."""
    if request.param == "sqlite":
        yield sqlite_backend
        return
    if request.param == "sqlite beside":
        made = sqlite_beside(sqlite_backend, tmp_path)
    elif request.param == "valkey":
        made = redis_beside(sqlite_backend, request.getfixturevalue("valkey"))
    else:
        made = redis_beside(sqlite_backend, request.getfixturevalue("redis_server").url)
    yield made
    made.close()


def publish(log, outputs):
    """Append what a store left to its caller, as the runner does."""
    for (topic, partition), messages in batches(log, outputs, 1 << 20):
        log.append(topic, messages, partition)


def fill(log, count=10, topic="telemetry"):
    log.append(topic, [Message(str(n), b"x") for n in range(count)])


def assign(log, store, stage="assemble", partition=0, topics=("telemetry",)):
    return store.assign(stage, partition, {topic: log.topic_id(topic) for topic in topics})


def step(held, first, end, *, outputs=(), topic="telemetry", expected=None, **rest):
    """A commit of one run of inputs."""
    return StateCommit(
        assignment=held,
        expected={f"{topic}:0": first} if expected is None else expected,
        consumed=(Consumed(topic, 0, first, end),),
        outputs=tuple(outputs),
        **rest,
    )


def out(n, topic="trajectories"):
    return Output(topic, f"k{n}", f"v{n}".encode(), {"stage": "assemble", "source": "0", "n": str(n)})


def values(log, topic="trajectories", partition=0):
    return [r.value.decode() for r in log.read(topic, partition, 0)]


def test_a_new_stage_starts_from_nothing(log, store):
    """The first assignment has no position, state or marks, and a fence."""
    held = assign(log, store)
    assert (held.stage, held.partition, held.snapshot, held.journal) == ("assemble", 0, None, ())
    assert (held.positions, held.high_water, held.outbox) == ({}, {}, 0)
    assert held.fence >= 1
    assert held.topic_ids == {"telemetry": log.topic_id("telemetry")}


def test_outputs_and_position_are_written_together(log, store):
    """After a commit the outputs are in their topics and the position is past the inputs."""
    fill(log)
    publish(log, store.commit(step(assign(log, store), 0, 4, outputs=[out(1), out(2, "dead-letters"), out(3)])))
    assert values(log) == ["v1", "v3"]
    assert values(log, "dead-letters") == ["v2"]
    assert log.read("trajectories", 0, 0)[0].headers == {"stage": "assemble", "source": "0", "n": "1"}
    again = assign(log, store)
    assert again.positions == {"telemetry:0": 4}
    assert again.outbox == 3


def test_each_assignment_outranks_the_earlier_ones(log, store):
    """Fences rise, also over reopening."""
    fences = [assign(log, store).fence for _ in range(3)]
    assert fences == sorted(set(fences))


def test_an_old_fence_writes_nothing(log, store):
    """A worker that lost its stage is told so, and neither outputs nor state of it appear."""
    fill(log)
    old = assign(log, store)
    new = assign(log, store)
    with pytest.raises(Conflict, match="another worker"):
        store.commit(step(old, 0, 5, outputs=[out(1)], snapshot=b"old"))
    assert log.bounds("trajectories") == (0, 0)
    store.commit(step(new, 0, 2))
    assert assign(log, store).positions == {"telemetry:0": 2}


def test_another_expected_position_writes_nothing(log, store):
    """A commit that begins elsewhere than the store stands is refused whole."""
    fill(log)
    held = assign(log, store)
    publish(log, store.commit(step(held, 0, 3, outputs=[out(1)])))
    with pytest.raises(Conflict, match="stands at 3 of telemetry:0, not 0"):
        store.commit(step(held, 0, 3, outputs=[out(1)]))
    assert values(log) == ["v1"]
    store.commit(step(held, 3, 4))


def test_a_failing_commit_leaves_no_part_of_it(backend, log, store):
    """An output to a topic that is not there takes the whole step back, where the store writes it itself."""
    if getattr(backend, "publishes", False):
        pytest.skip("the outputs are left to the caller")
    fill(log)
    held = assign(log, store)
    with pytest.raises(Exception, match="nowhere"):
        store.commit(step(held, 0, 3, outputs=[out(1), out(2, "nowhere")], high_water={"s": 1}))
    assert log.bounds("trajectories") == (0, 0)
    again = assign(log, store)
    assert (again.positions, again.journal, again.high_water, again.outbox) == ({}, (), {}, 0)


def test_the_journal_keeps_what_was_fed_in_order(log, store):
    """Adjoining runs of one input grow together; a change of input begins a new run."""
    fill(log)
    fill(log, topic="policy-events")
    held = assign(log, store, "buffer", topics=("telemetry", "policy-events"))
    store.commit(step(held, 0, 3))
    store.commit(step(held, 3, 5))
    store.commit(step(held, 0, 2, topic="policy-events"))
    store.commit(step(held, 5, 6))
    assert assign(log, store, "buffer", topics=("telemetry", "policy-events")).journal == (
        Consumed("telemetry", 0, 0, 5),
        Consumed("policy-events", 0, 0, 2),
        Consumed("telemetry", 0, 5, 6),
    )


def test_a_commit_may_interleave_its_inputs(log, store):
    """Several runs of several inputs in one step keep their order and move both positions."""
    fill(log)
    fill(log, topic="grades")
    held = assign(log, store, "buffer", topics=("telemetry", "grades"))
    runs = (Consumed("telemetry", 0, 0, 2), Consumed("grades", 0, 0, 1), Consumed("telemetry", 0, 2, 3))
    store.commit(StateCommit(assignment=held, expected={"telemetry:0": 0, "grades:0": 0}, consumed=runs, outputs=()))
    again = assign(log, store, "buffer", topics=("telemetry", "grades"))
    assert again.journal == runs
    assert again.positions == {"telemetry:0": 3, "grades:0": 1}


def test_a_snapshot_replaces_the_journal(log, store):
    """State is the last snapshot and what was fed since."""
    fill(log)
    held = assign(log, store)
    store.commit(step(held, 0, 3))
    store.commit(step(held, 3, 5, snapshot=b"at 5"))
    again = assign(log, store)
    assert (again.snapshot, again.journal, again.positions) == (b"at 5", (), {"telemetry:0": 5})
    store.commit(step(again, 5, 6))
    third = assign(log, store)
    assert (third.snapshot, third.journal) == (b"at 5", (Consumed("telemetry", 0, 5, 6),))


def test_an_empty_snapshot_is_one(log, store):
    """A stage without state has the empty snapshot, not none."""
    fill(log)
    store.commit(step(assign(log, store), 0, 3, snapshot=b""))
    assert assign(log, store).snapshot == b""


def test_a_snapshot_may_be_written_alone(log, store):
    """At a clean stop there is nothing to consume, only a state to keep."""
    fill(log)
    held = assign(log, store)
    store.commit(step(held, 0, 3))
    store.commit(StateCommit(assignment=held, expected={"telemetry:0": 3}, consumed=(), outputs=(), snapshot=b"end"))
    again = assign(log, store)
    assert (again.snapshot, again.journal, again.positions) == (b"end", (), {"telemetry:0": 3})


def test_marks_only_change_where_they_are_given(log, store):
    """The high-water mark of each source is kept and replaced on its own."""
    fill(log)
    held = assign(log, store)
    store.commit(step(held, 0, 1, high_water={"grade:0": 4, "grade:1": 9}))
    store.commit(step(held, 1, 2, high_water={"grade:0": 7}))
    assert assign(log, store).high_water == {"grade:0": 7, "grade:1": 9}


def test_stages_and_partitions_are_apart(log, store):
    """Neither positions nor fences of one stage touch another's."""
    fill(log)
    one, other, third = (assign(log, store, *key) for key in (("assemble", 0), ("assemble", 1), ("grade", 0)))
    store.commit(step(one, 0, 4))
    store.commit(step(other, 0, 2))
    store.commit(step(third, 0, 1))
    assert [(p.stage, p.stage_partition, p.offset) for p in store.positions()] == [
        ("assemble", 0, 4),
        ("assemble", 1, 2),
        ("grade", 0, 1),
    ]


def test_positions_say_where_every_stage_is(log, store):
    """Before the first commit nothing stands anywhere."""
    assert store.positions() == ()
    fill(log)
    store.commit(step(assign(log, store), 0, 4))
    assert store.positions() == (
        StagePosition(
            stage="assemble",
            stage_partition=0,
            topic="telemetry",
            partition=0,
            topic_id=log.topic_id("telemetry"),
            offset=4,
        ),
    )


def test_outputs_go_to_the_partition_of_their_key(backend):
    """The same rule as every producer's: murmur2 of the key."""
    backend.create("wide", 4)
    log, store = backend.open()
    fill(log)
    outputs = [Output("wide", f"key-{n}", b"v") for n in range(20)]
    publish(log, store.commit(step(assign(log, store), 0, 1, outputs=outputs)))
    for partition in range(4):
        expected = [o.key for o in outputs if partition_of(o.key, 4) == partition]
        assert [r.key for r in log.read("wide", partition, 0)] == expected


def test_outputs_are_stamped_with_log_time(backend, log, store):
    """What a stage appends is stamped like any append."""
    if backend.clock is None:
        pytest.skip("this log's clock can't be moved by hand")
    fill(log)
    backend.clock.advance(1_000)
    publish(log, store.commit(step(assign(log, store), 0, 1, outputs=[out(1)])))
    backend.clock.advance(-10_000)
    publish(log, store.commit(step(assign(log, store), 1, 2, outputs=[out(2)])))
    first, second = log.read("trajectories", 0, 0)
    assert first.log_ms == second.log_ms == log.read("telemetry", 0, 0)[0].log_ms + 1_000


def test_a_topic_made_again_stops_the_stage(backend):
    """A position in another life of a topic is no position: a person must decide."""
    backend.create("t", 1)
    log, store = backend.open()
    fill(log, topic="t")
    held = assign(log, store, topics=("t",))
    store.commit(step(held, 0, 4, topic="t"))
    backend.delete("t")
    backend.create("t", 1)
    with pytest.raises(PositionLost, match="made again"):
        assign(log, store, topics=("t",))
    with pytest.raises(PositionLost, match="made again"):
        store.commit(step(held, 4, 5, topic="t"))


def test_accepting_the_loss_of_a_topic_starts_it_over(backend):
    """The hole is recorded and the stage reads the new topic from its first offset."""
    backend.create("t", 1)
    log, store = backend.open()
    fill(log, topic="t")
    old = log.topic_id("t")
    store.commit(step(assign(log, store, topics=("t",)), 0, 4, topic="t", snapshot=b"s"))
    backend.delete("t")
    backend.create("t", 1)
    (gap,) = store.accept_loss("assemble", 0, "t", 0)
    assert (gap.stage, gap.topic, gap.topic_id, gap.first) == ("assemble", "t", old, 4)
    assert store.gaps() == (gap,)
    held = assign(log, store, topics=("t",))
    assert (held.positions, held.snapshot) == ({"t:0": 0}, b"s")


def test_accepting_the_loss_of_dropped_records_names_them(backend, log, store):
    """Retention overtook a stage: the position moves to what is left and the rest is a gap."""
    for _ in range(5):
        fill(log, 2)
    store.commit(step(assign(log, store), 0, 3, snapshot=b"at 3"))
    backend.trim("telemetry", 0, 8)
    (gap,) = store.accept_loss("assemble", 0, "telemetry", 0)
    assert (gap.first, gap.end) == (3, 8)
    assert assign(log, store).positions == {"telemetry:0": 8}


def test_accepting_a_loss_where_nothing_is_lost_records_nothing(log, store):
    """A healthy stage stays where it is."""
    fill(log)
    store.commit(step(assign(log, store), 0, 3))
    assert store.accept_loss("assemble", 0, "telemetry", 0) == ()
    assert store.gaps() == ()
    assert assign(log, store).positions == {"telemetry:0": 3}


def test_everything_is_there_after_reopening(backend, log, store):
    """Another handle on the same data sees positions, state, marks and outbox."""
    fill(log)
    store.commit(step(assign(log, store), 0, 3, outputs=[out(1)], high_water={"s:0": 5}, snapshot=b"s"))
    other_log, other_store = backend.open()
    held = assign(other_log, other_store)
    assert (held.positions, held.snapshot, held.high_water, held.outbox) == ({"telemetry:0": 3}, b"s", {"s:0": 5}, 1)


def test_a_killed_worker_leaves_whole_steps(log, store, spawn):
    """kill -9 in the middle of commits: outputs, position, outbox and state always tell one story."""
    fill(log, 5000)
    worker = spawn(
        "from millstream.ports import *\n"
        "from millstream.streams.publishing import batches\n"
        "held = store.assign('assemble', 0, {'telemetry': log.topic_id('telemetry')})\n"
        "for n in range(5000):\n"
        "    outputs = (Output('trajectories', 'k', str(n).encode()), Output('grades', 'k', str(n).encode()))\n"
        "    waiting = store.commit(StateCommit(assignment=held, expected={'telemetry:0': n},\n"
        "        consumed=(Consumed('telemetry', 0, n, n + 1),), outputs=outputs, high_water={'s': n},\n"
        "        snapshot=str(n).encode() if n % 7 == 0 else None, published=2 * n))\n"
        "    for place, messages in batches(log, waiting, 1 << 20):\n"
        "        log.append(place[0], messages, place[1])\n"
        "    print(n, flush=True)\n"
    )
    assert any(int(line) == 30 for line in worker.stdout)
    worker.kill()
    worker.wait()
    held = assign(log, store)
    done = held.positions["telemetry:0"]
    assert done >= 31
    told = [str(n) for n in range(done)]
    for topic in ("trajectories", "grades"):
        kept = [out.value.decode() for out in held.unpublished if out.topic == topic]
        assert values(log, topic) in (told, told[: done - len(kept)])
    assert held.outbox == 2 * done
    assert held.high_water == {"s": done - 1}
    at = int(held.snapshot)
    assert at == (done - 1) // 7 * 7
    assert held.journal == (() if at + 1 == done else (Consumed("telemetry", 0, at + 1, done),))


def test_what_is_not_published_waits_in_order(backend, log, store):
    """The outbox gives back what was committed until its number is noted as published."""
    fill(log)
    held = assign(log, store)
    store.commit(step(held, 0, 1, outputs=[out(1), out(2)]))
    store.commit(step(held, 1, 2, outputs=[out(3)], published=1))
    waiting = assign(log, store).unpublished
    assert store.waiting() == ({"assemble": len(waiting)} if waiting else {})
    if not getattr(backend, "publishes", False):
        assert waiting == ()
        assert values(log) == ["v1", "v2", "v3"]
        return
    assert waiting == (out(2), out(3))
    held = assign(log, store)
    store.commit(StateCommit(assignment=held, expected={"telemetry:0": 2}, consumed=(), outputs=(), published=3))
    assert (assign(log, store).unpublished, assign(log, store).outbox) == ((), 3)
    assert store.waiting() == {}


def test_a_refused_commit_keeps_the_outbox(log, store):
    """Neither its outputs nor what it says is published counts."""
    fill(log)
    old = assign(log, store)
    store.commit(step(old, 0, 1, outputs=[out(1)]))
    waiting = assign(log, store).unpublished
    with pytest.raises(Conflict):
        store.commit(step(old, 1, 2, outputs=[out(2)], published=1))
    assert assign(log, store).unpublished == waiting
    assert assign(log, store).outbox == 1


NEXT = Format(NEWEST.number + 1, "9.1.0")


def test_a_new_store_has_the_newest_format(log, store):
    """Told before and after the first assignment, and with it."""
    assert store.format() == NEWEST
    assert assign(log, store).format == NEWEST
    assert store.format() == NEWEST


def test_a_raised_format_reaches_a_worker_with_its_next_commit(log, store):
    """Nothing of a commit in the format before is written; what was written before stays."""
    fill(log)
    held = assign(log, store)
    publish(log, store.commit(step(held, 0, 4, outputs=[out(1)])))
    store.raise_format(NEXT)
    with pytest.raises(Conflict, match=f"format is {NEXT.number} "):
        store.commit(step(held, 4, 6, outputs=[out(2)]))
    assert values(log) == ["v1"]


def test_a_build_that_does_not_read_the_format_takes_nothing(log, store, backend):
    """It is told the version to install, and whoever has the stage keeps it: the fence stands."""
    store.raise_format(NEXT)
    store.raise_format(NEWEST)  # lower: changes nothing
    for ask in (store.format, lambda: assign(log, store)):
        with pytest.raises(Stuck, match=rf"format {NEXT.number}; .*millstream 9\.1\.0 or later"):
            ask()
    assert store.owners() == ()


def test_who_had_a_stage_last_is_remembered(log, store):
    """By version and the newest format it reads; one that reads less holds the raise back."""
    for stage, partition in (("assemble", 1), ("grade", 0), ("assemble", 0)):
        assign(log, store, stage, partition)
    told = {"version": __version__, "reads": NEWEST.number}
    owners = store.owners()
    places = ("assemble", 0), ("assemble", 1), ("grade", 0)
    assert owners == tuple(Owner(stage=stage, partition=partition, **told) for stage, partition in places)
    check_owners(owners, NEWEST)
    with pytest.raises(SettingsError, match=r"assemble:0 \(millstream .*--force"):
        check_owners(owners, NEXT)
