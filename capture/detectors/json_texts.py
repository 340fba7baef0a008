"""Texts that are JSON: the strings in them change, every other byte stays as it was (numbers as they were written)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_decode = msgspec.json.Decoder().decode
_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_AFTER_NAME: Final = frozenset(":[, \t\r\n")


def changed(text: str, change: Callable[[str, str], str]) -> str | None:
    """The text with ``change(name, string)`` in place of each string that is a value, None when it is no JSON.

    ``name`` is that of the member whose value it is, or in whose list it stands; '' without one. JSON is an object
    or a list, or several, one a line.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    if is_json(text):
        return _strings(text, change)
    lines = text.split("\n")
    if len(lines) > 1 and all(
        not line.strip() or (line.lstrip()[:1] in ("{", "[") and is_json(line)) for line in lines
    ):
        return "\n".join(_strings(line, change) for line in lines)
    return None


def is_json(text: str) -> bool:
    """Whether the text is one JSON value."""
    try:
        _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _strings(text: str, change: Callable[[str, str], str]) -> str:
    made, end, name = list[str](), 0, ""
    for found in _STRING.finditer(text):
        gap = text[end : found.start()]
        if not _AFTER_NAME.issuperset(gap):
            name = ""
        told, after = found.group(), _next(text, found.end())
        if after == ":":
            name = _text(told)
            after_change = change("", name)
            told = told if after_change == name else _encode(after_change).decode()
        else:
            value = _text(told)
            after_change = change(name, value)
            told = told if after_change == value else _encode(after_change).decode()
        made += (gap, told)
        end = found.end()
    made.append(text[end:])
    return "".join(made)


def _next(text: str, place: int) -> str:
    """The next letter that is no blank."""
    while text[place : place + 1] in (" ", "\t", "\n", "\r"):
        place += 1
    return text[place : place + 1]
