"""The tasks on which graders are attacked: a right answer, a wrong one, others that might be right.

A few of each kind of answer (a number, a share, a negative, a displayed figure, yes or no, a name, a
sentence, a program, JSON). A grader is examined on those whose right answer it knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
MOST = 20
"""How many of the operator's tasks are used."""


def specimens_of(tasks: Iterable[Task]) -> tuple[Specimen, ...]:
    """Specimens from tasks with references: the other tasks' answers of the same kind are the wrong ones.
    Tasks without a reference, or without an answer of another task to be wrong with, are left out.
    """
    known = [task for task in tasks if task.reference not in (None, "")][:MOST]
    found = []
    for task in known:
        right = _text(task.reference)
        kind = isinstance(task.reference, str)
        pool = [_text(t.reference) for t in known if isinstance(t.reference, str) == kind]
        others = tuple(dict.fromkeys(text for text in pool if not _alike(text, right)))[:4]
        if not kind:
            assert isinstance(task.reference, int | float)
            others = (*others, *(f"{task.reference * f + 1:g}" for f in (1.37, 0.71, 2.9)))[:4]
        if others:
            topic = tuple(dict.fromkeys(_WORD.findall(task.question.lower())))
            value = None if isinstance(task.reference, str) or task.reference is None else float(task.reference)
            found.append(
                Specimen(task=task, right=(right,), wrong=others[0], others=others, topic=topic, value=value),
            )
    return tuple(found)


def _text(reference: str | float | None) -> str:
    return reference if isinstance(reference, str) else f"{reference:.10g}"


def _alike(one: str, other: str) -> bool:
    """Whether two answers could be taken for the same: equal words, or numbers within a twentieth."""
    first, second = numbers(clean(one)), numbers(clean(other))
    if first and second:
        return abs(first[0].value - second[0].value) <= 0.05 * max(abs(first[0].value), abs(second[0].value))
    return one.casefold().strip() in other.casefold() or other.casefold().strip() in one.casefold()
