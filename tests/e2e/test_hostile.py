"""What nobody wishes for: numbers beyond every machine word, closed streams, many hands at once."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
OWN = "import millstream as ms\n\n\n@ms.grader\ndef own(t):\n    return 1.0\n"
HUGE = 10**30


@pytest.fixture
def own(mill):
    """A mill whose runs are graded by a file."""
    mill.settings('[graders]\nfiles = ["graders.py"]\n[reward]\nformula = "own"\n')
    (mill.folder / "graders.py").write_text(OWN)
    return mill


def rows(mill, name, made):
    (mill.folder / name).write_text("".join(json.dumps(row) + "\n" for row in made))
    return name


def run_of(name, **changed):
    """A run's events; ``changed`` maps a kind to members of its event."""
    common = {"trajectory_id": name, "producer": "p"}
    made = [
        {"kind": "TrajectoryStarted", "id": f"{name}0", "seq": 0, **common},
        {"kind": "ModelResponded", "id": f"{name}1", "seq": 1, "text": name, **common},
        {"kind": "TrajectoryEnded", "id": f"{name}2", "seq": 2, "last_seq": {"p": 2}, **common},
    ]
    return [event | changed.get(event["kind"], {}) for event in made]


def test_numbers_beyond_every_machine_word_stop_nothing(own):
    """T21 and T11, the kind: such a number is kept where JSON may hold anything, elsewhere its row is refused
    or its event a dead letter; all else goes on and the books balance.
    """
    call = {"id": "c", "name": "f", "arguments": {"x": HUGE}}
    kept = [
        run_of("kept", ModelResponded={"tool_calls": [call]}),
        run_of("last", TrajectoryEnded={"last_seq": {"p": HUGE}}),
    ]
    refused = [
        run_of(f"r{number}", **changed)
        for number, changed in enumerate(
            [
                {"TrajectoryStarted": {"attempt": HUGE}},
                {"TrajectoryStarted": {"group": "g", "group_size": HUGE}},
                {"TrajectoryStarted": {"policy_version": -HUGE}},
                {"ModelResponded": {"usage": {"output_tokens": HUGE}}},
                {"ModelResponded": {"token_ids": [2**63]}},
                {"ModelResponded": {"truncated": {"length": HUGE, "sha256": "x"}}},
            ]
        )
    ]
    name = rows(own, "runs.ndjson", [event for run in [*kept, *refused, run_of("plain")] for event in run])
    told = own.json("import", name, code=4)
    assert len(told["problems"]) == len(refused)
    assert own.run("up", "--until-idle", "--close-open").returncode == 0
    items = {item["id"]: item["status"] for item in own.json("trajectories", "list")["items"]}
    assert (items["plain"], items["kept"]) == ("complete", "interrupted")
    assert len(items) == len(kept) + len(refused) + 1
    assert own.json("audit")["balanced"]


def test_it_works_with_every_standard_stream_closed(own):
    """As started by a daemon that closed them: pipes to children keep apart from standard streams."""
    name = rows(own, "chats.jsonl", [{"messages": [{"role": "assistant", "content": "a"}]}])
    for words in (["import", name], ["up", "--until-idle"]):
        line = shlex.join([*COMMAND, *words])
        done = subprocess.run(
            ["sh", "-c", f"exec {line} <&- >&- 2>&-"], cwd=own.folder, env=own.env, timeout=60, check=False
        )
        assert done.returncode == 0
    assert {item["status"] for item in own.json("grades", "list")["items"] if item["grader"] == "own"} == {"scored"}


def test_imports_rebuilds_and_a_lost_buffer_beside_a_running_up(own):
    """The same files imported at once and twice, the buffer dropped under it, its folder deleted: the books
    balance and the buffer holds what was decided.
    """
    names = [
        rows(own, f"{k}.jsonl", [{"messages": [{"role": "assistant", "content": f"{k} {i**3}"}]} for i in range(20)])
        for k in range(2)
    ]
    with own.up():
        imports = [subprocess.Popen([*COMMAND, "import", name], cwd=own.folder, env=own.env) for name in names * 2]
        assert own.run("buffer", "rebuild").returncode == 0
        assert [one.wait(60) for one in imports] == [0] * 4
        shutil.rmtree(own.data / "valkey")
        assert own.run("buffer", "stats").returncode == 0
    assert own.run("up", "--until-idle").returncode == 0
    assert own.json("audit")["balanced"]
    assert len(own.json("trajectories", "list")["items"]) == 40
    before = own.json("buffer", "stats")
    own.run("buffer", "rebuild")
    assert own.json("buffer", "stats") == before
