"""Feedback as people give it: by a command or the SDK, from processes of their own, by the run's id or a response's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SETTINGS = """[reward]
formula = "feedback"
"""


def lines(name, response):
    """A run of one step, as NDJSON."""
    run = {"trajectory_id": name, "producer": "test"}
    yield {"kind": "TrajectoryStarted", "id": f"{name}-0", "seq": 0, "task": {"id": name, "question": "q"}, **run}
    yield {"kind": "ModelResponded", "id": f"{name}-1", "seq": 1, "text": f"a {name}", "response_id": response, **run}
    yield {"kind": "TrajectoryEnded", "id": f"{name}-2", "seq": 2, "last_seq": {"test": 2}, **run}


@pytest.fixture
def played(mill):
    """A run with an answer ``resp-1``, and one with ``resp-2`` that is told later."""
    mill.settings(SETTINGS)
    for name, response in (("one", "resp-1"), ("two", "resp-2")):
        text = "\n".join(map(json.dumps, lines(name, response)))
        (mill.folder / f"{name}.ndjson").write_text(text)
    assert mill.run("import", "one.ndjson").returncode == 0
    mill.json("up", "--until-idle")
    return mill


def rewards(mill):
    """(run, reward) of every admission, in the order of the log."""
    with mill.embedded() as (log, _):
        told = [json.loads(one) for record in log.read("buffer-events", 0, 0) for one in record.value.splitlines()]
    return [(one["trajectory_id"], one["reward"]) for one in told if one["kind"] == "RolloutAdmitted"]


def test_feedback_finds_its_run(played):
    """By id, by response, by a response that nobody has told yet, from the SDK of another process."""
    told = played.json("feedback", "one", "--label", "good", "--comment", "as in the report")
    assert (told["trajectory_id"], told["response_id"]) == ("one", "")
    assert "response resp-2" in played.run("feedback", "--response", "resp-2", "--value", "0.5").stdout
    played.json("up", "--until-idle")
    assert rewards(played) == [("one", 1.0)]
    waiting = played.json("dead-letters", "list")["items"]
    assert [item["reason"] for item in waiting] == ["unjoined"]
    assert played.run("import", "two.ndjson").returncode == 0
    played.json("up", "--until-idle")
    assert rewards(played) == [("one", 1.0), ("two", 0.5)]
    code = "import millstream as ms; ms.feedback(response_id='resp-1', value=0.0); ms.flush()"
    subprocess.run([sys.executable, "-c", code], cwd=played.folder, env=played.env, check=True, timeout=60)
    played.json("up", "--until-idle")
    assert rewards(played) == [("one", 1.0), ("two", 0.5), ("one", 0.0)]
    books = {line["name"]: line["count"] for line in played.audit()["lines"] if line["section"] == "events"}
    assert (books["feedback"], books["replayed"], "dead letter" in books) == (3, 2, False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("one",), "--value NUMBER, or --label WORD"),
        (("--value", "1"), "give the id of the run"),
        (("one", "--value", "nan"), "must be a finite number"),
        (("one", "--value", "1", "--source", "nobody"), "is not one of"),
        (("one", "--value", "1", "--at", "2300-01-01"), "from 1970 to 2262"),
        (("one", "--value", "1", "--at", "9999-12-31T23:59:59Z"), "from 1970 to 2262"),
        (("one", "--value", "1", "--at", "1900-01-01"), "from 1970 to 2262"),
    ],
)
def test_what_says_nothing_is_a_matter_of_usage(played, words, why):
    """Exit 2 with the mend, and nothing is written."""
    done = played.run("feedback", *words)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
