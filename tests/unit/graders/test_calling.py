"""Async graders, graders of a batch, and the examples that a grader declares."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.errors import SettingsError
from millstream.grade import Abstained, Failed, Scored
from millstream.graders.calling import described
from millstream.graders.registry import grader
from millstream.graders.running import effective
from millstream.graders.testing import try_file
from millstream.settings import Graders

HEAD = "import asyncio, os, time\nimport millstream as ms\n\n"


def grades(graders, *runs):
    rows = graders.grade_each(runs)
    return [{a[0].grader.name: effective(a).grade for a in row} for row in rows]


def test_async_graders_are_side_by_side(load_graders, make):
    """Twenty that each wait 50 ms take no second; an exception is its own trajectory's."""
    source = HEAD + (
        "@ms.grader\nasync def waits(t, *, share=0.5):\n    await asyncio.sleep(0.05)\n"
        "    if t.final_answer == '7':\n        raise ValueError('seven')\n    return share\n"
    )
    loaded = load_graders(source, options={"waits": {"share": 0.25}}, timeout_s=0.9)
    found = grades(loaded, *(make(answer=str(n)) for n in range(20)))
    assert [one["waits"] for n, one in enumerate(found) if n != 7] == [Scored(score=0.25)] * 19
    assert found[7]["waits"].reason.startswith("ValueError: seven\n  graders.py, line 8, in waits")


def test_an_async_grader_that_hangs_is_alone_in_it(load_graders, make):
    """G21: a timeout for one, grades for the others."""
    source = HEAD + (
        "@ms.grader\nasync def waits(t):\n    await asyncio.sleep(60 if t.final_answer == '1' else 0)\n    return 1.0\n"
    )
    found = grades(load_graders(source, timeout_s=0.5, attempts=1), *(make(answer=str(n)) for n in range(3)))
    assert [getattr(one["waits"], "kind", "scored") for one in found] == ["scored", "timeout", "scored"]


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        ("return [0.5] * (len(ts) + 1)", "error", "2 grades for 1"),
        ("return []", "error", "0 grades for 1"),
        ("return 0.5", "error", "must return a list"),
        ("return '1' * len(ts)", "error", "must return a list"),
        ("return [None] * len(ts)", "unparsable", "NoneType"),
        ("raise KeyError('x')", "error", "KeyError"),
    ],
)
def test_a_batch_that_is_none_is_failed(load_graders, make, body, kind, told):
    """Never a grade that belongs to another trajectory."""
    (found,) = grades(load_graders(HEAD + f"@ms.grader(batch=True)\ndef many(ts):\n    {body}\n"), make())
    assert found["many"].kind == kind
    assert told in found["many"].reason


def test_a_batch_is_called_once_and_after_an_exception_for_each(load_graders, make):
    """One trajectory that breaks the whole batch costs its own grade."""
    source = HEAD + (
        "@ms.grader(batch=True)\ndef many(ts):\n    values = [float(t.final_answer) for t in ts]\n"
        "    return [ms.score(v / 10, label=str(len(ts))) for v in values]\n"
    )
    loaded = load_graders(source)
    assert [one["many"].label for one in grades(loaded, *(make(answer=str(n)) for n in range(4)))] == ["4"] * 4
    found = grades(loaded, make(answer="1"), make(answer="two"), make(answer="3"))
    assert [one["many"] for one in (found[0], found[2])] == [Scored(score=0.1, label="1"), Scored(score=0.3, label="1")]
    assert found[1]["many"].reason.startswith("ValueError: could not convert")


def test_async_and_batch_graders_can_be_called_here(make):
    """`Grader.__call__` on one trajectory, whatever kind of function is behind it."""

    @grader
    async def later(t):
        return 0.5

    @grader(batch=True)
    async def many(ts):
        return [1.0 for _ in ts]

    assert (later(make()), many(make())) == (Scored(score=0.5), Scored(score=1.0))


def test_an_exception_tells_where_in_the_grader_it_was():
    """Its own file and line; nothing of the machinery."""

    @grader
    def breaks(t):
        return 1 / 0

    grade = breaks(None)
    assert grade.reason.startswith("ZeroDivisionError: division by zero\n  test_calling.py, line ")
    assert "registry" not in grade.reason
    assert described(ValueError("x" * 5000)) == "ValueError: " + "x" * 988


EXAMPLES = """
EXAMPLES = [
    ms.example(answer="7", reference="7", score=1.0, label="same"),
    ms.example(("look", {"q": 1}, "7"), answer="8", reference="7", score=0.0),
    ms.example(answer="7", status="abstained"),
]

@ms.grader(examples=EXAMPLES)
def correct(t):
    if t.task.reference is None:
        return ms.abstain("no reference")
    return ms.score(float(t.final_answer == t.task.reference), label="same" if t.final_answer == "7" else "")

@ms.grader(examples=[*EXAMPLES, ms.example(answer="x", status="failed")])
def wrong(t):
    return 0.25 if t.final_answer != "x" else 1 / 0
"""


def test_examples_are_tried_in_a_child(tmp_path, spawned, make):
    """Each holds or says how it does not."""
    from millstream.adapters.children import Child

    def spawn(module):
        spawned.append(Child(module))
        return spawned[-1]

    (tmp_path / "graders.py").write_text(HEAD + EXAMPLES)
    tried = try_file(Graders(), tmp_path / "graders.py", spawn)
    assert [(one.grader, one.number, one.fault) for one in tried] == [
        ("correct", 1, ""),
        ("correct", 2, ""),
        ("correct", 3, ""),
        ("wrong", 1, "expected 1, got 0.25"),
        ("wrong", 2, "expected 0, got 0.25"),
        ("wrong", 3, "expected abstained, got scored"),
        ("wrong", 4, ""),
    ]
    assert spawned[0].pid is None
    (tmp_path / "none.py").write_text(HEAD + "@ms.grader\ndef g(t):\n    return 1.0\n")
    with pytest.raises(SettingsError, match=r"none\.py declares no examples; declare some"):
        try_file(Graders(), tmp_path / "none.py", spawn)


def test_an_example_expects_something(make):
    """A score when scored, none otherwise; a whole run may be given."""
    for wrong in ({}, {"score": 1.0, "status": "failed"}):
        with pytest.raises(SettingsError, match="expects a score"):
            ms.example(answer="x", **wrong)
    run = make(("look", {}, "x"), answer="y")
    assert ms.example(run=run, score=1).run is run
    assert (
        ms.example(answer="x", score=1, label="a").fault(Scored(score=1.0, label="b"))
        == "expected the label 'a', got 'b'"
    )
    assert (
        ms.example(answer="x", score=1).fault(Failed(kind="error", reason="a\nb")) == "expected scored, got failed: a"
    )
    assert ms.example(status="abstained").fault(Abstained(reason="z")) == ""


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ("x = 1\ndef f(:\n    pass\n", 2, "SyntaxError"),
        ("import millstream as ms\n\nimport nothing_of_this_name\n", 3, "ModuleNotFoundError"),
        ("import millstream as ms\n@ms.grader(low=2)\ndef f(t):\n    return 1\n", 2, "SettingsError"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError"),
        ("x = 1\nraise SystemExit(3)\n", 2, "SystemExit"),
    ],
)
def test_a_broken_file_is_named_with_its_line(load_graders, source, line, word):
    """Before anything starts, in one line."""
    with pytest.raises(SettingsError, match=rf"graders\.py, line {line} can't be imported: {word}"):
        load_graders(source)
