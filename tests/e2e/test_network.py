"""Nothing phones home: the loop runs with every socket refused that leaves the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

REFUSE = Path(__file__).parent / "refuse"

TRY = """
import contextlib, socket
reach = (
    lambda: socket.socket().connect(("192.0.2.1", 80)),
    lambda: socket.socket().connect_ex(("198.51.100.1", 80)),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9)),
    lambda: socket.getaddrinfo("example.org", 80),
)
for attempt in reach:
    with contextlib.suppress(OSError):
        attempt()
"""

AGENT = """
import millstream
for task in range(2):
    for attempt in range(2):
        with millstream.record(task={"id": f"t{task}", "question": "q"}, lineage="policy", policy_version=1,
                               group=f"t{task}", group_size=2, attempt=attempt, split="train") as run:
            run.message("user", f"What is {task} plus {task}?")
            run.model(text=f"{task} {attempt} " + ("alpha beta gamma delta", "one two three four")[task])
            run.end(final_answer=str(attempt))
        millstream.feedback(run.id, value=float(attempt), source="user")
"""

TRAINING = """
[policy]
base = "{base}"
[trigger]
min_groups = 2
min_informative = 1
[trainer]
tokens_source = "rendered"
epochs = 1
"""


@pytest.fixture
def refused(mill):
    """The network refused to every process of the mill; what was refused so far."""
    told = mill.folder / "refused"
    path = os.pathsep.join(filter(None, (str(REFUSE), os.environ.get("PYTHONPATH"))))
    mill.env.update(PYTHONPATH=path, REFUSED=str(told))
    return lambda: told.read_text(encoding="utf-8").splitlines() if told.exists() else []


def python(mill, code):
    """A script among the mill's processes."""
    return subprocess.run([sys.executable, "-c", code], cwd=mill.folder, env=mill.env, check=True, timeout=60)


def test_reaching_out_is_seen(mill, refused):
    """The check itself: each way out is written down."""
    python(mill, TRY)
    assert [line.split()[0] for line in refused()] == [
        "socket.connect",
        "socket.connect",
        "socket.sendto",
        "socket.getaddrinfo",
    ]


def test_importing_grading_and_reading_reach_nobody(mill, refused, examples):
    """Importing, the stages, a grader of one's own in its child, and every reading command."""
    mill.run("init")
    mill.settings('[graders]\nfiles = ["graders.py"]\n')
    assert mill.json("import", examples / "runs.ndjson", examples / "chats.jsonl")["trajectories"] == 12
    assert mill.json("up", "--until-idle")["records"]["grade"] >= 12
    answers, tasks = examples / "answers.jsonl", examples / "tasks.jsonl"
    assert mill.run("grade", answers, "--grader", "numeric", "--tasks", tasks).returncode == 0
    assert mill.run("assemble", examples / "runs.ndjson").returncode == 0
    for words in (("status",), ("grades", "list"), ("buffer", "stats"), ("doctor",), ("audit",)):
        mill.json(*words)
    assert refused() == []


def test_a_whole_training_reaches_nobody(mill, refused, root):
    """The base is registered, the stream asks for a training, a child trains with torch, MLflow tracks it and
    registers the candidate.
    """
    mill.settings(TRAINING.format(base=root / "examples" / "finqa" / "base"))
    python(mill, AGENT)
    mill.run("up", "--until-idle")
    versions = mill.json("policies", "list")["items"]
    assert [(row["version"], row["stage"]) for row in versions] == [(1, "champion"), (2, "candidate")]
    assert [row["state"] for row in mill.json("trainings", "list")["items"]] == ["finished"]
    why = mill.json("why", "2")
    assert why["schema"] == "millstream.why/1"
    assert refused() == []
    mill.audit()
