"""Graders that run code, as people use them: the command line, in the sandbox proper."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from services.fixtures import need

pytestmark = pytest.mark.services
TASK = {"id": "t", "reference": "x", "metadata": {"tests": [{"call": "f", "arguments": [2], "expected": 4}] * 3}}
ANSWERS = {
    "solved": "```python\ndef f(x):\n    return x * x\n```",
    "wrong": "def f(x):\n    return x + 1",
    "thief": "def f(x):\n    return len(open('/etc/passwd').read())",
    "hang": "def f(x):\n    while True: pass",
}


@pytest.fixture
def mill(tmp_path, root):
    """The command line in a folder of its own."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from millstream.cli import main; main()", *arguments]
        env = {**os.environ, "PYTHONPATH": str(root)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_answers_in_a_file_are_graded_by_their_tests(mill, tmp_path):
    """`millstream grade --grader code`: what is right scores 1; what is wrong, steals or hangs scores 0."""
    (tmp_path / "millstream.toml").write_text(
        '[graders]\nenabled = ["code"]\n[graders.options.code]\ntimeout_s = 0.5\n'
    )
    tasks = [{**TASK, "id": name} for name in ANSWERS]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    rows = [{"id": name, "answer": text} for name, text in ANSWERS.items()]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = mill("grade", "answers.jsonl", "--grader", "code", "--tasks", "tasks.jsonl")
    found = {row["id"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert {name: row["score"] for name, row in found.items()} == {"solved": 1, "wrong": 0, "thief": 0, "hang": 0}
    assert "FileNotFoundError" in found["thief"]["reason"]
    assert "timeout" in found["hang"]["reason"]


def test_a_hosted_python_grader_runs_by_the_command(mill, tmp_path):
    """`graders validate` says that it runs here; `graders run` gives its reward, or its own traceback."""
    body = "    return float(np.mean([len(sample['output_text']), item['n']]))"
    source = f"import numpy as np\ndef grade(sample, item):\n{body}"
    (tmp_path / "p.json").write_text(json.dumps({"type": "python", "name": "p", "source": source, "image_tag": "x"}))
    assert json.loads(mill("graders", "validate", "p.json", "--json").stdout)["runs"] is True
    ran = json.loads(mill("graders", "run", "p.json", "--item", '{"n": 5}', "--sample", "abc", "--json").stdout)
    assert ran["reward"] == 4.0
    failed = json.loads(mill("graders", "run", "p.json", "--sample", "abc", "--json").stdout)
    assert failed["reward"] is None
    assert "KeyError: 'n'" in failed["metadata"]["errors"]["python_grader_runtime_error_details"]
