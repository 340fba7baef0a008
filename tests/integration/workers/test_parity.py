"""The same input gives the same output: the embedded log, and Kafka with 1, 2 and 4 workers a stage."""

from __future__ import annotations

import pytest
from integration.workers.flow import POISON_EVERY, RUNS, SETTINGS, outcome, send

pytestmark = pytest.mark.services


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
    send(mill.log, stream, poison_every=POISON_EVERY, a_record=1 if workers == 2 else 20)

    def done():
        assert all(process.poll() is None for process in started), [process.told() for process in started]
        return mill.settled()

    wait(done, lambda: "".join(process.told() for process in started))
    assert outcome(mill.log) == expected
    assert mill.end(*started) == [0] * len(started)


def test_up_on_kafka_is_the_same_in_one_process(works, stream, expected):
    """`millstream up` runs every partition of every stage, with the state in Redis."""
    mill = works(more=SETTINGS)
    send(mill.log, stream, poison_every=POISON_EVERY)
    done = mill.run("up", "--until-idle")
    assert done.returncode == 0, done.stderr
    assert outcome(mill.log) == expected
