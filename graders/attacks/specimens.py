"""The tasks on which graders are attacked: a right answer, a wrong one, others that might be right.

A few of each kind of answer (a number, a share, a negative, a displayed figure, yes or no, a name, a
sentence, a program, JSON). A grader is examined on those whose right answer it knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from millstream.events import Task, TaskId
from millstream.graders.numbers import clean, numbers


class Specimen(Struct, frozen=True, kw_only=True):
    """A task with renderings of its ``right`` answer (at least one), a plainly ``wrong`` one, ``others``
    that could be taken for right, and ``topic``: the words that go with the question's subject. ``value``:
    the right answer as a number, where it is one.
    """

    task: Task
    right: tuple[str, ...]
    wrong: str
    others: tuple[str, ...]
    topic: tuple[str, ...] = ()
    value: float | None = None


def _specimen(
    question: str,
    reference: str | float,
    right: Sequence[str],
    others: Sequence[str],
    topic: str,
    value: float | None = None,
    **metadata: object,
) -> Specimen:
    task = Task(id=TaskId(f"attack-{len(question)}"), question=question, reference=reference, metadata=metadata)
    return Specimen(
        task=task, right=tuple(right), wrong=others[0], others=tuple(others), topic=tuple(topic.split()), value=value
    )


_MONEY = "revenue sales turnover income growth rose increased dollars year total difference change amount figure net"
_CAUSES = (
    "cost costs expense expenses freight shipping logistics input inputs material materials prices higher lower rising "
    "increase inflation wage wages demand volume mix currency exchange tariff and the of to by because due"
)

STANDARD: tuple[Specimen, ...] = (
    _specimen(
        "By how much did revenue grow, from 642 in 2019 to 820 in 2020?", 178.0, ["178"],
        ["164", "196", "1462", "731"], _MONEY, 178.0,
    ),
    _specimen(
        "What share of the 3,720 orders came from abroad?", 0.1344, ["13.44%", "0.1344"],
        ["9.1%", "15.2%", "88%", "21%"], "share percent percentage orders export foreign abroad portion rate", 0.1344,
    ),
    _specimen(
        "What was the change of inventory in the year?", -8.0, ["-8"],
        ["5", "12", "-3", "31"], "inventory stock change decrease fell decline year units", -8.0,
    ),
    _specimen(
        "What were the earnings per share?", "12.36", ["12.36"],
        ["11.20", "13.05", "9.87", "14.40"], "earnings share diluted basic per eps profit dollars",
    ),
    _specimen(
        "Did the debt fall over the period?", "yes", ["yes"], ["no"], "debt fall fell lower decrease period",
    ),
    _specimen(
        "Which city is the seat of the company?", "Paris", ["Paris"],
        ["Lyon", "Marseille", "Lille", "Nantes"], "city seat headquarters capital France French office located",
    ),
    _specimen(
        "Why did the gross margin narrow?", "higher freight and input costs", ["higher freight and input costs"],
        ["a change of auditor", "weaker holiday demand", "a strong dollar", "two plant closures"], _CAUSES,
    ),
    _specimen(
        "Write the program for the change from 13.25 to 9.60, relative to 13.25.", -0.27547,
        ["subtract(9.60, 13.25), divide(#0, 13.25)"],
        ["subtract(13.25, 9.60), divide(#0, 9.60)", "divide(9.60, 13.25)", "add(9.60, 13.25)"],
        "subtract divide add multiply const_100 exp greater table_sum", table=[["price", "9.60", "13.25"]],
    ),
    _specimen(
        "Answer as JSON with the key total.", '{"total": 178}', ['{"total": 178}'],
        ['{"total": 164}', '{"total": 196}', '{"total": 731}'], _MONEY,
        schema={"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}},
    ),
)  # fmt: skip
"""What every grader meets."""

_WORD = re.compile(r"\w{3,}")
_FACTORS: Final = (1.37, 0.71, 2.9, 0.4)
_SMALLEST, _LARGEST = 1e-6, 1e12
"""Numbers beyond these are no answers that people write out."""
MOST: Final = 20
"""How many of the operator's tasks are used."""
MOST_OTHERS: Final = 4


def specimens_of(tasks: Iterable[Task]) -> tuple[Specimen, ...]:
    """Specimens from tasks with references. Wrong answers are of the right one's kind (another number, the
    other of yes and no, another task's text): a list of candidates in which only one could be the answer would
    be no list. Left out are tasks without a wrong answer, and numbers that the question itself holds.
    """
    known = [task for task in tasks if task.reference not in (None, "")][:MOST]
    texts = [task.reference.strip() for task in known if isinstance(task.reference, str)]
    found = (_specimen_of(task, [text for text in texts if _kind(text) == "text"]) for task in known)
    return tuple(specimen for specimen in found if specimen is not None)


def _specimen_of(task: Task, texts: Sequence[str]) -> Specimen | None:
    right = task.reference.strip() if isinstance(task.reference, str) else f"{task.reference:.10g}"
    others = _others(right, texts)
    folded, question = right.casefold(), task.question.casefold()
    if not others or not any(map(str.isalnum, right)) or (_kind(right) == "number" and right in task.question):
        return None
    if folded == question.strip():
        return None
    return Specimen(
        task=task,
        right=(right,),
        wrong=others[0],
        others=others,
        topic=tuple(dict.fromkeys(word for word in _WORD.findall(question) if word != folded)),
        value=None if isinstance(task.reference, str) or task.reference is None else float(task.reference),
    )


def _others(right: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Wrong answers of the same kind as the right one; none where it has no kind that people write out."""
    if right.lower() in ("yes", "no"):
        return ("no" if right.lower() == "yes" else "yes",)
    if _kind(right) == "number":
        read = numbers(clean(right))
        value = read[0].shown if len(read) == 1 else 0.0
        if len(read) != 1 or (value and not _SMALLEST <= abs(value) <= _LARGEST):
            return ()
        mark = "%" if right.endswith("%") else ""
        return tuple(dict.fromkeys(f"{value * factor + 1:.6g}{mark}" for factor in _FACTORS))
    apart = (text for text in texts if text and text.casefold() not in right.casefold())
    return tuple(dict.fromkeys(text for text in apart if right.casefold() not in text.casefold()))[:MOST_OTHERS]


def _kind(text: str) -> str:
    """``number`` for a text that is one and nothing else, ``yes`` for yes and no, else ``text``."""
    if text.lower() in ("yes", "no"):
        return "yes"
    found = numbers(clean(text))
    whole = len(found) == 1 and not clean(text).replace(found[0].text.strip(), "").strip(" .()$")
    return "number" if whole or text.lower() in ("nan", "inf", "-inf") or _exponent(text) else "text"


def _exponent(text: str) -> bool:
    """Whether a text is a number that is too large or small for the reader of numbers."""
    return re.fullmatch(r"-?\d+(\.\d+)?e[-+]\d+", text, re.IGNORECASE) is not None
