"""A data folder is moved to another place: what was trained there is explained, made again and trained on."""

from __future__ import annotations

import json

import pytest

from millstream.codec import encode_lines
from millstream.events import MessageReceived, ModelResponded, Task, TrajectoryEnded, TrajectoryStarted
from millstream.ports import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GROUPS, SIZE = 4, 2


def runs(first):
    """Groups of two runs, one of them right."""
    for number in range(first * GROUPS * SIZE, (first + 1) * GROUPS * SIZE):
        name, (task, attempt) = f"run-{number}", divmod(number, SIZE)
        common = {"trajectory_id": name, "producer": "p"}
        events = [
            TrajectoryStarted(
                id=f"{name}/0", seq=0, task=Task(id=f"t-{task}", question=f"what is {task}?", reference=str(task)),
                group=f"g-{task}", attempt=attempt, group_size=SIZE, lineage="policy", policy_version=1, split="train",
                **common,
            ),
            MessageReceived(id=f"{name}/1", seq=1, content=f"what is {task}?", **common),
            ModelResponded(id=f"{name}/2", seq=2, text=f"{task + attempt} says {name}", **common),
            TrajectoryEnded(id=f"{name}/3", seq=3, final_answer=str(task + attempt), last_seq={"p": 3}, **common),
        ]  # fmt: skip
        yield Message(name, encode_lines(events), {"dialect": "millstream"})


def work(mill, first):
    """More runs, and all that comes of them."""
    with mill.embedded() as (log, _):
        log.append("telemetry", list(runs(first)))
    done = mill.run("up", "--until-idle")
    assert done.returncode == 0, done.stderr
    return {one["version"]: one for one in mill.json("policies", "list")["items"]}


def test_a_moved_data_folder_goes_on(mill, root, tmp_path):
    """`why`, `rebuild --verify` and the next training work in the new place, and nothing touches the old one."""
    mill.folder = old = tmp_path / "here"
    old.mkdir()
    mill.settings(
        f"""\
[policy]
base = "{root}/examples/finqa/base"
[graders]
enabled = ["numeric"]
[reward]
formula = "numeric"
[buffer]
near_duplicate = 1.0
[trigger]
min_groups = {GROUPS}
min_informative = 1
wait_for_gate = false
[trainer]
tokens_source = "rendered"
epochs = 1
[gate]
enabled = false
"""
    )
    before = work(mill, 0)
    assert sorted(before) == [1, 2]
    assert not before[2]["uri"].startswith("/")
    mill.folder = tmp_path / "elsewhere" / "mill"
    mill.folder.parent.mkdir()
    old.rename(mill.folder)
    assert f"files: {before[2]['uri']} in the data directory" in mill.run("why", "2").stdout
    assert (mill.data / before[2]["uri"] / "model.safetensors").is_file()
    again = mill.run("rebuild", "2", "--verify")
    assert again.returncode == 0, again.stdout + again.stderr

    after = work(mill, 1)
    assert sorted(after) == [1, 2, 3]
    assert (mill.data / after[3]["uri"] / "model.safetensors").is_file()
    assert mill.run("rebuild", "3", "--verify").returncode == 0
    assert json.loads(mill.run("audit", "--json").stdout)["balanced"]
    assert not old.exists()
