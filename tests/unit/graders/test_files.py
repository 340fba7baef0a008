"""Grading answers in files, line by line."""

from __future__ import annotations

import json

import msgspec
import pytest

from millstream.errors import SettingsError
from millstream.events import Task
from millstream.graders.builtin import builtin
from millstream.graders.files import Problem, grade_lines, read_tasks


def graded(lines, tasks, name="numeric"):
    return list(grade_lines([line.encode() for line in lines], builtin(name), tasks))


TASKS = {"a": Task(id="a", reference=48250.0), "b": Task(id="b", reference="no")}


def test_rows_of_answers_are_graded_against_their_tasks():
    """One row out for each row in: id, status, score, reason."""
    rows = graded(['{"id":"a","answer":"$48,250"}', '{"id":"b","answer":"yes"}', '{"id":"a","answer":null}'], TASKS)
    assert [msgspec.to_builtins(row) for row in rows] == [
        {"id": "a", "status": "scored", "score": 1.0, "reason": "$48,250 for gold 48250.0"},
        {"id": "b", "status": "scored", "score": 0.0, "reason": "yes; gold no"},
        {"id": "a", "status": "scored", "score": 0.0, "reason": "no answer; gold 48250.0"},
    ]


def test_an_answer_may_be_a_number():
    """JSON numbers are read as they are written."""
    rows = graded(['{"id":"a","answer":48250}', '{"id":"a","answer":48250.0}', '{"id":"a","answer":1e300}'], TASKS)
    assert [row.score for row in rows] == [1.0, 1.0, 0.0]


def test_a_bad_row_is_reported_with_its_line_and_the_rest_goes_on():
    """Not JSON, no object, unknown task, an answer of another type, no trajectory; blank lines are skipped."""
    rows = graded(
        [
            "TODO",
            "",
            "[1]",
            '{"id":"c","answer":"1"}',
            '{"id":"a","answer":[1]}',
            '{"id":"a"}x',
            '{"x":1}',
            '{"id":"a","answer":"1"}',
        ],
        TASKS,
    )
    problems = [row for row in rows if isinstance(row, Problem)]
    assert [problem.line for problem in problems] == [1, 3, 4, 5, 6, 7]
    assert "no task 'c'" in problems[2].reason
    assert rows[-1].status == "scored"


def test_a_row_without_an_answer_is_a_trajectory(make):
    """Graded by its own task, or by that of --tasks when it has no reference; a censored one says so."""
    own = msgspec.json.encode(make(answer="7", reference=7.0)).decode()
    cut = msgspec.json.encode(make(answer="7", reference=7.0, status="interrupted", reason="gap_timeout")).decode()
    limit = msgspec.json.encode(
        make(answer="7", reference=7.0, status="interrupted", reason="unanswered_call", end="limit")
    ).decode()
    assert [row.status for row in graded([own, cut, limit], {})] == ["scored", "censored", "scored"]
    bare = make(answer="48,250")
    start = msgspec.structs.replace(bare.events[0], task=Task(id="a"))
    lent = msgspec.json.encode(msgspec.structs.replace(bare, events=(start, *bare.events[1:]))).decode()
    assert graded([lent], TASKS)[0].score == 1.0


def test_tasks_are_finqa_items_or_rows():
    """Original items carry table, program and the text shown; rows carry id and reference."""
    item = {
        "id": "X/1", "filename": "X.pdf", "table": [["a", "1"]],
        "qa": {"question": "q?", "program": "divide(1, 3)", "exe_ans": 0.33333, "answer": "33.3%"},
    }  # fmt: skip
    task = read_tasks(json.dumps([item]).encode())["X/1"]
    assert task.reference == 1 / 3
    assert task.metadata["answer"] == "33.3%"
    assert task.split_key == "X.pdf"
    rows = b'{"id": 7, "reference": "12.36"}\n\n{"id": "y", "reference": 2, "metadata": {"scale": "million"}}\n'
    assert read_tasks(rows)["7"].reference == "12.36"
    assert read_tasks(rows)["y"].metadata == {"scale": "million"}


@pytest.mark.parametrize(
    "content",
    [b"{", b"[1]", b'{"reference": 1}', b'[{"id": "x", "qa": {}}]', b'{"id": "x", "reference": [1]}', b"\xff"],
)
def test_tasks_that_are_none_are_refused(content):
    """`SettingsError` names the file."""
    with pytest.raises(SettingsError, match=r"tasks\.json"):
        read_tasks(content, "tasks.json")


def test_finqas_own_answers_against_its_executed_values(data):
    """Of 50 items the text that the data set shows is right for at least 35: the rest shows one or two digits,
    or another value.
    """
    tasks = read_tasks((data / "finqa" / "finqa_50.json").read_bytes())
    lines = [json.dumps({"id": i, "answer": t.metadata["answer"]}) for i, t in tasks.items()]
    rows = graded(lines, tasks)
    assert len(rows) == 50
    assert {row.status for row in rows} == {"scored"}
    assert 35 <= sum(row.score for row in rows) < 50
