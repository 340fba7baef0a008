"""Numbers of accounts: payment cards (ISO/IEC 7812, Luhn's check digit) and IBANs (ISO 13616, modulo 97).

A check digit alone lets one random number of ten through. A card must also begin as an issuer's, have its length
and be grouped as cards are, and stand alone: a row of a table has numbers beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from millstream.capture.detectors.base import Found

_ALONE = r"(?<![\w.,$€£¥%+-].)(?<!\d[ -].)"
"""Behind the first digit, so that a search skips to digits."""
_NO_MORE = r"(?![\w%])(?![ -]\d)(?![.,]\d)"
_CARD = re.compile(
    rf"[2-6]{_ALONE}(?:\d{{3}}([ -]?)\d{{4}}\1\d{{4}}\1\d{{4}}|\d{{3}}([ -]?)\d{{6}}\2\d{{4,5}}){_NO_MORE}", re.ASCII
)
_ISSUERS: Final = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|6(?:011|4[4-9]\d|5\d\d)\d{12}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14}|(?:5018|5020|5038|6304|6759|676[1-3])\d{12}",
    re.ASCII,
)
_IBAN = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])", re.ASCII
)
_COUNTRIES: Final = (
    "15 NO, 16 BE, 18 DK FI FO GL NL SD FK, 19 MK SI, 20 AT BA EE KZ LT LU XK MN, 21 CH HR LI LV, "
    "22 BG BH CR DE GB GE IE ME RS VA, 23 AE GI IL IQ OM SO TL, 24 AD CZ ES MD PK RO SA SE SK TN VG, "
    "25 LY PT ST, 26 IS TR, 27 BI DJ FR GR IT MC MR SM, 28 AL AZ BY CY DO GT HN HU LB NI PL SV, "
    "29 BR EG PS QA UA, 30 JO KW MU YE, 31 MT SC, 32 LC, 33 RU"
)
_LENGTHS: Final = {
    country: int(length)
    for length, *countries in (group.split() for group in _COUNTRIES.split(", "))
    for country in countries
}
"""The length of an IBAN by its country."""


def cards(text: str) -> Iterator[Found]:
    """Numbers of payment cards."""
    for found in _CARD.finditer(text):
        digits = re.sub(r"[ -]", "", found.group())
        if _ISSUERS.fullmatch(digits) and luhn(digits):
            yield Found(*found.span(), "card")


def luhn(digits: str) -> bool:
    """Whether the last digit checks the others: every second one from the right doubled, nines cast out."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[::-2]))) % 10 == 0


def ibans(text: str) -> Iterator[Found]:
    """International bank account numbers, in groups of four or in one piece."""
    for found in _IBAN.finditer(text):
        end = _iban_end(found.group())
        if end:
            yield Found(found.start(), found.start() + end, "iban")


def _iban_end(text: str) -> int:
    """Where in a text that begins like one the IBAN ends, by its country's length; 0: it is none."""
    length, seen = _LENGTHS.get(text[:2], 0), 0
    for place, letter in enumerate(text, 1):
        seen += letter != " "
        if seen == length:
            whole = place == len(text) or text[place] == " "
            return place if whole and mod97(text[:place].replace(" ", "")) == 1 else 0
    return 0


def mod97(iban: str) -> int:
    """The remainder that an IBAN leaves: its first four letters last, letters as numbers from A = 10."""
    return int("".join(str(int(letter, 36)) for letter in iban[4:] + iban[:4])) % 97
