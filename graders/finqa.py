"""FinQA's program language (Chen et al. 2021), executed, and its execution accuracy without the quirks.

A program is a comma list of steps such as ``subtract(9.6, 13.25), divide(#0, 13.25)``; ``#n`` is the result
of step n. Numbers may carry commas or ``%``; ``const_100`` is 100, ``const_m1`` is -1. Table steps
(``table_sum(total revenue, none)``) take the name of a row. ``greater`` says yes or no and cannot feed
another step. The last step's result counts, rounded to 5 decimals.

The official script (czyssrs/FinQA, evaluate.py) also calls an empty or cut program, inf and nan valid; here
they are invalid, each with its reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from millstream.events import Task
from millstream.grade import Grade, Scored, abstain
from millstream.trajectory import Trajectory

VERSION: Final = 1
DECIMALS: Final = 5
MAX_STEPS: Final = 100

Table = Sequence[Sequence[str]]
Value = float | str

_STEP = re.compile(
    r"(?P<table>table_\w+)\((?P<row>.+?), none\)|(?P<name>\w+)\((?P<first>[^()]+?), (?P<second>[^()]+?)\)", re.DOTALL
)
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)(e-?\d{1,3})?")
_CONSTANT = re.compile(r"const_(m?)(\d{1,12})")
_TABLE: Final[dict[str, Callable[[list[float]], float]]] = {
    "table_sum": sum,
    "table_average": lambda row: sum(row) / len(row),
    "table_max": max,
    "table_min": min,
}


class Invalid(ValueError):
    """The program can't be executed; the message says why."""


class Executed(NamedTuple):
    """What a program gives: a number rounded to 5 decimals, yes or no; or why it is invalid.

    ``exact`` is the number before rounding.
    """

    value: Value | None
    exact: Value | None = None
    reason: str = ""

    @property
    def valid(self) -> bool:
        """Whether the program could be executed."""
        return self.value is not None


def execute(program: str, table: Table = ()) -> Executed:
    """Execute a program over a table (rows of cells, the first the row's name). Never raises."""
    try:
        value = _run(_steps(program), table)
    except Invalid as error:
        return Executed(None, None, str(error))
    return Executed(value if isinstance(value, str) else round(value, DECIMALS), value)


def finqa() -> Callable[[Trajectory], Grade]:
    """The grader ``finqa``: 1 when the final answer is a program whose result is the reference, else 0.
    The table is the task's metadata ``table``.
    """

    def grade(t: Trajectory) -> Grade:
        if t.task.reference is None:
            return abstain("the task has no reference")
        return grade_program(t.final_answer or "", t.task)

    return grade


def grade_program(program: str, task: Task) -> Scored:
    """Execution accuracy of one program: valid, and equal to the reference at 5 decimals."""
    done = execute(program, task.metadata.get("table") or ())
    if not done.valid:
        return Scored(score=0.0, label="invalid", reason=done.reason)
    right = done.value == _gold(task.reference)
    label = "correct" if right else "wrong"
    return Scored(score=float(right), label=label, reason=f"{done.value} for gold {task.reference}")


def _gold(reference: str | float | None) -> Value | None:
    if isinstance(reference, int | float):
        return round(float(reference), DECIMALS)
    text = (reference or "").strip().lower()
    return round(float(text), DECIMALS) if _NUMBER.fullmatch(text) else text


def _steps(program: str) -> list[re.Match[str]]:
    text = program.strip().removesuffix("EOF").rstrip(" ,")
    if not text:
        raise Invalid("the program is empty")
    steps: list[re.Match[str]] = []
    place = 0
    while True:
        step = _STEP.match(text, place)
        if step is None:
            raise Invalid(f"step {len(steps)} is no op(a, b): {text[place : place + 60]!r}")
        steps.append(step)
        if len(steps) > MAX_STEPS:
            raise Invalid(f"more than {MAX_STEPS} steps")
        place = step.end()
        if place == len(text):
            return steps
        if not text.startswith(", ", place):
            raise Invalid(f"step {len(steps) - 1} is followed by {text[place : place + 20]!r} instead of ', '")
        place += 2


def _run(steps: list[re.Match[str]], table: Table) -> Value:
    results: list[Value] = []
    for index, step in enumerate(steps):
        value = _table_step(step, table) if step["table"] else _step(step, results)
        if isinstance(value, float) and not math.isfinite(value):
            raise Invalid(f"step {index} is not finite")
        results.append(value)
    return results[-1]


def _step(step: re.Match[str], results: list[Value]) -> Value:
    first, second = _argument(step["first"], results), _argument(step["second"], results)
    match step["name"]:
        case "add":
            return first + second
        case "subtract":
            return first - second
        case "multiply":
            return first * second
        case "divide":
            if second == 0:
                raise Invalid("division by zero")
            return first / second
        case "exp":
            return _power(first, second)
        case "greater":
            return "yes" if first > second else "no"
    raise Invalid(f"unknown operation {step['name']!r}")


def _power(base: float, exponent: float) -> float:
    try:
        value: Any = base**exponent
    except (OverflowError, ZeroDivisionError):
        raise Invalid(f"exp({base:g}, {exponent:g}) has no value") from None
    if isinstance(value, complex):
        raise Invalid(f"exp({base:g}, {exponent:g}) is not real")
    return float(value)


def _argument(text: str, results: list[Value]) -> float:
    if text.startswith("#"):
        index = int(text[1:]) if text[1:].isdecimal() and len(text) < 5 else -1
        if not 0 <= index < len(results):
            raise Invalid(f"{text} is no earlier step")
        value = results[index]
        if isinstance(value, str):
            raise Invalid(f"{text} is yes or no, not a number")
        return value
    constant = _CONSTANT.fullmatch(text)
    if constant:
        return float(constant[2]) * (-1.0 if constant[1] else 1.0)
    return _number(text)


def _number(text: str) -> float:
    plain = text.replace(",", "").strip()
    share = plain.endswith("%")
    plain = plain.removesuffix("%")
    if not _NUMBER.fullmatch(plain):
        raise Invalid(f"{text[:40]!r} is no number")
    return float(plain) / 100 if share else float(plain)


def _table_step(step: re.Match[str], table: Table) -> float:
    operation = _TABLE.get(step["table"])
    if operation is None:
        raise Invalid(f"unknown operation {step['table']!r}")
    if step["row"].startswith("#"):
        raise Invalid(f"{step['table']} takes the name of a row, not {step['row']}")
    rows = {row[0]: row[1:] for row in table if row}
    if step["row"] not in rows:
        raise Invalid(f"no row {step['row'][:60]!r}")
    cells = [_number(cell.replace("$", "").split("(")[0].strip()) for cell in rows[step["row"]]]
    if not cells:
        raise Invalid(f"row {step['row'][:60]!r} has no cells")
    return operation(cells)
