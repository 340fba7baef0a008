"""Graders that do what no grader should: each costs its own grade at most, and never another's."""

from __future__ import annotations

import pytest

from millstream.errors import SettingsError
from millstream.grade import Failed, Scored
from millstream.graders.running import effective

HEAD = "import os, sys\nimport millstream as ms\n\n"
HUGE = {"x": 10**30, "list": [-(2**70)]}


def grades(graders, trajectory):
    return {a[0].grader.name: effective(a).grade for a in graders.grade(trajectory)}


def test_a_fork_that_is_left_running_answers_for_nobody(load_graders, make):
    """The answer of the next trajectory is its own, not the one that the fork would have given."""
    source = HEAD + "@ms.grader\ndef forks(t):\n    os.fork()\n    return float(t.final_answer)\n"
    loaded = load_graders(source)
    given = [grades(loaded, make(answer=str(n / 8)))["forks"] for n in range(8)]
    assert given == [Scored(score=n / 8) for n in range(8)]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("sys.exit(3)", "SystemExit"),
        ("raise SystemExit", "SystemExit"),
        ("return inner(t)\ndef inner(t):\n    return inner(t)", "RecursionError"),
        ("raise MemoryError", "MemoryError"),
        ("return float(input())", "EOFError"),
        ("return ms.Scored(score=0.5, reason=7)", "can't be written"),
        ("return ms.Scored(score=0.5, label=['a'])", "can't be written"),
        ("return ms.abstain(object())", "can't be written"),
        ("return ms.fail('x', 'no such kind')", "can't be written"),
        ("return ms.score(0.5, reason='\\ud83d')", "can't be written"),
        ("return 10**400", "OverflowError"),
        ("return 1j", "complex"),
        ("return type('Odd', (), {'__str__': lambda self: 1 / 0})()", "ZeroDivisionError"),
    ],
)
def test_what_a_grader_must_not_do_is_one_failed_grade(load_graders, make, body, word):
    """G24: a Failed grade that says what happened, once; its neighbour is graded."""
    source = HEAD + f"@ms.grader\ndef good(t):\n    return 1.0\n\n@ms.grader\ndef bad(t):\n    {body}\n"
    attempts = {a[0].grader.name: a for a in load_graders(source).grade(make(answer="a"))}
    assert len(attempts["bad"]) == 1
    assert isinstance(attempts["bad"][0].grade, Failed)
    assert word in attempts["bad"][0].grade.reason
    assert effective(attempts["good"]).grade == Scored(score=1.0)


def test_what_a_grader_prints_and_reads_stays_out_of_the_conversation(load_graders, make):
    """Standard output and input of the child are not those that carry calls and answers."""
    body = "    print('noise' * 100000, flush=True)\n    os.write(1, b'x' * 1000)\n    assert sys.stdin.read() == ''\n"
    loaded = load_graders(HEAD + "@ms.grader\ndef loud(t):\n" + body + "    return 0.25\n")
    assert [grades(loaded, make(answer=str(n)))["loud"] for n in range(3)] == [Scored(score=0.25)] * 3


def test_a_grader_that_changes_its_trajectory_changes_no_other_grade(load_graders, make):
    """Each grader has a trajectory of its own."""
    source = HEAD + (
        "@ms.grader\ndef a_changes(t):\n    t.task.metadata.clear()\n    t.task.metadata['gold'] = 'forged'\n"
        "    return 1.0\n\n"
        "@ms.grader\ndef b_reads(t):\n    return float(t.task.metadata == {'gold': 'true'})\n"
    )
    trajectory = make(answer="a", metadata={"gold": "true"})
    found = grades(load_graders(source), trajectory)
    assert found == {"a_changes": Scored(score=1.0), "b_reads": Scored(score=1.0)}
    assert trajectory.task.metadata == {"gold": "true"}


def test_whole_numbers_of_any_size_reach_a_grader(load_graders, make):
    """T21, the kind: whatever a run's JSON may hold can be graded."""
    source = (
        HEAD + "@ms.grader\ndef reads(t):\n    return float(t.responses[0].tool_calls[0].arguments['x'] == 10**30)\n"
    )
    run = make(("calc", HUGE, "ok"), answer="a", metadata={"n": HUGE}, tools=({"default": HUGE},))
    assert grades(load_graders(source), run) == {"reads": Scored(score=1.0)}


def test_numbers_of_numpy_are_numbers(load_graders, make):
    """Single precision and whole numbers of numpy count; its truth values and NaN do not."""
    source = "import numpy as np\n" + HEAD
    for name, value in {
        "half": "np.float32(0.5)",
        "one": "np.int64(1)",
        "truth": "np.bool_(True)",
        "nan": "np.float32('nan')",
    }.items():
        source += f"@ms.grader\ndef {name}(t):\n    return {value}\n\n"
    found = grades(load_graders(source), make(answer="a"))
    assert (found["half"], found["one"]) == (Scored(score=0.5), Scored(score=1.0))
    assert isinstance(found["truth"], Failed)
    assert isinstance(found["nan"], Failed)


def test_endless_words_are_cut(load_graders, make):
    """A reason of 50 MB does not enter the log."""
    found = grades(
        load_graders(HEAD + "@ms.grader\ndef talks(t):\n    return ms.score(1, reason='a' * 50_000_000)\n"), make()
    )
    assert len(found["talks"].reason) == 10_000


def test_a_file_that_ends_the_process_at_import_is_named(load_graders):
    """`sys.exit` in the file itself stops the start, with the file in the message."""
    with pytest.raises(SettingsError, match=r"graders\.py.*SystemExit: 5"):
        load_graders(HEAD + "sys.exit(5)\n")


def test_a_file_changed_under_a_replaced_child_gives_no_grade_under_the_old_epoch(load_graders, make, tmp_path):
    """An epoch never covers code that it was not made from."""
    source = HEAD + "@ms.grader\ndef dies(t):\n    if t.final_answer == 'die':\n        os._exit(1)\n    return 0.5\n"
    loaded = load_graders(source, attempts=1)
    assert grades(loaded, make(answer="a")) == {"dies": Scored(score=0.5)}
    (tmp_path / "graders.py").write_text(source.replace("0.5", "0.75"), encoding="utf-8")
    assert grades(loaded, make(answer="die"))["dies"].kind == "infrastructure"
    after = grades(loaded, make(answer="a"))["dies"]
    assert isinstance(after, Failed)
    assert "was changed since it was loaded" in after.reason
