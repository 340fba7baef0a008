"""Feedback that names a response alone, on a cluster: the worker of the buffer finds its run in whatever partition."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

RUNS = 6


def told(works, kind):
    """(run, reward) of the buffer's decisions of a kind."""
    lines = [json.loads(line) for record in works.records("buffer-events") for line in record.value.splitlines()]
    return [(line["trajectory_id"], line["reward"]) for line in lines if line["kind"] == kind]


def test_it_finds_its_run_before_and_after_it_is_told(works, wait):
    """Given first for runs that nobody knows, then for runs that are sealed: each is admitted under its own reward."""
    mill = works(more='[reward]\nformula = "feedback"\n[buffer]\nnear_duplicate = 1.0\n')

    def say(number, value):
        done = mill.run("feedback", "--response", f"resp-{number}", "--value", str(value))
        assert done.returncode == 0, done.stderr

    say(0, 0.0)
    say(1, 0.125)
    workers = [mill.start(stage) for stage in ("assemble", "grade", "buffer")]
    client = mill.runtime.client(producer="test")
    for number in range(RUNS):
        fields = {"policy_version": 1, "split": "train", "trajectory_id": f"run-{number}"}
        with client.start_run(f"what is {number}?", **fields) as run:
            run.message("user", f"what is {number}?")
            run.model(text=f"it is {number}", response_id=f"resp-{number}")
            run.end(final_answer=str(number))
    assert client.flush(20)
    wait(lambda: len(told(mill, "RolloutAdmitted")) == 2, workers[2].told)
    for number in range(2, RUNS):
        say(number, number / 8)
    wait(lambda: len(told(mill, "RolloutAdmitted")) == RUNS, workers[2].told)
    assert sorted(told(mill, "RolloutAdmitted")) == [(f"run-{number}", number / 8) for number in range(RUNS)]
    wait(mill.settled)
    assert mill.end(*workers) == [0, 0, 0]
    books = json.loads(mill.run("audit", "--json").stdout)
    assert books["balanced"], books["differences"]
    counts = {line["name"]: line["count"] for line in books["lines"] if line["section"] == "events"}
    assert (counts["feedback"], counts["replayed"], counts.get("dead letter", 0)) == (RUNS, RUNS, 0)
