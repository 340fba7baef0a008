"""Numbers in answer texts, with their signs, units, scales and the digits that they show.

Read: ``$48,250``, ``(1,234)``, ``-5 ( 5 )``, ``13.44 %``, ``3.1 million``, ``1.5bn``, ``25 basis points``,
``−8`` with any dash that is drawn like a minus, ``minus 8``. Not read as a number: a comma alone, digits
with commas in the wrong places (``1,23``), words of direction (``a decrease of 5 %`` is plus 5 %).
"""

from __future__ import annotations

import math
import re
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
    re.VERBOSE | re.IGNORECASE,
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
    """The text with every dash that is drawn like a minus, and every kind of space, made plain."""
    return text if text.isascii() else text.translate(_TRANSLATE)


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
    digits = match["digits"].rstrip(",")
    start = match.start("digits")
    if "," in digits and not _GROUPED.fullmatch(digits):
        return None
    if start and (text[start - 1].isalnum() or text[start - 1] in "._#"):
        return None  # part of a word or a reference: FY22, #1, v1.2
    if digits != match["digits"]:
        match_unit, closed = "", False
    else:
        match_unit, closed = (match["unit"] or "").strip().lower(), bool(match["close"] or match["close2"])
    after = text[match.end("exponent") if match["exponent"] else start + len(digits) :][:1]
    if not match_unit and after.isalpha():
        return None  # 3rd, 10K filings, 2x
    percent, scale = _factors(match_unit)
    mantissa = digits.replace(",", "") + (match["exponent"] or "")
    value = float(mantissa) * percent * scale
    if not math.isfinite(value):
        return None
    decimals = len(digits.partition(".")[2])
    unit = 10.0 ** (int((match["exponent"] or "e0")[1:]) - decimals) * percent * scale
    sign = -1.0 if _negative(match, text, closed=closed) else 1.0
    return Number(sign * value, unit, percent, scale, start, match[0])


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
    before = text[: match.start()].rstrip()
    previous = before[-1:]
    if match["word"]:
        return not previous.isdigit()
    for name in ("sign", "sign2"):
        sign = match[name]
        if sign and sign[0] == "-":
            if name == "sign" and not match["open"]:
                spaced_after = len(sign) > 1
                joined = match.start() > 0 and not text[match.start() - 1].isspace() and previous.isalnum()
                between = previous.isdigit() or previous in (")", "%") or (spaced_after and previous.isalpha())
                return not (joined or between)
            return True
    opened = bool(match["open"] or match["open2"])
    return opened and closed and bool(not before or previous in "=:$" or before.lower().endswith(_BEFORE_ACCOUNTING))


_BEFORE_ACCOUNTING: Final = (" is", " was", " of", " to", " at", " be", " are", " were", " about", " approximately")
