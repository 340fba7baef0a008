"""Graders of one's own by the command line: their examples, and what a broken file says; code through the server."""

from __future__ import annotations

import re
import shutil

import openai
import pytest
from services.fixtures import need

OWN = """import millstream as ms


@ms.grader(examples=[ms.example(answer="7", reference="7", score=1.0), ms.example(answer="8", reference="7", score=%s)])
def correct(t):
    return float(t.final_answer == t.task.reference)
"""
PYTHON = {
    "type": "python",
    "name": "close",
    "source": "def grade(sample, item):\n    return 1 / (1 + abs(float(sample['output_text']) - item['gold']))",
}


def test_examples_hold_or_the_exit_code_is_1(mill):
    """A table for people, one document for programs."""
    (mill.folder / "graders.py").write_text(OWN % "0.0")
    done = mill.run("graders", "test", "graders.py")
    assert (done.returncode, "2 of 2 examples hold" in done.stdout) == (0, True)
    (mill.folder / "graders.py").write_text(OWN % "0.5")
    found = mill.json("graders", "test", "graders.py", code=1)
    assert (found["schema"], found["total"], found["failed"]) == ("millstream.graders-test/1", 2, 1)
    assert [one["fault"] for one in found["items"]] == ["", "expected 0.5, got 0"]
    assert "correct, example 2: expected 0.5, got 0" in mill.run("graders", "test", "graders.py").stdout


def test_the_first_grader_holds_to_its_examples(mill):
    """What `init` writes can be tried at once."""
    assert mill.run("init").returncode == 0
    done = mill.run("graders", "test", "graders.py")
    assert (done.returncode, "3 of 3 examples hold" in done.stdout) == (0, True)


def test_a_file_without_examples_says_how_to_declare_them(mill):
    """Exit 2: there is no verdict."""
    (mill.folder / "graders.py").write_text("import millstream as ms\n@ms.grader\ndef g(t):\n    return 1.0\n")
    done = mill.run("graders", "test", "graders.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "declares no examples; declare some: @ms.grader(examples=[ms.example(" in done.stderr


def test_a_broken_grader_file_stops_the_start_with_its_line(mill):
    """One line, exit 2, nothing graded."""
    (mill.folder / "graders.py").write_text("import millstream as ms\n\nx = 1 / 0\n")
    mill.settings('[graders]\nfiles = ["graders.py"]\n')
    done = mill.run("up", "--until-idle")
    assert done.returncode == 2
    assert re.search(r"graders\.py, line 3 can't be imported: ZeroDivisionError", done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.services
def test_code_through_the_server(mill):
    """The stock client sends a grader's source; a reward comes back, or the flag with the code's own traceback."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")
    with mill.running("serve", "graders", ready="serving graders on ") as process:
        url = re.search(r"http://[0-9.:]+", process.told())[0]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            run = client.fine_tuning.alpha.graders.run
            assert run(grader=PYTHON, model_sample="3", item={"gold": 4}).reward == 0.5
            failed = run(grader=PYTHON, model_sample="three", item={"gold": 4})
    assert failed.reward is None
    assert failed.metadata.errors.python_grader_runtime_error is True
    assert "could not convert string to float: 'three'" in failed.metadata.errors.python_grader_runtime_error_details
    assert process.returncode == 0
