"""Numbers against numbers: whether the final answer is the reference, within what it shows.

Two kinds of reference (docs/graders.md has the measured rates):

- **executed** (a float: the unrounded value): |answer − gold| ≤ clip(half of the unit that the answer
  displays, 0.1 % of |gold|, 0.5 % of |gold|); gold 0: half the displayed unit or 1e-9;
- **displayed** (a text such as ``12.36``): the answer, rounded half-up to the gold's digits, equals it, and
  an answer that shows fewer digits is wrong (an exactly equal value is right).

Units. A written ``%`` is 1/100, basis points 1/10,000, scale words multiply; a bare number is taken as it
is written, so ``13.44`` is wrong for 0.1344. What the task states is its metadata ``unit: "percent"`` (the
reference counts percents) and ``scale: "thousand" | "million" | "billion"`` (or the question's "in
millions"): then ``3.1`` and ``3.1 million`` are both right for 3.1. A sign must be written.

A task may carry the text its data set shows as metadata ``answer``. Where that disagrees with the executed
value, the label says ``gold_conflict``; an answer that matches the text alone is ``text_only`` and gets 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from millstream.errors import SettingsError
from millstream.events import Task
from millstream.grade import Grade, Scored, abstain, fail
from millstream.graders.answers import MAX_LENGTH, final_number, final_part
from millstream.graders.numbers import Number, clean, numbers, plain
from millstream.trajectory import Trajectory

VERSION: Final = 2
LOW: Final = 0.001
HIGH: Final = 0.005
_SCALES: Final = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_STATED = re.compile(r"\bin (?:us )?\$?\s?(thousand|million|billion|trillion)s?\b", re.IGNORECASE)
_YES_NO = re.compile(r"\b(yes|no)\b(?![\u0300-\u036f])")  # a mark over it strikes it out
_WIDTH: Final = 120


CONFLICT: Final = "gold_conflict"
"""The flag of a grade whose task's two golds disagree."""


class Stated(NamedTuple):
    """What the task says of its reference: 0.01 where it counts percents, and its scale."""

    percent: float = 1.0
    scale: float = 1.0


_NOTHING_STATED: Final = Stated()


def numeric(*, low: float = LOW, high: float = HIGH) -> Callable[[Trajectory], Grade]:
    """The grader ``numeric``: 1 or 0 against ``task.reference``; abstains without a numeric one.

    ``low`` and ``high`` are the shares of |gold| between which the tolerance of an executed gold lies.
    Raises `SettingsError` unless 0 ≤ low ≤ high < 1.
    """
    if not (isinstance(low, int | float) and isinstance(high, int | float) and 0.0 <= low <= high < 1.0):
        raise SettingsError(f"numeric: low = {low!r}, high = {high!r}; both must be finite, 0 ≤ low ≤ high < 1")

    def grade(t: Trajectory) -> Grade:
        return grade_answer(t.final_answer, t.task, low=low, high=high)

    return grade


def grade_answer(answer: str | None, task: Task, *, low: float = LOW, high: float = HIGH) -> Grade:
    """The grade of an answer text for a task."""
    reference = task.reference
    if reference is None:
        return abstain("the task has no reference")
    if isinstance(reference, str):
        return _against_text(answer, reference, task)
    if not math.isfinite(reference):
        return fail(f"the reference {reference!r} is not finite; mend the task")
    stated = stated_of(task)
    text = task.metadata.get("answer") if task.metadata else None
    given = final_number(answer) if answer else None
    matched = given is not None and matches_executed(given, float(reference), stated, low=low, high=high)
    if text is None:
        return _verdict(matched, given, answer, repr(reference))
    return _with_text(matched, given, answer, float(reference), str(text))


def _against_text(answer: str | None, reference: str, task: Task) -> Grade:
    gold = _gold(reference)
    if gold is None:
        word = reference.strip().lower()
        return (
            yes_no(answer, word) if word in ("yes", "no") else abstain(f"the reference {reference[:80]!r} is no number")
        )
    given = final_number(answer) if answer else None
    matched = given is not None and matches_displayed(given, gold, stated_of(task))
    return _verdict(matched, given, answer, reference)


def _with_text(matched: bool, given: Number | None, answer: str | None, gold: float, text: str) -> Grade:
    shown = _gold(text)
    if shown is None or _agree(shown, gold):
        return _verdict(matched, given, answer, repr(gold))
    note = f"; gold_conflict: the data set shows {text[:40]!r}"
    verdict = _verdict(matched, given, answer, repr(gold))
    text_only = not matched and given is not None and matches_displayed(given, shown, Stated())
    label = "text_only" if text_only else f"{verdict.label}_gold_conflict"
    return Scored(score=verdict.score, label=label, reason=verdict.reason + note)


def _verdict(matched: bool, given: Number | None, answer: str | None, gold: str) -> Scored:
    if given is None:
        found = f"no number in {answer[:_WIDTH]!r}" if answer else "no answer"
        return Scored(score=0.0, label="no_number", reason=f"{found}; gold {gold}")
    if matched:
        return Scored(score=1.0, label="correct", reason=f"{given.text.strip(' ,')} for gold {gold}")
    return Scored(score=0.0, label="wrong", reason=f"{given.text.strip(' ,')} for gold {gold}")


def yes_no(answer: str | None, gold: str) -> Scored:
    """A yes/no answer: right when the final answer holds the gold word and not the other."""
    words = set(_YES_NO.findall(final_part(clean((answer or "")[-MAX_LENGTH:]))[0]))
    label = "correct" if words == {gold} else "wrong" if words else "no_number"
    return Scored(
        score=float(words == {gold}), label=label, reason=f"{'/'.join(sorted(words)) or 'no yes or no'}; gold {gold}"
    )


def flags_of(grade: Grade) -> tuple[str, ...]:
    """``(gold_conflict,)`` where the task's text and its executed value disagree."""
    conflict = isinstance(grade, Scored) and (grade.label.endswith(CONFLICT) or grade.label == "text_only")
    return (CONFLICT,) if conflict else ()


def stated_of(task: Task) -> Stated:
    """What the task states about the unit and scale of its reference."""
    metadata = task.metadata
    if not metadata and not task.question:
        return _NOTHING_STATED
    percent = 0.01 if metadata and metadata.get("unit") in ("percent", "%") else 1.0
    scale: Any = metadata.get("scale") if metadata else None
    if scale is None and task.question:
        found = _STATED.search(task.question)
        scale = found[1].lower() if found else None
    return Stated(percent, _SCALES.get(str(scale).removesuffix("s"), 1.0))


def matches_executed(given: Number, gold: float, stated: Stated, *, low: float = LOW, high: float = HIGH) -> bool:
    """Whether a number is the unrounded gold, within the tolerance of what it shows."""
    value, unit = (given.value, given.unit) if stated is _NOTHING_STATED else _in_units_of(given, stated)
    size = abs(gold)
    tolerance = min(max(unit / 2, low * size), high * size) if size else max(unit / 2, 1e-9)
    return abs(value - gold) <= tolerance * (1 + 1e-9)


def matches_displayed(given: Number, gold: Number, stated: Stated) -> bool:
    """Whether a number, rounded half-up to the digits the gold shows, is the gold."""
    stated = Stated(stated.percent if gold.percent == 1.0 else 1.0, stated.scale if gold.scale == 1.0 else 1.0)
    value, unit = _in_units_of(given, stated)
    if math.isclose(value, gold.value, rel_tol=1e-12):
        return True
    return unit <= gold.unit * (1 + 1e-9) and _same_digits(value, gold.value, gold.unit)


def _in_units_of(given: Number, stated: Stated) -> tuple[float, float]:
    """Value and shown unit in the units of the reference. A bare number is in them already."""
    factor = 1.0
    if stated.percent != 1.0 and given.percent != 1.0:
        factor /= stated.percent
    if stated.scale != 1.0 and given.scale != 1.0:
        factor /= stated.scale
    return given.value * factor, given.unit * factor


def _same_digits(value: float, shown: float, unit: float) -> bool:
    """Whether a value, rounded half-up to a unit, is the shown one."""
    return abs(value - shown) <= unit and _rounded(value, unit) == _rounded(shown, unit)


def _rounded(value: float, unit: float) -> int:
    return int((Decimal(repr(value)) / Decimal(f"{unit:.12g}")).quantize(Decimal(1), ROUND_HALF_UP))


def _agree(shown: Number, gold: float) -> bool:
    """Whether a data set's text is its executed value at the digits shown, in either reading of a percent."""
    readings = (shown, Number(shown.shown, shown.unit / shown.percent)) if shown.percent != 1.0 else (shown,)
    return any(_same_digits(gold, r.value, r.unit) for r in readings)


def counts_percents(text: str, gold: float) -> bool:
    """Whether a data set's text such as ``16.93%`` tells that its executed value 16.938 counts percents."""
    shown = _gold(text)
    return shown is not None and shown.percent != 1.0 and math.isclose(shown.shown, gold, rel_tol=HIGH)


@lru_cache(maxsize=4096)
def _gold(text: str) -> Number | None:
    """The number that a whole reference text is; None where it is a text."""
    stripped = clean(text).strip()
    found = plain(stripped)
    if found is not None:
        return found
    every = numbers(stripped)
    if len(every) != 1 or stripped.replace(every[0].text.strip(), "").strip(" .()$"):
        return None
    return every[0]
