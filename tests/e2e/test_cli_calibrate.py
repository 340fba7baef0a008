"""`millstream graders calibrate` on a log of graded runs."""

import json
import subprocess
import sys

import pytest

GRADERS = """
import millstream as ms

@ms.grader
def judge(t):
    return ms.score(t.task.metadata["judge"])

@ms.grader
def other(t):
    return ms.score(t.task.metadata["other"])

@ms.grader
def right(t):
    return ms.score(t.task.metadata["right"])
"""
RUN = """
import random, millstream
draw = random.Random(4)
for n in range(240):
    right = draw.random() < 0.5
    wrong = draw.random() < (0.05 if n < 120 else 0.45)
    judge = draw.uniform(0.6, 1.0) if right != wrong else draw.uniform(0.0, 0.4)
    task = {"id": f"t{n}", "metadata": {"judge": judge, "right": float(right), "other": float(right)}}
    with millstream.record(task=task, split="train", trajectory_id=f"run-{n}") as run:
        run.model(text="said")
        run.end(final_answer="said")
"""


@pytest.fixture
def judged(mill):
    """240 runs of a judge that is right in 95 of 100 and later in 55 of 100."""
    (mill.folder / "graders.py").write_text(GRADERS)
    mill.settings('[graders]\nenabled = []\nfiles = ["graders.py"]\n[reward]\nformula = "judge"\n')
    subprocess.run([sys.executable, "-c", RUN], cwd=mill.folder, env=mill.env, check=True, timeout=60)
    assert mill.run("up", "--until-idle").returncode == 0
    return mill


def test_a_judge_is_compared_with_gold_and_its_drift_is_an_alarm(judged):
    """Agreement, kappa, the classes, another judge whose word is worth more; an alarm once, however often one
    asks; labels from a file.
    """
    mill = judged
    found = mill.json("graders", "calibrate", "judge", "--gold", "right", "--with", "other", "--dry-run")
    assert found["schema"] == "millstream.grader-calibration/1"
    assert (found["agreement"]["n"], found["unscored"]) == (240, 0)
    assert 0.7 < found["agreement"]["agreement"] < 0.85
    assert found["agreement"]["kappa_range"][0] < found["agreement"]["kappa"] < found["agreement"]["kappa_range"][1]
    assert found["together"]["weighted"] == 1.0
    assert found["chart"]["drifted_at"] is not None
    assert found["alarm"] is None
    assert mill.json("alarms", "list")["items"] == []
    first = mill.json("graders", "calibrate", "judge", "--gold", "right")["alarm"]
    assert mill.json("graders", "calibrate", "judge", "--gold", "right")["alarm"] == first
    (row,) = mill.json("alarms", "list")["items"]
    assert (row["id"], row["alarm"], row["state"]) == (first, "disagreement", "standing")
    rows = [{"trajectory_id": f"run-{n}", "label": "pass"} for n in range(30)]
    (mill.folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = mill.json("graders", "calibrate", "other", "--labels", "labels.jsonl")
    assert (found["gold"], found["agreement"]["n"]) == ("labels of a file", 30)
    text = mill.run("graders", "calibrate", "judge", "--gold", "right", "--dry-run").stdout
    assert "kappa" in text
    assert "DRIFT" in text
    nothing = mill.run("graders", "calibrate", "judge", "--gold", "nobody")
    assert nothing.returncode == 2
    assert "nothing to compare" in nothing.stderr
