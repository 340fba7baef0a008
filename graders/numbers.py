"""Numbers in answer texts, with their signs, units, scales and the digits that they show.

Read: ``$48,250``, ``(1,234)``, ``-5 ( 5 )``, ``13.44 %``, ``3.1 million``, ``1.5bn``, ``25 basis points``,
``−8`` with any dash that is drawn like a minus, ``minus 8``. Not read as a number: a comma alone, digits
with commas in the wrong places (``1,23``), words of direction (``a decrease of 5 %`` is plus 5 %).
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final, NamedTuple

_DASHES: Final = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-")
_SPACES: Final = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ")
_TRANSLATE: Final = {**_DASHES, **_SPACES, ord("\uff05"): "%", ord("\uff04"): "$", ord("\u2009"): " "}

_SCALES: Final = {
    "hundred": 1e2, "thousand": 1e3, "thousands": 1e3, "k": 1e3,
    "million": 1e6, "millions": 1e6, "mn": 1e6, "mm": 1e6, "mln": 1e6, "m": 1e6,
    "billion": 1e9, "billions": 1e9, "bn": 1e9, "b": 1e9,
    "trillion": 1e12, "trillions": 1e12, "tn": 1e12, "t": 1e12,
}  # fmt: skip
_PERCENTS: Final = {"%": 1e-2, "bp": 1e-4, "bps": 1e-4}

_NUMBER = re.compile(
    r"""
    (?=[-+(\[$€£¥.\dmnu])
    (?P<word>\b(?:minus|negative)\s+)?
    (?P<open>[(\[]\s*)?
    (?P<sign>[-+]\s*)?
    (?P<money>(?:us|usd)?\s*[$€£¥]\s*)?
    (?P<open2>\(\s*)?
    (?P<sign2>[-+]\s*)?
    (?P<digits>\d[\d,]*(?:\.\d+)?|\.\d+)
    (?P<exponent>e[-+]?\d{1,3})?
    (?P<close>\s*[)\]])?
    (?P<unit>
        \s*%
      | \s*per\s?cent(?:age\ points?)?\b | \s*pct\b | \s*percentage\ points?\b | \s*pp\b
      | \s*basis\ points?\b | \s*bps?\b
      | \s*(?:hundred|thousands?|millions?|billions?|trillions?|mn|mln|mm|bn|tn)\b
      | [kmbt]\b
    )?
    (?P<close2>\s*[)\]])?
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"-?\d{1,15}(\.\d{1,15})?")
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


class Number(NamedTuple):
    """A number as written. `value` is in base units (percent and scale words applied), `unit` the place
    value of its last shown digit in the same units. `percent` is the factor of a written percent or basis
    point sign, else 1; `scale` that of a scale word, else 1. `start` is where it begins in its text.
    """

    value: float
    unit: float
    percent: float = 1.0
    scale: float = 1.0
    start: int = 0
    text: str = ""

    @property
    def shown(self) -> float:
        """The value without its percent sign: 13.44 of `13.44%`."""
        return self.value / self.percent


def clean(text: str) -> str:
    """The text in small letters, every dash that is drawn like a minus and every kind of space made plain."""
    return text.lower() if text.isascii() else text.translate(_TRANSLATE).lower()


def plain(text: str) -> Number | None:
    """The quick way for a bare decimal number such as `-12.5`; None for anything else."""
    if not _PLAIN.fullmatch(text):
        return None
    _, point, decimals = text.partition(".")
    return Number(float(text), 10.0 ** -len(decimals) if point else 1.0, text=text)


def numbers(text: str) -> list[Number]:
    """Every number of a cleaned text, in order."""
    found = []
    for match in _NUMBER.finditer(text):
        number = _read(match, text)
        if number is not None:
            found.append(number)
    return found


def _read(match: re.Match[str], text: str) -> Number | None:
    word, open_, sign, _, open2, sign2, written, exponent, close, unit, close2 = match.groups()
    digits = written.rstrip(",")
    start = match.start("digits")
    if "," in digits and not _GROUPED.fullmatch(digits):
        return None
    if start and (text[start - 1].isalnum() or text[start - 1] in "._#"):
        return None  # part of a word or a reference: FY22, #1, v1.2
    cut = len(digits) != len(written)  # a comma after the number ends it: no unit belongs to it
    unit = "" if cut or unit is None else unit.strip()
    end = match.end("exponent") if exponent else start + len(written)
    if not unit and _goes_on(text[end : end + 1]):
        return None  # 3rd, 10k filings, 2x; 5², 5½, a digit that is struck out
    if _is_mark(text[match.end() : match.end() + 1]):
        return None  # struck out, sign and all
    percent, scale = _factors(unit)
    value = float(digits.replace(",", "") + (exponent or "")) * percent * scale
    place = (int(exponent[1:]) if exponent else 0) - len(digits.partition(".")[2])
    if not math.isfinite(value) or abs(place) > _LARGEST_EXPONENT:
        return None
    closed = not cut and bool(close or close2)
    if (word or open_ or sign or open2 or sign2) and _negative(match, text, closed=closed):
        value = -value
    return Number(value, 10.0**place * percent * scale, percent, scale, start, match[0])


def _goes_on(following: str) -> bool:
    """Whether the character after the digits makes them part of something else: a letter, a superscript, a
    fraction, a digit of another script, or a mark drawn over the last digit.
    """
    if following.isascii():
        return following.isalpha()
    return following.isalnum() or following.isnumeric() or _is_mark(following)


def _is_mark(char: str) -> bool:
    return not char.isascii() and unicodedata.category(char).startswith("M")


def _factors(unit: str) -> tuple[float, float]:
    if not unit:
        return 1.0, 1.0
    if unit in _SCALES:
        return 1.0, _SCALES[unit]
    if unit.startswith("basis"):
        return 1e-4, 1.0
    return _PERCENTS.get(unit, 1e-2), 1.0


def _negative(match: re.Match[str], text: str, *, closed: bool) -> bool:
    """Whether the number is written as negative: a sign that stands before it rather than between two
    numbers, the word `minus`, or the parentheses of accounting.
    """
    begin = match.start()
    before = text[max(0, begin - _LOOK_BACK) : begin].rstrip()
    previous = before[-1:]
    if match["word"]:
        return not previous.isdigit()
    if (match["sign2"] or "").startswith("-"):
        return True
    sign = match["sign"] or ""
    if sign.startswith("-"):
        joined = begin > 0 and not text[begin - 1].isspace() and previous.isalnum()
        between = previous.isdigit() or previous in (")", "%") or (len(sign) > 1 and previous.isalpha())
        return bool(match["open"]) or not (joined or between)
    opened = bool(match["open"] or match["open2"])
    return opened and closed and bool(not before or previous in "=:$" or before.endswith(_BEFORE_ACCOUNTING))


_LOOK_BACK: Final = 40
_LARGEST_EXPONENT: Final = 280
_BEFORE_ACCOUNTING: Final = (" is", " was", " of", " to", " at", " be", " are", " were", " about", " approximately")
