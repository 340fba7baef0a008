"""Reading what a judge said, strictly: a verdict that is not plainly there is no verdict.

A reply is JSON, alone or in prose; the last object that holds the wanted key counts. A judge without JSON may
say ``Score: 2/5``, ``[[4]]`` or ``Verdict: good``: a number counts only after such a word, never one picked from
prose or from an error's text. Nothing is clamped, no type is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from millstream.errors import GraderError

MAX_REPLY: Final = 200_000
MAX_OPENINGS: Final = 2_000
"""How many braces are tried as the beginning of an object."""
MAX_TRIED: Final = 4_000_000
"""How many characters are read in vain behind braces that begin no object."""
SEVERAL: Final = "several_verdicts"
"""The note of a reply with more than one verdict, not all alike: the last one counted."""
_THOUGHT = re.compile(r"\A.*</think(ing)?>", re.DOTALL | re.IGNORECASE)
_NUMBER: Final = (
    r"(?P<n>[+-]?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*(?P<of>\d+(?:\.\d+)?))?(?P<percent>\s*%)?(?![\w/%]|[.,–-]\d)"
)
_WORD: Final = r"\b(?:score|rating|grade|result|verdict)\b[\s*_`]*+(?::|=|is)[\s*_`]*+"
_SPOKEN = re.compile(rf"(?:{_WORD}(?:\[\[)?|\[\[\s*+){_NUMBER}", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:\b(?:label|result|verdict)\b[\s*_`]*+[:=][\s*_`]*+|\[\[\s*+)(?P<label>[^\]\n]{1,200}?)[\s*_`.]{0,20}"
    r"(?:\]\]|$)",
    re.IGNORECASE | re.MULTILINE,
)


class Unreadable(GraderError):
    """The reply holds no verdict that can be used, and why."""


class Read(Struct, frozen=True, kw_only=True):
    """A verdict: a number or a label, the judge's reason, and whether other verdicts stood before it."""

    value: float = 0.0
    label: str = ""
    reason: str = ""
    several: bool = False


def number(reply: str, low: float, high: float, key: str = "result") -> Read:
    """The number that a reply gives. Raises `Unreadable` when there is none, or none in [low, high]."""
    text = _said(reply)
    found = list(objects(text, key))
    if found:
        values = [_finite(one[key], key) for one in found[-1:]]
        several = len({json.dumps(one[key], default=str) for one in found}) > 1
        return Read(value=_within(values[-1], low, high), reason=reason_of(found[-1]), several=several)
    spoken = [_scaled(match, low, high) for match in _SPOKEN.finditer(text)]
    if not spoken:
        raise Unreadable(f"no {key} in the judge's reply {_short(reply)}")
    return Read(value=_within(spoken[-1], low, high), reason=_short(text), several=len(set(spoken)) > 1)


def label(reply: str, labels: Sequence[str], key: str = "result") -> Read:
    """The label that a reply gives. Raises `Unreadable` when there is none, or none of ``labels``."""
    text = _said(reply)
    found = list(objects(text, key))
    if found:
        said, reason = [one[key] for one in found], reason_of(found[-1])
    else:
        said, reason = [match["label"].strip() for match in _NAMED.finditer(text)], _short(text)
    if not said:
        raise Unreadable(f"no {key} in the judge's reply {_short(reply)}")
    if said[-1] not in labels:
        raise Unreadable(f"the judge's {key} {_short(said[-1])} is none of {', '.join(labels)}")
    return Read(label=said[-1], reason=reason, several=len(set(map(str, said))) > 1)


def document(reply: str, key: str, check: Callable[[Mapping[str, Any]], str]) -> tuple[Mapping[str, Any], bool]:
    """The last object with ``key``, and whether others stood before it. ``check`` says what is wrong with it, or
    nothing. Raises `Unreadable`.
    """
    found = list(objects(_said(reply), key))
    if not found:
        raise Unreadable(f"no {key} in the judge's reply {_short(reply)}")
    if told := check(found[-1]):
        raise Unreadable(f"{told} in the judge's reply {_short(reply)}")
    return found[-1], any(one != found[-1] for one in found)


def objects(text: str, key: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of a text that hold the key themselves, in order; what lies inside one is not looked at. Raises
    `Unreadable` for a text made to be read for ever: nested without end, or beginning objects that end nowhere.
    """
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_twins)
    place, tried = -1, 0
    for _ in range(MAX_OPENINGS):
        place = text.find("{", place + 1)
        if place < 0:
            return
        try:
            found, end = decoder.raw_decode(text, place)
        except RecursionError:
            raise Unreadable("the judge's reply is nested too deep") from None
        except ValueError as error:
            tried += getattr(error, "pos", place) - place
            if tried > MAX_TRIED:
                raise Unreadable("the judge's reply begins too many objects that end nowhere") from None
            continue
        if key in found:
            yield found
        place = end - 1


def reason_of(found: Mapping[str, Any]) -> str:
    """The judge's own words: ``reason``, or the conclusions of its ``steps``."""
    steps = found.get("steps")
    parts = [step.get("conclusion") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    told = " ".join(str(part) for part in (found.get("reason"), *parts) if part)
    return told[:500]


def _said(reply: str) -> str:
    """What was said after the thinking, if that was sent along."""
    return _THOUGHT.sub("", reply[:MAX_REPLY])


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _finite(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(f"the judge's {key} {_short(value)} is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unreadable(f"the judge's {key} is not finite")
    return number


def _scaled(match: re.Match[str], low: float, high: float) -> float:
    """The number as said; ``2/5`` and ``40 %`` are a share of the range, which must begin at 0 to have one."""
    value = float(match["n"])
    whole = 100.0 if match["percent"] else float(match["of"] or 0)
    if not (match["percent"] or match["of"]):
        return value
    if low != 0 or whole <= 0 or not 0 <= value <= whole:
        raise Unreadable(f"{match[0].strip()!r} has no place in [{low:g}, {high:g}]")
    return value / whole * high


def _within(value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise Unreadable(f"the judge's {value:g} lies outside [{low:g}, {high:g}]")
    return value


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return repr(text[:160] + ("…" if len(text) > 160 else ""))
