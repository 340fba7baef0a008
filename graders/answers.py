r"""Which part of an answer text is the final answer, and which number in it.

The rule, in order:

1. **Marked**: the last of ``\boxed{…}``, ``<answer>…</answer>``, ``#### …``, or the words ``answer`` or
   ``result`` followed by ``:``, ``=``, ``is``, ``was`` or ``equals``. What follows the mark, to the end of
   its line, is the final answer, and its **first** number counts (after a last ``=`` when there is one).
2. **Alone**: the text holds one number.
3. **Last**: of several numbers the last one that is neither a date (``in 2014``, ``FY 2014``) nor a label
   (``note 4``, ``page 12``, ``part 2``), unless there is nothing else.

A number in parentheses that repeats the one before it (``-5 ( 5 )``) is the same number.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.graders.numbers import Number, clean, numbers, plain

_MARKS: Final = re.compile(
    r"\\boxed\{(?P<boxed>[^{}]*)\}"
    r"|<answer>(?P<tagged>.*?)</answer>"
    r"|####(?P<hashed>[^\n]*)"
    r"|(?:answer|result)\b\**\s*(?::|=|\bis\b|\bwas\b|\bequals\b)\**(?=(?P<worded>[^\n]*))",
    re.DOTALL,
)
_LABEL = re.compile(r"\b(?:note|page|part|item|section|table|step|figure|exhibit|chapter|row|column|line|no\.)\s*$")
_DATE = re.compile(
    r"\b(?:in|from|to|of|by|since|until|during|for|and|through|between|year|years|fy|fiscal|ended|end|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|"
    r"jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)[\s.,]*(?:\d{1,2}\s*,\s*)?$"
)
MAX_LENGTH: Final = 4096
_LOOK_BACK: Final = 40
_FIRST_YEAR: Final = 1900
_LAST_YEAR: Final = 2099


def final_part(text: str) -> tuple[str, bool]:
    """The final answer within a cleaned text, and whether it was marked as such."""
    marked = None
    if not ("answer" in text or "result" in text or "\\boxed" in text or "####" in text):
        return text.strip(), False
    for match in _MARKS.finditer(text):
        part = next(part for part in match.groups() if part is not None)
        if part.strip():
            marked = part
    return (marked.strip(), True) if marked is not None else (text.strip(), False)


def final_number(text: str) -> Number | None:
    """The number an answer text ends in, by the rule above; None where it holds none. Of a text longer
    than `MAX_LENGTH` only the end is read.
    """
    text = text[-MAX_LENGTH:].strip()
    quick = plain(text)
    if quick is not None:
        return quick
    part, marked = final_part(clean(text))
    found = numbers(part)
    if len(found) > 1:
        found = _without_repeats(found, part)
    if len(found) <= 1:
        return found[0] if found else None
    if marked:
        equals = part.rfind("=")
        return next((number for number in found if number.start > equals), found[0])
    for number in reversed(found):
        if not _is_aside(number, part):
            return number
    return found[-1]


def _without_repeats(found: list[Number], part: str) -> list[Number]:
    kept: list[Number] = []
    for number in found:
        if not (kept and number.text.startswith("(") and _repeats(number, kept[-1], part)):
            kept.append(number)
    return kept


def _repeats(number: Number, last: Number, part: str) -> bool:
    between = part[last.start : number.start].rstrip("( -+$")
    return abs(number.value) == abs(last.value) and between == last.text.strip("( -+$)")


def _is_aside(number: Number, part: str) -> bool:
    """Whether a number is a date (a bare year after a word such as `in`) or a label (`note 4`)."""
    before = part[max(0, number.start - _LOOK_BACK) : number.start]
    if _LABEL.search(before):
        return True
    year = number.unit == 1.0 and _FIRST_YEAR <= number.value <= _LAST_YEAR and "," not in number.text
    return year and "$" not in number.text and bool(_DATE.search(before))
