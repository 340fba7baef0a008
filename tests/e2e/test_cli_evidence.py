"""Regrading and recalling as people do it: processes, one of them killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from millstream.adapters.lock import RunnerLock

RUNS = 160
SETTINGS = """[graders]
files = ["graders.py"]
timeout_s = 100
[reward]
formula = "right"
[buffer]
near_duplicate = 1.0
"""
GRADER = """import millstream as ms

@ms.grader
def right(t):
    return float(t.final_answer == "{answer}")
"""
STUCK = """import time
from pathlib import Path
import millstream as ms

GO = Path(__file__).with_name("go")

@ms.grader
def right(t):
    if not GO.exists():
        time.sleep(0.03)
    while int(t.id[4:]) >= 100 and not GO.exists():
        time.sleep(0.05)
    return float(t.final_answer == "0")
"""
"""Slow at first, then stuck in the middle until there is a file ``go``."""


def lines():
    """Runs in groups of two, one right and one wrong, as NDJSON of Millstream's events."""
    for n in range(RUNS):
        run = {"trajectory_id": f"run-{n}", "producer": "test"}
        task = {"id": f"task-{n // 2}", "question": "How much?", "family": "sum" if n % 4 < 2 else "share"}
        answer = str(n % 2)
        yield {
            "kind": "TrajectoryStarted",
            "id": f"{n}-0",
            "seq": 0,
            "task": task,
            "group": f"task-{n // 2}",
            "group_size": 2,
            "policy_version": 1,
            **run,
        }
        yield {"kind": "ModelResponded", "id": f"{n}-1", "seq": 1, "text": f"It is {answer} in {n}.", **run}
        yield {
            "kind": "TrajectoryEnded",
            "id": f"{n}-2",
            "seq": 2,
            "final_answer": answer,
            "last_seq": {"test": 2},
            **run,
        }


@pytest.fixture
def played(mill):
    """A folder with graded and buffered runs."""
    mill.settings(SETTINGS)
    (mill.folder / "graders.py").write_text(GRADER.format(answer="1"))
    (mill.folder / "runs.ndjson").write_text("\n".join(map(json.dumps, lines())))
    assert mill.run("import", "runs.ndjson").returncode == 0
    mill.json("up", "--until-idle")
    return mill


def rewards(mill):
    """run → reward of what is in the buffer."""
    rows = mill.json("rollouts", "list")["items"]
    return {row["trajectory_id"]: row["reward"] for row in rows if row["decision"] == "admitted"}


def killed_in_the_middle(mill):
    """A regrade that is killed when it has said that some runs are done, and can't do them all."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from millstream.cli import main; main()", "regrade", "--grader", "right"],
        cwd=mill.folder,
        env=mill.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        told = process.stderr.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    return told


def test_a_regrade_that_is_killed_goes_on_and_the_buffer_follows(played):
    """What was appended is not graded again, each run has one grade of the new epoch, and the books balance."""
    assert len(rewards(played)) == RUNS
    (played.folder / "graders.py").write_text(STUCK)
    told = killed_in_the_middle(played)
    (played.folder / "go").touch()
    assert told.startswith("regraded "), told
    assert f"of {RUNS}" in told
    report = played.json("regrade", "--grader", "right")
    assert report["standing"] > 0
    assert report["regraded"] > 0
    assert report["standing"] + report["regraded"] == report["runs"] == RUNS
    played.json("up", "--until-idle")
    assert rewards(played) == {f"run-{n}": float(n % 2 == 0) for n in range(RUNS)}
    rows = [row for row in played.json("grades", "list")["items"] if row["grader"] == "right"]
    assert len(rows) == 2 * RUNS
    assert sum(row["counts"] for row in rows) == RUNS
    assert played.json("audit")["balanced"]


def test_a_diff_then_a_recall_then_figures(played):
    """The diff foretells what flips and writes nothing; a recall empties the buffer; figures name the epoch."""
    before = played.json("audit")["cut"]
    (played.folder / "graders.py").write_text(GRADER.format(answer="0"))
    found = played.json("regrade", "--grader", "right", "--diff")
    assert found["schema"] == "millstream.regrade-diff/1"
    assert (found["runs"], found["lineages"][0]["flips"], found["gates"]) == (RUNS, RUNS, [])
    assert played.json("audit")["cut"] == before
    recalled = played.json("recall", "right", "--reason", "the key was wrong")
    assert (recalled["written"], recalled["impact"]["in_buffer"]) == (True, {"default": RUNS})
    played.json("up", "--until-idle")
    assert rewards(played) == {}
    assert played.json("audit")["balanced"]
    (success,) = [f for f in played.json("metrics")["items"] if f["metric"] == "success"]
    assert (success["value"], success["n"], success["epochs"].partition("@")[0]) == (None, 0, "right")
    bounds = played.run("metrics", "--csv").stdout.splitlines()[2]
    assert f'"runs, {RUNS} recalled"' in bounds


def test_a_regrade_beside_a_running_up_says_whose_graders_are_old(played):
    """New runs are graded as the running process began; without one there is nothing to say."""
    assert "start it again" not in played.run("regrade", "--grader", "right").stderr
    (played.folder / "graders.py").write_text(GRADER.format(answer="0"))
    with played.up() as process:
        done = played.run("regrade", "--grader", "right")
        assert done.returncode == 0
        assert f"`up` (pid {process.pid}) grades new runs by right as it was when it began" in done.stderr


def test_two_regrades_never_run_side_by_side(played):
    """The second is told who is at it and what that may be, and appends nothing."""
    before = played.json("audit")["cut"]
    with RunnerLock(played.data / "regrade.lock"):
        done = played.run("regrade", "--grader", "right")
        assert (done.returncode, f"pid {os.getpid()} regrades this data now" in done.stderr) == (2, True)
    assert played.json("audit")["cut"] == before
