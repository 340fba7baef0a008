"""Workers in Faust on a real Kafka: what goes in comes out once, whoever joins, leaves or dies."""

from __future__ import annotations

import msgspec
import pytest

from millstream.trajectory import Trajectory

pytestmark = pytest.mark.services

RUNS = 60


def record_runs(works, runs=RUNS, name="run"):
    """Runs by the SDK, three events each."""
    client = works.runtime.client(producer="test")
    for n in range(runs):
        with client.start_run(f"what is {n}?", policy_version=1, trajectory_id=f"{name}-{n}") as run:
            run.message("user", f"what is {n}?")
            run.model(text=str(n))
            run.end(final_answer=str(n))
    assert client.flush(20)


def trajectories(works):
    return [msgspec.json.decode(r.value, type=Trajectory) for r in works.records("trajectories")]


def test_one_worker_assembles_and_ends_cleanly(works, wait):
    """Every run is there once and complete; SIGTERM ends with 0."""
    mill = works()
    record_runs(mill)
    worker = mill.start("assemble")
    wait(lambda: len(mill.records("trajectories")) >= RUNS, worker.told)
    assert sorted(t.id for t in trajectories(mill)) == sorted(f"run-{n}" for n in range(RUNS))
    assert {t.status for t in trajectories(mill)} == {"complete"}
    assert mill.end(worker) == [0]
