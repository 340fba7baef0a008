"""Code under test: partial credit, deadlines, and programs that try to pass without solving anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.adapters.sandbox import NoSandbox
from millstream.errors import SettingsError, Unavailable
from millstream.grade import Abstained, Failed, Scored
from millstream.graders.builtin import builtin
from millstream.graders.code_tests import alike, program_of
from millstream.graders.hosted.means import Means
from millstream.graders.loading import load
from millstream.settings import Graders, SandboxSettings

DOUBLE = [{"call": "double", "arguments": [n], "expected": 2 * n} for n in (1, 2, 5)]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[NoSandbox]:
    """What runs the code here; what the real one holds is in tests/integration."""
    made = NoSandbox(SandboxSettings(memory_bytes=1 << 30))
    yield made
    made.close()


def graded(sandbox, make, answer, tests, **options):
    return builtin("code", options, None, sandbox)(make(answer=answer, metadata={"tests": tests}))


def test_half_a_solution_has_half_a_score(sandbox, make):
    """Tests passed / tests, with the first that failed told."""
    grade = graded(sandbox, make, "def double(x):\n    return x + x if x < 3 else 7", DOUBLE)
    assert grade == Scored(score=2 / 3, label="2/3", reason="test 3: gave 7")


CHEATS = {
    "equal to everything": "class E:\n    def __eq__(s, o): return True\ndef double(x): return E()",
    "a number equal to everything": "class E(int):\n    def __eq__(s, o): return True\ndef double(x): return E(1)",
    "an early end": "import os\nos._exit(0)",
    "a polite end": "import sys\nsys.exit(0)",
    "a changed library": "import json\njson.loads = json.dumps = lambda *a, **k: '2'\ndef double(x): return '2'",
    "asking the frames": (
        "import sys\ndef double(x):\n    f = sys._getframe()\n    while f:\n        for v in f.f_locals.values():\n"
        "            if isinstance(v, dict) and 'expected' in v: return v['expected']\n        f = f.f_back"
    ),
    "asking the collector": (
        "import gc\ndef double(x):\n    for o in gc.get_objects():\n"
        "        if isinstance(o, dict) and 'expected' in o: return o['expected']"
    ),
    "no function": "double = 3",
    "a hang": "def double(x):\n    while True: pass",
    "a truth": "def double(x): return True",
    "text": "def double(x): return str(2 * x)",
}


@pytest.mark.parametrize("name", CHEATS)
def test_no_program_passes_without_solving(sandbox, make, name):
    """The attacks that public test harnesses have paid for."""
    grade = graded(sandbox, make, CHEATS[name], DOUBLE, timeout_s=0.5)
    assert isinstance(grade, Scored)
    assert grade.score == 0.0, grade


def test_lines_that_assert_are_reached(sandbox, make):
    """An end before them, polite or not, is no pass; a wrong function raises."""
    tests = [{"assert": "assert double(2) == 4"}]
    assert graded(sandbox, make, "def double(x): return 2 * x", tests).score == 1.0
    for answer in ("raise SystemExit", "import os; os._exit(0)", "def double(x): return x"):
        assert graded(sandbox, make, answer, tests).score == 0.0


def test_a_program_reads_and_prints(sandbox, make):
    """White space at the ends of lines does not count, the rest does."""
    tests = [{"stdin": "1 2\n", "stdout": "3"}, {"stdin": "2 2\n", "stdout": "4\n\n"}, {"stdin": "0 0", "stdout": ""}]
    answer = "if __name__ == '__main__':\n    a, b = map(int, input().split())\n    print(a + b, '')"
    assert graded(sandbox, make, answer, tests).score == 2 / 3


def test_time_runs_out_for_the_rest(sandbox, make):
    """What a slow program had no time for did not pass; the stream waits no longer than the deadline."""
    tests = [{"call": "f", "expected": 1}] * 50
    grade = graded(sandbox, make, "def f():\n    import time; time.sleep(0.4)", tests, deadline_s=1)
    assert (grade.score, "gave None" in grade.reason) == (0.0, True)


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("print(1)", "print(1)"),
        ("First:\n```python\nx = 1\n```\nBetter:\n```python\nx = 2\n```\n", "x = 2"),
        ("```python\nx = 1\n```\n```text\n1\n```", "x = 1"),
        ("~~~py\nx = '```'\n~~~", "x = '```'"),
        ("````python\n```\nx\n````", "```\nx"),
        ("```python\nx = 1", "x = 1"),
        ("```rust\nfn main() {}\n```", ""),
        ("", ""),
        ("```python title=a.py\nx = 1\n```", "x = 1"),
    ],
)
def test_the_program_of_an_answer(answer, program):
    """The last fenced Python; without a fence the whole answer; another language is no answer."""
    assert program_of(answer) == program


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [(1, 1.0, True), (1, True, False), (None, None, True), ("1", 1, False), ([1, [2]], [1, [2.0]], True),
     ({"a": 1}, {"a": 1, "b": 2}, False), ({"a": [0.3]}, {"a": [0.1 + 0.2]}, True), ([1], [1, 2], False),
     (10**400, 10**400, True), (10**400, 1.0, False), (0.0, 1e-14, True), (None, 0, False)],
)  # fmt: skip
def test_values_are_compared_as_json(given, expected, same):
    """Whole numbers exactly, floats nearly, a truth value never as a number."""
    assert alike(given, expected, 1e-9) is same


@pytest.mark.parametrize(
    "tests",
    [
        [{}],
        [{"call": "f"}],
        [{"stdout": "1", "assert": "x"}],
        [{"call": "f", "expected": 1, "expect": 2}],
        ["f() == 1"],
        7,
    ],
)
def test_tests_that_are_none_are_the_task_s_fault(sandbox, make, tests):
    """Failed, and nothing is run: the policy is not blamed."""
    assert graded(sandbox, make, "def f(): return 1", tests).kind == "unparsable"


class Nowhere:
    """A machine without a sandbox, as the port tells it."""

    def run(self, code, timeout_s=None):
        raise Unavailable("there is no bwrap here; install bubblewrap")

    def check(self):
        self.run(None)


def test_without_a_sandbox_no_code_is_run(make, tmp_path):
    """Failed(infrastructure), never 0; settings that ask for it are refused at the start."""
    for nowhere in (Nowhere(), None):
        grade = graded(nowhere, make, "def double(x): return 2 * x", DOUBLE)
        assert isinstance(grade, Failed)
        assert grade.kind == "infrastructure"
    with pytest.raises(SettingsError, match=r"'code'.*install bubblewrap"):
        load(Graders(enabled=("code",)), tmp_path, None, Means(sandbox=Nowhere()))
    assert isinstance(graded(None, make, "x", []), Abstained)


def test_options_are_checked():
    """No deadline below 0."""
    with pytest.raises(SettingsError, match="timeout_s"):
        builtin("code", {"timeout_s": -1})
    with pytest.raises(SettingsError, match="unknown option 'sandbox'"):
        builtin("code", {"sandbox": 1})
