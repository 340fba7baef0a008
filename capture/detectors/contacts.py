"""Addresses of people: e-mail and telephone.

A number is a telephone number only by its form: an international one by ``+`` and a country code of E.164, a
national one by the separators that no amount has, or by a word before it that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from millstream.capture.detectors.base import Found, before

_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+=?^_`{|}~-]{1,64}\Z", re.ASCII)
_QUOTES: Final = ".'`-!#$%&*+=?^{|}~"
"""Letters that an address may hold and does not begin with."""
_DOMAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])", re.ASCII)

_NO_AMOUNT: Final = r"(?<![\w+.,$€£¥(-].)"
"""Behind the first letter: what stands before it makes no amount, and no later part of another number of it."""
_INTERNATIONAL = re.compile(
    rf"(?:\+{_NO_AMOUNT}|00(?<![\w+.,$€£¥-]..)(?=[1-9]))\d{{1,3}}(?:[ .()/-]{{0,2}}\d){{6,13}}(?![\d%])(?![.,]\d)",
    re.ASCII,
)
_NORTH_AMERICAN = re.compile(
    rf"(?:\({_NO_AMOUNT}[2-9]\d{{2}}\) ?[2-9]\d{{2}}[ .-]|[2-9]{_NO_AMOUNT}\d{{2}}([.-])[2-9]\d{{2}}\1)\d{{4}}"
    r"(?![\w%])(?![.,-]\d)",
    re.ASCII,
)
WORDS: Final = ("phone", "tel", "mobil", "cell", "fax", "call me", "whatsapp", "handy")
SAID: Final = (
    r"(?i)\b(?:telephone|phone|tel|mobile|cell|fax|call me(?: (?:at|on))?|whatsapp|telefon|handy|mobil)"
    r"(?:[ _]?(?:number|no\.?|nr\.?|#))?[\"']?(?: is)?\s{0,3}[:.=]?\s{0,3}[\"']?"
    r"(?P<value>[+(]?\d(?:[ .()/-]{0,2}\d){6,14})(?!\d)"
)
_SAID = re.compile(SAID, re.ASCII)
_THOUSANDS = re.compile(r"\+\d{1,3}(?:[ .]\d{3}){2}", re.ASCII)
_MONEY = re.compile(r" ?(?:[%€$£]|EUR|USD|GBP|million|billion|thousand|bn\b|mn\b|m\b|k\b)", re.IGNORECASE | re.ASCII)
_SHORT: Final = re.compile(r"1|7|20|27|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]", re.ASCII)
_LONG: Final = re.compile(r"2[1-69]|3[578]|42|5[09]|6[789]|8[0578]|9[67]|99[2-68]", re.ASCII)
"""Country codes of one or two digits, and the first two digits of those that have three."""


def emails(text: str) -> Iterator[Found]:
    """E-mail addresses, from each ``@`` outward."""
    place = text.find("@")
    while place >= 0:
        local = _LOCAL.search(before(text, place, 64))
        domain = _DOMAIN.match(text, place + 1)
        if local and domain:
            start = place - len(local.group().lstrip(_QUOTES))
            if start < place and text[start:place] != "git":  # git@HOST:PATH is a repository
                yield Found(start, domain.end(), "email")
        place = text.find("@", place + 1)


def phones(text: str) -> Iterator[Found]:
    """Telephone numbers."""
    if "+" in text or "00" in text:
        for found in _INTERNATIONAL.finditer(text):
            if _is_international(text, found):
                yield Found(*found.span(), "phone")
    for found in _NORTH_AMERICAN.finditer(text):
        yield Found(*found.span(), "phone")
    low = text.lower()
    if any(word in low for word in WORDS):
        for found in _SAID.finditer(text):
            yield Found(*found.span("value"), "phone")


def _is_international(text: str, found: re.Match[str]) -> bool:
    told = found.group()
    digits = re.sub(r"\D", "", told)
    if told.startswith("00"):
        if told.isdigit():
            return False
        digits = digits[2:]
    amount = _THOUSANDS.fullmatch(told) or _MONEY.match(text, found.end())
    return bool(_SHORT.match(digits) or _LONG.match(digits)) and 8 <= len(digits) <= 15 and not amount
