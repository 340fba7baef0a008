"""What workers withstand: deaths at every step, members that come and go, a group deleted, servers that die."""

from __future__ import annotations

import json
import signal

import pytest
from integration.workers.flow import POISON_EVERY, SETTINGS, events, outcome, send
from services.kafka_node import KafkaNode
from services.redis_server import RedisServer

from millstream import failpoints

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

STAGES = ("assemble", "grade", "buffer")


def halves(mill, stream):
    """Send the first half; what sends the second."""
    middle = len(stream) // 2
    send(mill.log, stream[:middle], poison_every=POISON_EVERY)
    return lambda: send(mill.log, stream[middle:])


@pytest.fixture(scope="module")
def halved(tmp_path_factory, stream, embedded_outcome):
    """What the embedded log makes of a stream that was sent in two halves."""
    return embedded_outcome(lambda log: [send(log, stream[: len(stream) // 2], poison_every=POISON_EVERY),
                                         send(log, stream[len(stream) // 2 :])])  # fmt: skip


@pytest.mark.parametrize(
    "places",
    [
        (failpoints.BEFORE_COMMIT, failpoints.BEFORE_PUBLISH, failpoints.AFTER_PUBLISH),
        (failpoints.IN_PUBLISH, failpoints.AFTER_PUBLISH, failpoints.BEFORE_COMMIT),
    ],
)
def test_a_death_at_any_step_costs_nothing(works, wait, stream, halved, places):
    """kill -9 of each stage at a place of its own, each is started again: nothing lost, nothing doubled."""
    mill = works(more=SETTINGS)
    rest = halves(mill, stream)
    dying = [mill.start(s, env={"MILLSTREAM_FAILPOINT": f"{at}:2"}) for s, at in zip(STAGES, places, strict=True)]
    wait(lambda: dying[0].poll() is not None, dying[0].told)
    assert dying[0].returncode == -signal.SIGKILL
    started = [mill.start(stage) for stage in ("assemble", "grade")]
    rest()
    wait(lambda: all(process.poll() is not None for process in dying), "not all came to the failpoint")
    started.append(mill.start("buffer"))
    wait(mill.settled, lambda: "".join(process.told() for process in started))
    assert outcome(mill.log) == halved
    assert mill.end(*started) == [0, 0, 0]


def test_members_come_and_go(works, wait, stream, halved):
    """A second worker joins under load, the first is killed, a third takes its place."""
    mill = works(more=SETTINGS)
    rest = halves(mill, stream)
    others = [mill.start(stage) for stage in ("grade", "buffer")]
    first = mill.start("assemble")
    wait(lambda: mill.records("trajectories"), first.told)
    second = mill.start("assemble")
    rest()
    mill.end(first, by=signal.SIGKILL)
    third = mill.start("assemble")
    wait(mill.settled, lambda: second.told() + third.told())
    assert outcome(mill.log) == halved
    assert mill.end(second, third, *others) == [0, 0, 0, 0]


def test_a_deleted_group_changes_nothing(works, wait, stream, halved):
    """The store says where to go on, whatever the group has forgotten."""
    mill = works(more=SETTINGS)
    rest = halves(mill, stream)
    started = [mill.start(stage) for stage in STAGES]
    wait(mill.settled, lambda: "".join(process.told() for process in started))
    mill.end(*started, by=signal.SIGKILL)
    mill.forget_groups()
    rest()
    again = [mill.start(stage) for stage in STAGES]
    wait(mill.settled, lambda: "".join(process.told() for process in again))
    assert outcome(mill.log) == halved
    assert mill.end(*again) == [0, 0, 0]


def test_a_dead_redis_slows_and_loses_nothing(works, wait, stream, halved, tmp_path):
    """The server of state and buffer is killed under load and comes back with what it had."""
    server = RedisServer(tmp_path / "redis", "--appendfsync", "always")
    server.start()
    mill = works(more=SETTINGS, redis=server)
    try:
        started = [mill.start(stage) for stage in STAGES]
        rest = halves(mill, stream)
        wait(lambda: mill.records("trajectories"), started[0].told)
        server.kill()
        rest()
        wait(lambda: "trying again" in started[0].told(), started[0].told)
        assert [process.poll() for process in started] == [None] * 3
        server.start()
        wait(mill.settled, lambda: "".join(process.told() for process in started))
        assert outcome(mill.log) == halved
        assert mill.end(*started) == [0, 0, 0]
    finally:
        mill.close()
        server.stop()


def test_a_dead_kafka_slows_and_loses_nothing(works, wait, stream, halved, tmp_path):
    """The broker is killed under load and comes back: the same processes go on."""
    node = KafkaNode(tmp_path / "kafka")
    node.start()
    mill = works(more=SETTINGS, kafka=node)
    try:
        started = [mill.start(stage) for stage in STAGES]
        rest = halves(mill, stream)
        wait(lambda: mill.records("trajectories"), started[0].told)
        node.kill()
        wait(lambda: "trying again" in "".join(process.told() for process in started), started[0].told)
        node.start()
        rest()
        wait(mill.settled, lambda: "".join(process.told() for process in started), patience_s=100)
        assert outcome(mill.log) == halved
        assert mill.end(*started) == [0, 0, 0]
    finally:
        mill.close()
        node.stop()


def test_a_topic_made_again_stops_the_stage_until_the_loss_is_accepted(works, wait):
    """Exit 3 with one line; --accept-loss records the gap, and what comes then is assembled."""
    mill = works(more=SETTINGS)
    send(mill.log, events(8))
    worker = mill.start("assemble")
    wait(lambda: len(mill.records("trajectories")) == 8, worker.told)
    with mill.runtime.topics() as topics:
        topics.delete("telemetry")
    wait(lambda: worker.poll() is not None, worker.told)
    assert worker.returncode == 3, worker.told()
    mill.make_topics()
    stuck = mill.start("assemble")
    wait(lambda: stuck.poll() is not None, stuck.told)
    assert stuck.returncode == 3
    assert "--accept-loss" in stuck.told()
    assert "Traceback" not in stuck.told()
    send(mill.fresh_log(), events(8, seed=1))
    going = mill.start("assemble", "--accept-loss")
    wait(lambda: len(mill.records("trajectories")) == 16, going.told)
    assert "accepted the loss" in going.told()
    assert {gap.topic for gap in mill.store.gaps()} == {"telemetry"}
    assert mill.end(going) == [0]


def test_a_stream_of_garbage_stops_the_stage(works, wait):
    """Half of the last events are unusable: exit 3, and the message says what to look at."""
    mill = works(more="max_dead_share = 0.3\ndead_window = 100\n")
    send(mill.log, events(100), poison_every=1)
    worker = mill.start("assemble")
    wait(lambda: worker.poll() is not None, worker.told)
    assert worker.returncode == 3
    assert "dead-letters list" in worker.told()


def test_a_fault_of_the_program_ends_with_70(works, wait):
    """State that can't be read is nothing to go on with: one line, and nothing is acknowledged."""
    mill = works()
    send(mill.log, events(4))
    mill.spoil_state("assemble")
    worker = mill.start("assemble")
    wait(lambda: worker.poll() is not None, worker.told)
    assert worker.returncode == 70
    assert "internal error" in worker.told()
    assert "Traceback" not in worker.told()


def test_two_installations_never_meet(works, wait):
    """The same names in two namespaces of one cluster and one Redis: each has its own runs, and only them."""
    mills = [works(name, more=SETTINGS) for name in ("a", "b")]
    for seed, mill in enumerate(mills):
        send(mill.log, events(8, seed=seed))
    started = [mill.start(stage) for mill in mills for stage in STAGES]
    for seed, mill in enumerate(mills):
        wait(mill.settled, lambda: "".join(process.told() for process in started))
        names = {json.loads(record.value)["id"] for record in mill.records("trajectories")}
        assert {name.split("-")[1] for name in names} == {str(seed)}
        wait(lambda mill=mill: mill.runtime.buffer().stats().rollouts == 8, "the buffer lacks rollouts")
    assert mills[0].end(*started) == [0] * 6


def test_what_a_worker_can_not_start_on_is_said_in_one_line(works):
    """Missing topics and an embedded log: the command that mends it."""
    mill = works(topics=False)
    lacking = mill.run("worker", "assemble")
    assert lacking.returncode == 3
    assert "topics create" in lacking.stderr
    mill.settings_file.write_text("")
    embedded = mill.run("worker", "assemble")
    assert embedded.returncode == 2
    assert "millstream up" in embedded.stderr
    assert len(embedded.stderr.strip().splitlines()) <= 2


SLOW = """
import time
import millstream as ms

@ms.grader
def slow(t):
    time.sleep(0.7)
    return 1.0
"""


def test_slow_graders_keep_their_partitions(works, wait):
    """Grading takes longer than the poll interval: nothing is revoked, nothing graded twice, order is kept."""
    mill = works(
        partitions=1, more='poll_s = 2\n[graders]\nenabled = []\nfiles = ["g.py"]\n[reward]\nformula = "slow"\n'
    )
    (mill.folder / "g.py").write_text(SLOW)
    send(mill.log, events(12))
    started = [mill.start(stage) for stage in ("assemble", "grade")]
    wait(lambda: mill.log.bounds("grades", 0)[1] >= 12, started[1].told)
    assert mill.end(*started) == [0, 0]
    told = [record.key for record in mill.log.read("grades", 0, 0)]
    assert told == [record.key for record in mill.log.read("trajectories", 0, 0)]
    assert "have not left" not in started[1].told()
