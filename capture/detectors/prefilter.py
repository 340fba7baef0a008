"""The look at an encoded event that is all most events need: whether it may hold what a detector finds.

It is never wrongly False. Only long runs of letters are held against the prefixes of keys; names are looked for in
a copy without ``_``, ``-`` and blanks; each other kind has a shape that is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from millstream.capture.detectors.entropy import is_random
from millstream.capture.detectors.keys import may_have_form
from millstream.capture.detectors.names import may_name
from millstream.capture.detectors.runs import runs

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16,64}")
_ESCAPES: Final = (b"\\\\u00", b"\\\\/")
"""JSON inside JSON may spell letters so."""

SHAPES: Final = {
    "email": rb"@",
    "ip": rb"\d\.\d{1,3}\.\d{1,3}\.\d|:[0-9A-Fa-f]{0,4}:",
    "phone": rb"\+\d|\([2-9]\d\d\)|\d{3}[.-]\d{3}[.-]\d{4}|00[1-9]\d",
    "card": rb"[2-6]\d{3}[ -]?\d{4,6}[ -]?\d{4}",
    "iban": rb"[A-Z]{2}\d{2} ?[A-Z0-9]{4}",
}
"""What every find of a kind has in it, by kind; a telephone number may instead have a word before it."""
_SAID: Final = (b"phone", b"tel", b"mobil", b"cell", b"fax", b"callme", b"whatsapp", b"handy")
_DIGITS = re.compile(rb"\d(?:[ .()/-]{0,2}\d){6}")

Look = Callable[[bytes], bool]


def prefilter(kinds: Iterable[str], fields: Sequence[str] = ()) -> Look:
    """Tells for an encoded event whether a detector of these kinds may find something in it."""
    wanted = frozenset(kinds)
    looks: list[Look] = []
    if "email" in wanted:
        looks.append(lambda data: b"@" in data)
    shapes = [SHAPES[kind] for kind in SHAPES if kind in wanted - {"email"}]
    if shapes:
        looks.append(_searched(re.compile(b"|".join(shapes))))
    if "phone" in wanted:
        looks.append(_said)
    if wanted & {"secrets", "entropy"}:
        looks.append(_has_key(keys="secrets" in wanted, tokens="entropy" in wanted))
    if "secrets" in wanted or fields:
        looks.append(may_name(fields))
    if "secrets" in wanted:
        looks += (lambda data: b"://" in data and b"@" in data, lambda data: b"hooks" in data)
    looks.append(lambda data: rb"\\" in data and any(escape in data for escape in _ESCAPES))
    return lambda data: any(look(data) for look in looks)


def _searched(form: re.Pattern[bytes]) -> Look:
    return lambda data: form.search(data) is not None


def _said(data: bytes) -> bool:
    low = data.lower()
    return any(word in low for word in (*_SAID, b"call me")) and _DIGITS.search(data) is not None


def _has_key(*, keys: bool, tokens: bool) -> Look:
    def has(data: bytes) -> bool:
        for start, end in runs(data):
            run = data[start:end]
            if _UUID.fullmatch(run):
                continue
            if (keys and may_have_form(data, start, end)) or (tokens and is_random(run.decode("ascii"))):
                return True
        return False

    return has
