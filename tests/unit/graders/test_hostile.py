"""Graders that do what no grader should: each costs its own grade at most, and never another's."""

from __future__ import annotations

import time

import pytest

from millstream.adapters.children import Bounds, Child
from millstream.errors import SettingsError
from millstream.grade import Failed, Scored
from millstream.graders.loading import load
from millstream.graders.running import effective
from millstream.settings import Graders

HEAD = "import os, sys\nimport millstream as ms\n\n"
HUGE = {"x": 10**30, "list": [-(2**70)]}


def grades(graders, trajectory):
    return {a[0].grader.name: effective(a).grade for a in graders.grade(trajectory)}


def test_a_fork_that_is_left_running_is_a_failure_and_answers_for_nobody(load_graders, make):
    """The process is replaced, the neighbour graded; the next answer is its own, not what the fork would have given."""
    source = HEAD + (
        "@ms.grader\ndef forks(t):\n    if t.final_answer == '0.5':\n        os.fork()\n"
        "    return float(t.final_answer)\n\n"
        "@ms.grader\ndef good(t):\n    return 1.0\n"
    )
    loaded = load_graders(source)
    given = [grades(loaded, make(answer=text)) for text in ("0.25", "0.5", "0.75")]
    assert [one["good"] for one in given] == [Scored(score=1.0)] * 3
    assert (given[0]["forks"], given[2]["forks"]) == (Scored(score=0.25), Scored(score=0.75))
    assert (given[1]["forks"].kind, "left 1 process behind" in given[1]["forks"].reason) == ("error", True)


def test_processes_that_are_waited_for_are_welcome(load_graders, make):
    """A grader may ask another program; a program that goes on is ended, and told."""
    source = HEAD + (
        "import subprocess\n@ms.grader\ndef asks(t):\n"
        "    return float(subprocess.run(['echo', '0.5'], stdout=subprocess.PIPE).stdout)\n\n"
        "@ms.grader\ndef leaves(t):\n    subprocess.Popen(['sleep', '300'])\n    return 1.0\n"
    )
    found = grades(load_graders(source), make())
    assert found["asks"] == Scored(score=0.5)
    assert "left 1 process behind" in found["leaves"].reason


def test_a_grader_that_prints_megabytes_or_eats_memory_is_a_failure(tmp_path, spawned, make):
    """Each is replaced where need be, is not tried again, and says what it took; its neighbour has its grade."""
    source = HEAD + (
        "@ms.grader\ndef prints(t):\n    for _ in range(100):\n        sys.stderr.write('x' * 99_999)\n    return 1\n\n"
        "@ms.grader\ndef eats(t):\n    return float(len(bytearray(3 << 30)))\n\n"
        "@ms.grader\ndef good(t):\n    return 1.0\n"
    )
    (tmp_path / "graders.py").write_text(source)

    def spawn(module):
        spawned.append(Child(module, bounds=Bounds(memory_bytes=1 << 30, output_bytes=200_000)))
        return spawned[-1]

    loaded = load(Graders(enabled=(), files=("graders.py",), attempts=3), tmp_path, spawn)
    attempts = {a[0].grader.name: a for a in loaded.grade(make())}
    assert [len(attempts[name]) for name in ("prints", "eats", "good")] == [1, 1, 1]
    printed, eaten = attempts["prints"][0].grade, attempts["eats"][0].grade
    assert (printed.kind, "printed more than 200,000 bytes" in printed.reason) == ("error", True)
    assert (eaten.kind, "MemoryError" in eaten.reason) == ("error", True)
    assert attempts["good"][0].grade == Scored(score=1.0)


def test_a_crash_tells_its_last_words(tmp_path, spawned, make):
    """A fault in machine code: the grade has the line of the grader's file at which it happened."""
    (tmp_path / "graders.py").write_text(HEAD + "import ctypes\n@ms.grader\ndef crashes(t):\n    ctypes.string_at(0)\n")

    def spawn(module):
        spawned.append(Child(module, bounds=Bounds()))
        return spawned[-1]

    loaded = load(Graders(enabled=(), files=("graders.py",), attempts=1), tmp_path, spawn)
    crashed = grades(loaded, make())["crashes"]
    assert crashed.kind == "infrastructure"
    assert "Segmentation fault" in crashed.reason
    assert 'graders.py", line 7 in crashes' in crashed.reason


def test_a_grader_that_stops_itself_is_a_timeout(load_graders, make):
    """Also when the next call does not fit into a pipe: neither writing nor reading waits past the deadline."""
    source = HEAD + (
        "import signal, threading\n@ms.grader\ndef stops(t):\n    if t.final_answer == 'stop':\n"
        "        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGSTOP)).start()\n    return 1.0\n"
    )
    loaded = load_graders(source, timeout_s=1.0, attempts=1)
    assert grades(loaded, make(answer="stop"))["stops"] == Scored(score=1.0)
    time.sleep(0.1)
    assert grades(loaded, make(answer="x" * 3_000_000))["stops"].kind == "timeout"
    assert grades(loaded, make(answer="y"))["stops"] == Scored(score=1.0)


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
