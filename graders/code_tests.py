r"""``code``: the final answer is a program or a function that passes the task's tests, each run in the sandbox.

A task's tests are ``metadata["tests"]``, a list; each test is one of

    {"call": "area", "arguments": [2, 3], "expected": 6}     a function's result
    {"stdin": "2 3\n", "stdout": "6\n"}                        a program's output
    {"assert": "assert area(2, 3) == 6"}                     lines that raise when it is wrong

What a function or a program gave is compared *here*: the code never sees what is expected, each test is a fresh
process, and what comes out is plain JSON (the attacks on test harnesses, such as ``__eq__`` that is always true or an
early exit, have nothing to act on). Lines that assert run beside the code, which could fool them: prefer the others.

Score: tests passed / tests, so that half a solution teaches more than none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from millstream.errors import SettingsError, Unavailable
from millstream.grade import Grade, abstain, fail, score
from millstream.sandboxing import Code, Ran, Sandbox
from millstream.trajectory import Trajectory

VERSION: Final = 1
PASSED: Final = "def passed():\n    return 'passed'\n"
"""Called after lines that assert: reached only when nothing before it ended the process."""
LARGEST: Final = 1e300
"""Beyond it a whole number may be too large for a float: compared exactly."""
LANGUAGES: Final = ("", "python", "py", "python3")
"""What a fenced block may be called to be taken for the answer."""


class Test(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test of a task; exactly one of ``call``, ``stdout`` and ``assert_`` is given."""

    call: str = ""
    arguments: tuple[Any, ...] = ()
    expected: Any = UNSET
    stdin: str = ""
    stdout: str | UnsetType = UNSET
    assert_: str = field(default="", name="assert")

    def __post_init__(self) -> None:
        given = bool(self.call) + (self.stdout is not UNSET) + bool(self.assert_)
        if given != 1 or bool(self.call) != (self.expected is not UNSET):
            raise ValueError("a test has call with expected, or stdout, or assert")


def code(
    *, timeout_s: float = 10.0, deadline_s: float = 60.0, tolerance: float = 1e-9, sandbox: Sandbox | None = None
) -> Callable[[Trajectory], Grade]:
    """The grader. ``timeout_s`` for each test, ``deadline_s`` for all of a run: what was not run by then did not
    pass. ``tolerance``: how far a float may be off, relative to what is expected.

    Raises `SettingsError` for an option that is no positive number.
    """
    for name, value in {"timeout_s": timeout_s, "deadline_s": deadline_s, "tolerance": tolerance}.items():
        if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
            raise SettingsError(f"[graders.options.code] {name} = {value!r} must be a number, and not below 0")

    def grade(t: Trajectory) -> Grade:
        tests = t.task.metadata.get("tests")
        if not tests:
            return abstain("the task has no tests")
        try:
            wanted = msgspec.convert(tests, tuple[Test, ...])
        except msgspec.ValidationError as error:
            return fail(f"the task's tests can't be read: {error}", "unparsable")
        source = program_of(t.final_answer or "")
        if not source:
            return score(0.0, label=f"0/{len(wanted)}", reason="no code in the answer")
        if sandbox is None:
            return fail("code that arrived as data runs in a sandbox only, and there is none here", "infrastructure")
        try:
            return _graded(_outcomes(sandbox, source, wanted, timeout_s, deadline_s, tolerance))
        except Unavailable as error:
            return fail(str(error), "infrastructure")

    return grade


def program_of(answer: str) -> str:
    """The code in an answer: its last fenced block that is Python (or says nothing), else the whole of it when it
    has no fence.
    """
    blocks = list(_blocks(answer))
    fitting = [body for kind, body in blocks if kind in LANGUAGES]
    if fitting:
        return fitting[-1]
    return "" if blocks else answer.strip()


def _blocks(answer: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a text: what each is called, and its lines. One that is never closed ends with the text."""
    fence, kind, body = "", "", list[str]()
    for line in answer.splitlines():
        mark = line.strip()
        if fence and mark.startswith(fence) and not mark.strip(fence[0]):
            yield kind, "\n".join(body)
            fence = ""
        elif fence:
            body.append(line)
        elif mark.startswith(("```", "~~~")):
            kind = mark.lstrip(mark[0])
            fence = mark[: len(mark) - len(kind)]
            kind, body = kind.strip().partition(" ")[0].lower(), []
    if fence:
        yield kind, "\n".join(body)


def _outcomes(
    sandbox: Sandbox, source: str, tests: Sequence[Test], timeout_s: float, deadline_s: float, tolerance: float
) -> list[str]:
    """Why each test failed; empty when it passed."""
    end = time.monotonic() + deadline_s
    found = []
    for test in tests:
        left = min(timeout_s, end - time.monotonic())
        found.append(_why(test, sandbox.run(_code(test, source), left), tolerance) if left > 0 else "no time was left")
    return found


def _code(test: Test, source: str) -> Code:
    sources = (("answer.py", source),)
    if test.assert_:
        return Code(sources=(*sources, ("test.py", test.assert_), ("passed.py", PASSED)), function="passed")
    if test.call:
        return Code(sources=sources, function=test.call, arguments=test.arguments)
    return Code(sources=sources, stdin=test.stdin, module="__main__")


def _why(test: Test, ran: Ran, tolerance: float) -> str:
    if ran.status != "ok":
        return f"{ran.status}: {ran.detail.rstrip().rpartition(chr(10))[2]}"
    if test.assert_:
        return "" if ran.value == "passed" else "the lines after the code were not reached"
    if test.call:
        return "" if alike(ran.value, test.expected, tolerance) else f"gave {_short(ran.value)}"
    assert isinstance(test.stdout, str)
    return "" if not ran.cut and _lines(ran.stdout) == _lines(test.stdout) else f"printed {_short(ran.stdout)}"


def alike(given: Any, expected: Any, tolerance: float) -> bool:
    """Whether two JSON values are the same; floats within the tolerance, a truth value never a number."""
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    if isinstance(given, int | float) and isinstance(expected, int | float):
        if max(abs(given), abs(expected)) > LARGEST or (isinstance(given, int) and isinstance(expected, int)):
            return given == expected
        return math.isclose(given, expected, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
    if isinstance(given, Mapping) and isinstance(expected, Mapping):
        return given.keys() == expected.keys() and all(alike(given[k], expected[k], tolerance) for k in given)
    if isinstance(given, list | tuple) and isinstance(expected, list | tuple):
        return len(given) == len(expected) and all(alike(a, b, tolerance) for a, b in zip(given, expected, strict=True))
    return type(given) is type(expected) and bool(given == expected)


def _lines(text: str) -> list[str]:
    """Lines without the white space at their ends, and without empty ones at the end of all."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 120 else f"{text[:120]}…"


def _graded(outcomes: Sequence[str]) -> Grade:
    passed = outcomes.count("")
    first = next((f"test {n}: {why}" for n, why in enumerate(outcomes, 1) if why), "")
    return score(passed / len(outcomes), label=f"{passed}/{len(outcomes)}", reason=first[:1000])
