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


def test_a_named_worker_starts_in_an_empty_folder(works, wait):
    """With a name of its own it needs nothing in the data directory, not even the directory."""
    mill = works()
    record_runs(mill, 4)
    worker = mill.start("assemble", "--instance", "me")
    wait(lambda: len(mill.records("trajectories")) >= 4, worker.told)
    assert mill.end(worker) == [0]


def test_a_group_that_cannot_start_is_told(works):
    """Something that is no folder lies where the group keeps its files: exit 3 with one line, not a silent end."""
    mill = works()
    (mill.folder / ".millstream").mkdir()
    (mill.folder / ".millstream" / "faust").write_text("in the way")
    done = mill.run("worker", "assemble", "--instance", "me")
    assert done.returncode == 3, done.stderr
    assert "make it a folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_speaks_sasl_over_tls(works, wait, kafka_node):
    """The same [kafka] block serves both client libraries: the SDK's and Faust's."""
    secure = (
        f'security_protocol = "SASL_SSL"\nsasl_mechanism = "SCRAM-SHA-512"\nusername = "{kafka_node.user}"\n'
        f'password = "{kafka_node.password}"\nca_file = "{kafka_node.ca}"\n'
    )
    mill = works(url=kafka_node.secure_url, kafka_more=secure)
    record_runs(mill, 4)
    worker = mill.start("assemble")
    wait(lambda: len(mill.records("trajectories")) == 4, worker.told)
    assert mill.end(worker) == [0]
