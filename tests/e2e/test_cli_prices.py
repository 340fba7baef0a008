"""Prices from the table to the figures, and a corrected table read into history."""

import json
import subprocess
import sys

import pytest

TABLE = 'version = "{}"\ncurrency = "USD"\n[[price]]\nmodel = "small-*"\nsince = 2025-01-01\ninput = 1\noutput = {}\n'
RUN = """
import millstream
for name, model in (("known", "small-1"), ("unknown", "large")):
    with millstream.record(task=name, trajectory_id=name, split="train") as run:
        run.model(text="said", model=model, usage={"prompt_tokens": 1000, "completion_tokens": 100})
        run.feedback(1.0)
"""


def test_a_call_is_priced_and_priced_again_by_a_corrected_table(mill):
    """The cost stands on the step with the table's version and the price's day; `replay` revises just what was priced;
    the run without a price is counted and stays out of the figure.
    """
    (mill.folder / "prices.toml").write_text(TABLE.format("first", 4))
    mill.settings('[assembly]\nprices = "prices.toml"\n[graders]\nenabled = ["feedback", "cost"]\n'
                  "[graders.options.cost]\nmost = 0.001\n")  # fmt: skip
    subprocess.run([sys.executable, "-c", RUN], cwd=mill.folder, env=mill.env, check=True, timeout=60)
    assert mill.run("up", "--until-idle").returncode == 0
    assert usage(mill, "known") == (1, 0.0014, {"table": "first", "since": "2025-01-01", "currency": "USD"})
    assert usage(mill, "unknown") == (1, 0.0, None)
    grades = {item["trajectory_id"]: item for item in mill.json("grades", "list")["items"] if item["grader"] == "cost"}
    assert grades["known"]["score"] == pytest.approx(0.6)  # 2 − 0.0014 / 0.001
    assert "1 of 1 model calls" in grades["unknown"]["reason"] or "not recorded" in grades["unknown"]["reason"]
    cost = next(one for one in mill.json("metrics")["items"] if one["metric"] == "cost_per_success")
    assert cost["value"] == pytest.approx(0.0014)
    assert "1 runs of unknown cost left out" in cost["of"]

    (mill.folder / "prices.toml").write_text(TABLE.format("second", 9))
    done = mill.json("replay", "--from", "telemetry")
    assert [change["trajectory_id"] for change in done["changed"]] == ["known"]
    assert mill.run("up", "--until-idle").returncode == 0
    assert usage(mill, "known") == (2, 0.0019, {"table": "second", "since": "2025-01-01", "currency": "USD"})
    assert usage(mill, "unknown") == (1, 0.0, None)
    mill.audit()


def usage(mill, name):
    run = mill.json("trajectories", "show", name)
    (told,) = [event["usage"] for event in run["events"] if event["kind"] == "ModelResponded"]
    return run["revision"], told.get("cost"), told.get("priced")


def test_a_table_that_is_none_stops_at_once(mill):
    """Exit 2, with the file and the mend."""
    (mill.folder / "prices.toml").write_text("version = 3")
    mill.settings('[assembly]\nprices = "prices.toml"\n')
    done = mill.run("up", "--until-idle")
    assert done.returncode == 2
    assert "prices.toml is no price table" in done.stderr
    assert json.loads(mill.run("status", "--json").stdout)
