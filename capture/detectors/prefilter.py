"""The look at an encoded event that is all most events need: whether it may hold what a detector finds.

It is never wrongly False. Only long runs of letters are held against the prefixes of keys; names are looked for in
a copy without ``_``, ``-`` and blanks; each other kind has a shape that is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from millstream.capture.detectors.contacts import SAID, WORDS
from millstream.capture.detectors.entropy import SHORTEST, is_random
from millstream.capture.detectors.keys import may_have_form
from millstream.capture.detectors.names import may_name
from millstream.capture.detectors.runs import number_runs, runs

_PLAIN = re.compile(rb"[0-9a-f]{8,64}(?:-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?")
"""Digits, hex and UUIDs: the ids and times of every event."""
_ESCAPES: Final = (b"\\\\u00", b"\\\\/")
"""JSON inside JSON may spell letters so."""

_NUMBERS: Final = {
    "ip": rb"\d\.\d{1,3}\.\d{1,3}\.\d",
    "phone": rb"\+\d|\([2-9]\d\d\)|\d{3}[.-]\d{3}[.-]\d{4}|(?<!\d)00[1-9]\d",
    "card": rb"(?<!\d)[2-6]\d{3}[ -]?\d{4,6}[ -]?\d{4}",
}
"""What every find of a kind has in it that is made of digits, or has a word before it that says so."""
_COLONS = re.compile(rb":[0-9A-Fa-f]{0,4}:")
_IBAN = re.compile(rb"[A-Z]{2}\d{2} ?[A-Z0-9]{4}")
_SAID = re.compile(SAID.encode())
_WORDS = tuple(word.encode() for word in WORDS)

Look = Callable[[bytes], bool]


def prefilter(kinds: Iterable[str], fields: Sequence[str] = ()) -> Look:
    """Tells for an encoded event whether a detector of these kinds may find something in it."""
    wanted = frozenset(kinds)
    looks = _personal(wanted)
    if wanted & {"secrets", "entropy"}:
        looks.append(_has_key(keys="secrets" in wanted, tokens="entropy" in wanted))
    if "secrets" in wanted or fields:
        looks.append(may_name(fields))
    if "secrets" in wanted:
        looks.append(lambda data: b"://" in data and (b"@" in data or b"hooks" in data))
    looks.append(lambda data: rb"\\" in data and any(escape in data for escape in _ESCAPES))

    def may_hold(data: bytes) -> bool:
        for look in looks:  # noqa: SIM110 — a generator costs as much as a look
            if look(data):
                return True
        return False

    return may_hold


def _personal(wanted: frozenset[str]) -> list[Look]:
    looks: list[Look] = []
    if "email" in wanted:
        looks.append(lambda data: b"@" in data)
    if wanted & _NUMBERS.keys():
        looks.append(_has_number(re.compile(b"|".join(_NUMBERS[kind] for kind in _NUMBERS if kind in wanted))))
    if "phone" in wanted:
        looks.append(_said)
    if "ip" in wanted:
        looks.append(lambda data: _COLONS.search(data) is not None)
    if "iban" in wanted:
        looks.append(lambda data: _IBAN.search(data) is not None)
    return looks


def _has_number(shape: re.Pattern[bytes]) -> Look:
    def has(data: bytes) -> bool:
        return any(shape.search(data, max(0, start - 1), end) for start, end in number_runs(data))

    return has


def _said(data: bytes) -> bool:
    low = data.lower()
    return any(word in low for word in _WORDS) and _SAID.search(data) is not None


def _has_key(*, keys: bool, tokens: bool) -> Look:
    def has(data: bytes) -> bool:
        for start, end in runs(data):
            if _PLAIN.fullmatch(data, start, end):
                continue
            if keys and may_have_form(data, start, end):
                return True
            if tokens and end - start >= SHORTEST and is_random(data[start:end].decode("ascii")):
                return True
        return False

    return has
