"""How often the numeric grader accepts right and wrong renderings of real FinQA answers.

Right: the executed value written in the ways people write it. Wrong: mistakes that a policy makes in a
system. Needs the FinQA items (MILLSTREAM_DATA names the folder, else ../shared/data).
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.graders.files import read_tasks
from millstream.graders.finqa import execute
from millstream.graders.numeric import grade_answer

ROOT = Path(__file__).resolve().parent.parent
FINQA = Path(os.environ.get("MILLSTREAM_DATA", ROOT.parent / "shared" / "data")) / "finqa" / "finqa_50.json"


def significant(value: float, digits: int) -> str:
    """A value with that many significant digits, written out."""
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):.{max(0, decimals)}f}"


def right(gold: float, *, percent: bool) -> Iterator[tuple[str, str]]:
    """(kind, text) of right answers."""
    for digits in (3, 4, 6):
        plain = significant(gold, digits)
        yield f"{digits} digits", plain
        yield f"{digits} digits in a sentence", f"The answer is {plain}."
        if percent:
            share = significant(gold * 100, digits)
            yield f"{digits} digits %", f"{share}%"
            yield f"{digits} digits percent", f"approximately {share} percent"
            yield f"{digits} digits % from year to year", f"It changed by {share}% from 2013 to 2014."
    share, plain = significant(gold * 100, 4), significant(gold, 6)
    if percent and gold < 0:
        yield "minus sign %", f"\u2212{share[1:]}%"
        yield "accounting %", f"({share[1:]}%)"
    if not percent:
        yield "money", f"${gold:,.2f}" if gold > 0 else f"-${-gold:,.2f}"
        yield "grouped in a sentence", f"about {gold:,.2f} dollars."
        yield "boxed", rf"So we get \boxed{{{plain}}}"
        yield "equation", f"100 + 7 = {gold:,.2f}"
        if gold < 0:
            yield "minus sign", f"\u2212{-gold:,.2f}"
            yield "accounting", f"({-gold:,.2f})"
        if abs(gold) >= 1e4:
            yield "thousands", f"{significant(gold / 1e3, 5)} thousand"
        if abs(gold) >= 1e6:
            yield "millions", f"${significant(gold / 1e6, 5)} million"
            yield "M", f"${significant(gold / 1e6, 5)}M"


def wrong(gold: float, *, percent: bool, step: float | None) -> Iterator[tuple[str, str]]:
    """(kind, text) of wrong answers, each far enough from the right value to be one."""
    values = {
        "off by 0.5 %": gold * 1.005,
        "off by -0.5 %": gold * 0.995,
        "off by 2 %": gold * 1.02,
        "x100": gold * 100,
        "/100": gold / 100,
        "sign": -gold,
        "x1000": gold * 1000,
    }
    if step is not None and step and not math.isclose(abs(step), abs(gold), rel_tol=0.006):
        values["dropped step"] = step
    for kind, value in values.items():
        yield kind, significant(value, 6)
        if percent:
            yield kind + " as %", f"{significant(value * 100, 5)}%"
    for digits in (1, 2):
        rough = significant(gold, digits)
        if not math.isclose(float(rough), gold, rel_tol=0.005):
            yield f"{digits} significant digits", rough
            if percent:
                yield f"{digits} significant digits %", f"{significant(gold * 100, digits)}%"


def measure(items: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str], Counter[str], Counter[str]]:
    """(right asked, right accepted, wrong asked, wrong accepted), by kind."""
    counts: tuple[Counter[str], ...] = (Counter(), Counter(), Counter(), Counter())
    tasks = read_tasks(json.dumps(items).encode())
    for item in items:
        task = tasks[item["id"]]
        gold = task.reference
        if not isinstance(gold, float) or not gold:
            continue
        percent = "%" in item["qa"]["answer"] and abs(gold) < 3
        program = item["qa"]["program"]
        shorter = (
            execute(program.rpartition(", ")[0].rpartition("), ")[0] + ")", item["table"]) if "), " in program else None
        )
        step = shorter.exact if shorter and isinstance(shorter.exact, float) else None
        for (asked, accepted), texts in (
            (counts[:2], right(gold, percent=percent)),
            (counts[2:], wrong(gold, percent=percent, step=step)),
        ):
            for kind, text in texts:
                asked[kind] += 1
                accepted[kind] += grade_answer(text, task).score == 1.0
    return counts


def main() -> int:
    if not FINQA.is_file():
        print(f"no FinQA items at {FINQA}: skipped")
        return 0
    asked, accepted, wrongs, paid = measure(json.loads(FINQA.read_bytes()))
    for title, total, taken in (("right", asked, accepted), ("wrong", wrongs, paid)):
        print(f"{title}: accepted {taken.total()} of {total.total()} ({taken.total() / total.total():.1%})")
        for kind in total:
            print(f"    {kind:40} {taken[kind]:4} of {total[kind]:4}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
