"""Growing telemetry: drained, a new generation with more partitions takes over, and the books stay balanced."""

from __future__ import annotations

from contextlib import closing

import pytest
from msgspec import structs

from millstream.adapters.kafka_log import KafkaLog
from millstream.adapters.kafka_topics import KafkaTopics
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_store import SqliteStore
from millstream.codec import encode_lines
from millstream.console.audit import audit
from millstream.errors import PositionLost
from millstream.events import MessageReceived, TrajectoryEnded, TrajectoryStarted
from millstream.graders.running import GraderSet
from millstream.partition import partition_of
from millstream.ports import Message
from millstream.settings import BufferSettings, RewardSettings, Settings
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.driving import step
from millstream.streams.grading import GradingStage
from millstream.streams.runner import StageRunner
from millstream.topics import ALL

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]  # a node takes its time on a busy machine
SETTINGS = Settings()


def grown(cluster, **changes):
    return structs.replace(cluster, settings=structs.replace(cluster.settings, **changes))


def send(log, *names):
    for name in names:
        common = {"trajectory_id": name, "producer": "sdk"}
        events = [
            TrajectoryStarted(id=f"{name}-0", seq=0, **common),
            MessageReceived(id=f"{name}-1", seq=1, content="How much?", **common),
            TrajectoryEnded(id=f"{name}-2", seq=2, final_answer="1", last_seq={"sdk": 2}, **common),
        ]
        partition = partition_of(name, log.partitions("telemetry"))
        log.append("telemetry", [Message(name, encode_lines(events))], partition)


def runners(log, store):
    """Every stage, one runner for each partition of its input."""
    return [
        *(
            StageRunner(Assembler(SETTINGS.assembly, topic_id=log.topic_id("telemetry")), log, store, partition)
            for partition in range(log.partitions("telemetry"))
        ),
        *(
            StageRunner(GradingStage(GraderSet([]), topic_id=log.topic_id("trajectories")), log, store, partition)
            for partition in range(log.partitions("trajectories"))
        ),
        StageRunner(BufferingStage(BufferSettings(), RewardSettings()), log, store, every_partition=True),
    ]


def work_off(log, store):
    stages = runners(log, store)
    while step(stages):
        pass
    for stage in stages:
        stage.close()
    return audit(log, store, SETTINGS)


@pytest.fixture
def file(tmp_path):
    found = SqliteFile(tmp_path / "state.db")
    yield found
    found.close()


def test_telemetry_grows_by_a_generation(cluster, topics, file):
    """Two partitions, drained; then four of a new topic. Nothing is lost, doubled or taken for an invention."""
    before, after = [f"a{n}" for n in range(20)], [f"b{n}" for n in range(20)]
    with closing(KafkaLog(cluster)) as log:
        send(log, *before)
        found = work_off(log, SqliteStore(log, file))
        assert (found.differences, found.caught_up, found.count("events", "in a trajectory")) == ((), True, 60)

    larger = grown(cluster, telemetry_generation=2, partitions=4)
    with closing(KafkaTopics(larger)) as made, closing(KafkaLog(larger)) as log:
        made.create()
        assert (log.partitions("telemetry"), log.partitions("trajectories")) == (4, 2)
        store = SqliteStore(log, file)
        with pytest.raises(PositionLost, match="accept-loss"):
            step(runners(log, store))
        gaps = [
            gap for partition in range(4) for gap in store.accept_loss("assemble", partition, "telemetry", partition)
        ]
        assert {gap.end - gap.first for gap in gaps} == {0}
        send(log, *after)
        found = work_off(log, store)
        assert (found.differences, found.caught_up, found.count("events", "in a trajectory")) == ((), True, 60)
        assert found.count("trajectories", "sealed") == 40
        made.delete(*(topic.name for topic in ALL))
    topics.delete("telemetry")


def test_the_cut_is_not_caught_up_until_every_stage_has_read_up_to_it(log, file):
    """Behind, the audit says by how much and what is not read yet; caught up, everything has its place."""
    store = SqliteStore(log, file)
    send(log, *(f"a{n}" for n in range(10)))
    found = audit(log, store, SETTINGS)
    assert not found.caught_up
    assert found.lag["assemble"] == 10
    assert (found.differences, found.count("events", "not read yet")) == ((), 30)
    found = work_off(log, store)
    assert (found.differences, found.caught_up, found.lag) == ((), True, {})
