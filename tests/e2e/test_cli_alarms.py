"""An alarm from the runs to the people: raised by `up`, told by `status` and `why`, cleared by hand."""

import subprocess
import sys

import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.ledger import append_policy_events
from millstream.policy import PolicyPromoted, PolicyRegistered

SETTINGS = """
[graders]
enabled = ["exact", "contains"]
[reward]
formula = "contains"
[alarms]
gold = "exact"
hold_s = 0
"""
RUN = """
import millstream
for n in range(40):
    task = {"id": f"t{n}", "question": "Which city?", "reference": "Paris"}
    with millstream.record(task=task, policy_version=1, split="train") as run:
        run.model(text="Paris or Lyon or Rome")
        run.end(final_answer="Paris or Lyon or Rome")
"""


@pytest.fixture
def fooled(mill):
    """A log with forty runs that the reward pays and gold fails."""
    mill.settings(SETTINGS)
    mill.data.mkdir()
    embedded = open_sqlite(mill.data / "log.db")
    ids = {"lineage": "policy", "version": 1}
    append_policy_events(
        embedded.log,
        [
            PolicyRegistered(id="r", uri="u", **ids),
            PolicyPromoted(id="p", expected_champion=None, reason="base", **ids),
        ],
    )
    embedded.close()
    subprocess.run([sys.executable, "-c", RUN], cwd=mill.folder, env=mill.env, check=True, timeout=60)
    return mill


def test_a_reward_that_is_fooled_is_told_and_cleared(fooled):
    """Which runs, since when, and that training is stopped; after `clear` it is history."""
    assert fooled.run("up", "--until-idle").returncode == 0
    (row,) = fooled.json("alarms", "list")["items"]
    assert (row["alarm"], row["version"], row["state"]) == ("hack", 1, "standing")
    shown = fooled.json("alarms", "show", row["id"])
    assert {"id", "alarm", "version", "hits", "runs", "stops", "trajectory_ids", "cleared"} <= set(shown)
    assert shown["hits"] == len(shown["trajectory_ids"]) > 2
    assert shown["stops"] is True
    notes = " ".join(fooled.json("status")["notes"])
    assert f"hack alarm {row['id']}" in notes
    assert "grader contains@1 is weak" in notes
    assert "hack alarm" in fooled.run("why", "1").stdout
    done = fooled.run("train")
    assert done.returncode == 2
    assert "millstream alarms clear" in done.stderr
    fooled.json("alarms", "clear", row["id"], "--reason", "the reward was mended")
    assert fooled.json("alarms", "list")["items"][0]["state"] == "cleared"
    assert "hack alarm" not in " ".join(fooled.json("status")["notes"])
    again = fooled.run("alarms", "clear", row["id"], "--reason", "again")
    assert again.returncode == 2
    assert "cleared already" in again.stderr


def test_an_alarms_gold_that_is_none_is_refused(mill):
    """A typing error would watch nothing for ever: told at the start, with the nearest name."""
    mill.settings('[graders]\nenabled = ["exact"]\n[reward]\nformula = "exact"\n[alarms]\ngold = "exakt"\n')
    done = mill.run("up", "--until-idle")
    assert done.returncode == 2
    assert "[alarms] gold = 'exakt'" in done.stderr
    assert "did you mean 'exact'" in done.stderr
