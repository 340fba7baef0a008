"""From the stage's decisions over the embedded log into the embedded buffer and back."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from millstream.adapters.redis import RedisBuffer
from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.valkey import Valkey
from millstream.errors import Unavailable
from millstream.grade import GradeGiven, score
from millstream.policy import TrainingClaimed, TrainingRequested
from millstream.ports import Message, Record
from millstream.rollout import GradingFinished, Position, RolloutFacts
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.buffering import BufferingStage
from millstream.streams.projection import Projector, rebuild
from millstream.trajectory import Trajectory


class Mill:
    """A log, a buffering stage that is fed by hand, and a buffer on an embedded Valkey."""

    def __init__(self, folder, namespace="default"):
        self.log = open_sqlite(folder / "log.db").log
        self.valkey = Valkey(folder / "valkey")
        self.buffer = RedisBuffer(self.valkey.start, namespace)
        self.stage = BufferingStage(
            BufferSettings(namespace=namespace, near_duplicate=1.0, max_rollouts=6), RewardSettings(formula="correct")
        )
        self.offset = 0

    def close(self):
        self.buffer.close()
        self.valkey.close()
        self.log.file.close()

    def feed(self, *events, topic="grades"):
        self.offset += 1
        value = b"\n".join(msgspec.json.encode(event) for event in events)
        for output in self.stage.feed(Record(topic, 0, self.offset, 1000 + self.offset, "k", value)):
            self.log.append(output.topic, [Message(output.key, output.value, output.headers)])

    def graded(self, name, value, group, size=2):
        trajectory = Trajectory(id=name, content_hash=f"hash-{name}")
        encoded = msgspec.json.encode(trajectory)
        offset = self.log.append("trajectories", [Message(name, encoded, {"kind": "trajectory"})])
        facts = RolloutFacts(group=group, task_id=group, group_size=size, policy_version=1, bytes=len(encoded))
        position = Position(self.log.topic_id("trajectories"), 0, offset)
        grade = GradeGiven(
            id=name, trajectory_id=name, revision=1, grader="correct", epoch="correct@1", grade=score(value)
        )
        done = GradingFinished(
            trajectory_id=name, revision=1, content_hash=f"hash-{name}", position=position, facts=facts
        )
        self.feed(grade, done)

    def groups(self, *names):
        for name in names:
            self.graded(f"{name}-0", 1.0, name)
            self.graded(f"{name}-1", 0.0, name)

    def lease(self):
        ids = tuple(sorted(self.stage.book.ledger.entries))
        request = TrainingRequested(
            id="t", lineage="policy", parent=1, rollout_ids=ids, algorithm="sft", seed=0,
            namespace=self.stage.namespace, reason="",
        )  # fmt: skip
        self.feed(request, topic="policy-events")
        self.feed(TrainingClaimed(id="c", lineage="policy", training_id="t", token="a"), topic="policy-events")
        return ids

    def kill(self):
        pid = int((self.valkey.folder / "valkey.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < end
            time.sleep(0.005)


@pytest.fixture
def mill(tmp_path):
    made = Mill(tmp_path)
    yield made
    made.close()


def test_rollouts_reach_the_buffer_with_their_trajectories(mill):
    """What was decided is there, readable, with reward and advantage; the dump is the ledger's."""
    mill.groups("a", "b")
    projector = Projector(mill.log, mill.buffer)
    assert projector.run_once() == 2
    assert projector.run_once() == 0
    ids = sorted(mill.stage.book.ledger.entries)
    rollouts = mill.buffer.read(ids)
    assert {r.trajectory.id for r in rollouts} == {"a-0", "a-1", "b-0", "b-1"}
    assert {r.reward for r in rollouts} == {0.0, 1.0}
    assert all(r.advantage * (r.reward - 0.5) > 0 for r in rollouts)
    assert mill.buffer.dump()["rollouts"] == mill.stage.book.ledger.dump(2)["rollouts"]


def test_a_rebuild_equals_what_was(mill):
    """Evictions, a lease and all: dropped and folded again from the log the projection is the same."""
    mill.groups("a", "b", "c")
    ids = mill.lease()
    mill.groups("d")
    Projector(mill.log, mill.buffer).run_once()
    before, read = mill.buffer.dump(), mill.buffer.read(ids)
    lease = mill.buffer.lease("t")
    assert lease.fence == mill.log.bounds("buffer-events")[0] + 3
    assert rebuild(mill.buffer, mill.log) == mill.log.bounds("buffer-events")[1]
    assert mill.buffer.dump() == before
    assert mill.buffer.read(ids) == read
    assert mill.buffer.lease("t") == lease


def test_a_new_ledger_from_the_log_is_the_same(mill):
    """`BufferLedger` over the topic, the stage's own ledger and the buffer agree but for the fence."""
    mill.groups("a", "b", "c", "d")
    Projector(mill.log, mill.buffer).run_once()
    end = mill.log.bounds("buffer-events")[1]
    assert mill.buffer.dump() == mill.stage.book.ledger.dump(end)
    assert isinstance(mill.stage.book.ledger, BufferLedger)


def test_a_valkey_that_dies_loses_nothing(mill):
    """Killed between any two groups; the projector goes on and nothing is doubled or missing."""
    projector = Projector(mill.log, mill.buffer, clock=lambda: 0.0)
    for name in ("a", "b", "c"):
        mill.groups(name)
        projector.run_once()
        mill.kill()
    projector.run_once()
    assert mill.buffer.dump() == mill.stage.book.ledger.dump(3)
    assert mill.buffer.stats().unreadable == 0
    assert len(mill.buffer.read(sorted(mill.stage.book.ledger.entries))) == 6


def test_a_buffer_that_was_emptied_behind_our_back_is_filled_again(mill):
    """FLUSHALL between two records: the next turn says so, the one after starts from the beginning."""
    now = [0.0]
    projector = Projector(mill.log, mill.buffer, clock=lambda: now[0])
    mill.groups("a")
    projector.run_once()
    mill.buffer._connection.call(lambda client: client.flushall())
    mill.groups("b")
    while projector.run_once() or projector.waiting:
        now[0] += 10
    assert mill.buffer.dump() == mill.stage.book.ledger.dump(2)
    assert mill.buffer.stats().unreadable == 0


def test_it_waits_longer_each_time(mill):
    """A full or dead buffer is asked again after growing pauses, and the reason is told."""
    now = [100.0]
    asked = []

    class Full(RedisBuffer):
        def applied(self):
            asked.append(now[0])
            raise Unavailable("full")

    projector = Projector(mill.log, Full(mill.valkey.start, "default"), clock=lambda: now[0])
    mill.groups("a")
    for _ in range(80):
        assert projector.run_once() == 0
        now[0] += 0.1
    assert projector.waiting == "full"
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert gaps == sorted(gaps)
    assert len(asked) < 10


def test_another_namespace_is_passed_over(tmp_path):
    """Two stages write one topic; each buffer holds its own and both say that all is applied."""
    one = Mill(tmp_path, "one")
    other = RedisBuffer(one.valkey.start, "other")
    one.groups("a")
    assert Projector(one.log, other).run_once() == 1
    assert (other.applied(), other.stats().rollouts) == (1, 0)
    other.close()
    one.close()


def test_a_trajectory_that_the_log_lost_is_counted(mill):
    """After retention the decision still counts; the payload is reported as unreadable."""
    mill.groups("a")
    mill.log.delete("trajectories")
    mill.log.create("trajectories", 1)
    projector = Projector(mill.log, mill.buffer)
    projector.run_once()
    assert projector.missing == 2
    assert mill.buffer.stats().unreadable == 2
