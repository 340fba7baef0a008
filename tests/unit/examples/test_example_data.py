"""The files of examples/data are what they say."""

from __future__ import annotations

from millstream.examples.data import make
from millstream.graders.files import Row, grade_lines, read_tasks
from millstream.graders.numeric import numeric


def test_the_script_makes_the_files(root):
    """What lies in examples/data is what its script writes, byte for byte, and nothing else lies there."""
    folder = root / "examples/data"
    made = make.contents()
    assert {path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"} == set(made)
    for name, data in made.items():
        assert (folder / name).read_bytes() == data


def test_the_numeric_grader_agrees_with_the_answers_rewards(root):
    """Each answer of answers.jsonl is right or wrong as its attempt is marked in the script."""
    folder = root / "examples/data"
    tasks = read_tasks((folder / "tasks.jsonl").read_bytes())
    graded = list(grade_lines((folder / "answers.jsonl").read_bytes().splitlines(), numeric(), tasks))
    expected = [float(attempt.right) for case in make.CASES for attempt in case.attempts if attempt.answer]
    assert [row.score for row in graded if isinstance(row, Row)] == expected
