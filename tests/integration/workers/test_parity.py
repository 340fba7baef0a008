"""The same input gives the same output: the embedded log, and Kafka with 1, 2 and 4 workers a stage."""

from __future__ import annotations

import threading

import msgspec
import pytest
from integration.workers.flow import events, send

from millstream.bootstrap.runtime import Runtime
from millstream.grade import GradeGiven
from millstream.ledger import read_all
from millstream.rollout import BufferDecision, GradingFinished, RolloutAdmitted, RolloutRefused
from millstream.settings import load
from millstream.trajectory import Trajectory

pytestmark = pytest.mark.services

RUNS = 300
SETTINGS = """\
[graders]
enabled = ["numeric", "format", "efficiency"]
[reward]
formula = "numeric"
[buffer]
near_duplicate = 1.0
"""
_trajectory = msgspec.json.Decoder(Trajectory)
_grade = msgspec.json.Decoder(GradeGiven | GradingFinished)
_decision = msgspec.json.Decoder(BufferDecision)


def outcome(log):
    """What came of a stream, by content: trajectories, grades, rewards and refusals."""

    def lines(topic, decoder):
        found = [r for p in range(log.partitions(topic)) for r in read_all(log, topic, p)]
        return [decoder.decode(line) for r in found for line in r.value.split(b"\n") if line]

    decisions = lines("buffer-events", _decision)
    return {
        "trajectories": sorted(
            (t.id, t.revision, t.status, t.content_hash) for t in lines("trajectories", _trajectory)
        ),
        "grades": sorted((g.id, repr(g.grade)) for g in lines("grades", _grade) if isinstance(g, GradeGiven)),
        "rewards": sorted(
            (d.trajectory_id, d.reward, d.advantage) for d in decisions if isinstance(d, RolloutAdmitted)
        ),
        "refusals": sorted((d.trajectory_id, d.reason) for d in decisions if isinstance(d, RolloutRefused)),
        "dead letters": sorted(str(line.get("reason")) for line in lines("dead-letters", msgspec.json.Decoder())),
    }


@pytest.fixture(scope="module")
def stream():
    """The events, the same for all."""
    return events(RUNS)


@pytest.fixture(scope="module")
def expected(stream, tmp_path_factory):
    """What the embedded log makes of it."""
    folder = tmp_path_factory.mktemp("embedded")
    (folder / "millstream.toml").write_text(SETTINGS)
    with Runtime(load(folder / "millstream.toml", environ={})) as runtime:
        send(runtime.log, stream, poison_every=400)
        runtime.pipeline().run(threading.Event(), until_idle=True)
        return outcome(runtime.log)


def test_the_stream_is_worth_comparing(expected):
    """There are trajectories, grades, rewards and dead letters to compare."""
    assert len(expected["trajectories"]) == RUNS
    assert len(expected["grades"]) == 3 * RUNS
    assert len(expected["rewards"]) > RUNS / 2
    assert expected["dead letters"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same(works, wait, stream, expected, workers):
    """By content hash; each stage in as many processes, the events in records of 20 or one by one."""
    mill = works(more=SETTINGS)
    started = [mill.start(stage) for stage in ("assemble", "grade") for _ in range(workers)]
    started.append(mill.start("buffer"))
    send(mill.log, stream, poison_every=400, a_record=1 if workers == 2 else 20)

    def done():
        assert all(process.poll() is None for process in started), [process.told() for process in started]
        return mill.settled()

    wait(done, lambda: "".join(process.told() for process in started))
    assert outcome(mill.log) == expected
    assert mill.end(*started) == [0] * len(started)
