"""Secrets, and personal data where that is set, are taken out before anything reaches the log.

`Redactor` asks the detectors of the kinds that are on, and puts a mark or a pseudonym in place of what they find.
Almost all events hold nothing, so a look at the encoded event comes first (`detectors.prefilter`). It is a net, not
a proof: a secret without a shape (a word in a sentence) goes through.

What it promises: a text that was JSON is JSON afterwards, with the same numbers; a number of a JSON value never
changes; redacting twice is redacting once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from millstream import settings
from millstream.capture.detectors import accounts, contacts, entropy, hosts, json_texts, keys, names
from millstream.capture.detectors.base import Detector, Found, before
from millstream.capture.detectors.prefilter import prefilter
from millstream.capture.finders import Finders
from millstream.capture.pseudonyms import STANDS_IN, Pseudonyms, key_from
from millstream.capture.shared import Tally
from millstream.errors import SettingsError

_BY_KIND: Final[dict[str, tuple[Detector, ...]]] = {
    "secrets": (keys.formed, keys.blocks, keys.bearers, keys.in_urls),
    "entropy": (entropy.random_tokens,),
    "iban": (accounts.ibans,),
    "card": (accounts.cards,),
    "email": (contacts.emails,),
    "phone": (contacts.phones,),
    "ip": (hosts.ips,),
}
"""In the order in which two finds at one place are decided."""
_NUMBERS: Final = frozenset({"card", "phone"})
_IN_REFERENCES: Final = ("secrets",)
"""What is looked for in an id, a hash or a model's name: they link events to each other."""
_A_NUMBER_IN_JSON: Final = re.compile(r"(\\*[\"'])\s{0,4}:\s{0,4}$")
_FAILED: Final = "failed"
"""The kind of a text that the operator's redactors could not look into."""
_ROUNDS: Final = 8
_DEEPEST: Final = 64

T = TypeVar("T")


class Redactor:
    """Replaces what detectors find in texts and JSON values, and counts it by kind.

    ``tally`` counts beside it, for all of a process; ``finders`` are asked beside the detectors. Raises `SettingsError`
    for a bad expression, or a key that is too short. Not thread-safe.
    """

    def __init__(
        self, capture: settings.Capture | None = None, tally: Tally | None = None, finders: Finders | None = None
    ) -> None:
        rules = capture or settings.Capture()
        self.counts: Counter[str] = Counter()
        self._tally = tally
        self._finders = finders
        self._asked: list[str] | None = None
        self._told: dict[str, list[Found]] = {}
        self._failed = False
        self._pseudonyms = Pseudonyms(key_from(rules.redact_key_env))
        self._allow = [_compiled("redact_allow", text) for text in rules.redact_allow]
        self._denied = [_compiled("redact_deny", text) for text in rules.redact_deny]
        named = "secrets" in rules.redact or bool(rules.redact_fields)
        self._secret_name = names.secret_name(rules.redact_fields) if named else None
        by_name = [names.assigned(rules.redact_fields), names.flagged(rules.redact_fields)] if named else []
        self._in_references = self._detectors(kind for kind in _IN_REFERENCES if kind in rules.redact)
        self._in_texts = [self._finds, *self._detectors(kind for kind in _BY_KIND if kind in rules.redact), *by_name]
        self._may_hold = prefilter(rules.redact, rules.redact_fields)

    def _detectors(self, kinds: Iterable[str]) -> list[Detector]:
        return [self._deny, *(detector for kind in kinds for detector in _BY_KIND[kind])]

    def suspects(self, encoded: bytes) -> bool:
        """Whether an encoded event may hold something to take out: cheap, and never wrongly False."""
        return bool(self._denied or self._finders) or self._may_hold(encoded)

    def text(self, text: str, name: str = "") -> str:
        """The text without what is to go; the same object when nothing is. ``name``: of the member it is in."""
        return self._answered(lambda: self._text(text, name, _DEEPEST))

    def tree(self, value: Any, name: str = "") -> Any:
        """A JSON value with `text` over all its strings and names. ``name``: of the member it is in."""
        return self._answered(lambda: self._tree(value, name))

    def _answered(self, work: Callable[[], T]) -> T:
        """What work gives, once the operator's redactors have been asked, at one go, about all its texts."""
        if self._finders is None:
            return work()
        self._asked = asked = list[str]()
        try:
            work()
        finally:
            self._asked = None
        texts = list(dict.fromkeys(asked))
        found = self._finders.find(texts)
        self._failed = found is None
        self._told = dict(zip(texts, found or (), strict=False))
        try:
            return work()
        finally:
            self._told, self._failed = {}, False

    def _tree(self, value: Any, name: str) -> Any:
        if isinstance(value, str):
            return self._text(value, name, _DEEPEST)
        if isinstance(value, dict):
            return self._members(value)
        if isinstance(value, list | tuple):
            return [self._tree(item, name) for item in value]
        return value

    def _members(self, value: dict[Any, Any]) -> dict[str, Any]:
        """The members of an object; names that a mark makes equal are told apart by a number."""
        told, made, same = _told_name(value), dict[str, Any](), Counter[str]()
        for key, item in value.items():
            name = self._plain(str(key), self._in_references)
            while name in made:
                same[name] += 1
                name = f"{name} {same[name] + 1}"
            made[name] = self._tree(item, told if told and key == "value" else str(key))
        return made

    def _text(self, text: str, name: str, depth: int) -> str:
        if not text:
            return text
        if self._is_secret(name, text):
            self._count("named")
            return self._pseudonyms.instead("named", text)
        if depth and text.lstrip()[:1] in ("{", "["):
            inside = json_texts.changed(text, lambda key, told: self._text(told, key, depth - 1))
            if inside is not None:
                return text if inside == text else inside
        if names.is_reference(name.rpartition(".")[2]):
            return self._plain(text, self._in_references)
        return self._leaf(text)

    def _leaf(self, text: str) -> str:
        if self._asked is not None:
            self._asked.append(text)
            return text
        if self._failed and not STANDS_IN.fullmatch(text):
            self._count(_FAILED)
            return f"[REDACTED:{_FAILED}]"
        return self._plain(text, self._in_texts)

    def _is_secret(self, name: str, text: str) -> bool:
        """Whether the name of a member, or the last part of a dotted one, says that its value is a secret."""
        if not name or len(text) < 3 or self._secret_name is None or STANDS_IN.fullmatch(text):
            return False
        return self._secret_name(name.rpartition(".")[2]) and not self._allowed(text)

    def _plain(self, text: str, detectors: Sequence[Detector]) -> str:
        for _ in range(_ROUNDS):
            found = self._found(text, detectors)
            if not found:
                break
            text = self._without(text, found)
        return text

    def _found(self, text: str, detectors: Sequence[Detector]) -> list[Found]:
        """What detectors find, in order and apart from each other; earlier detectors first at one place."""
        found = [one for detector in detectors for one in detector(text)]
        if not found:
            return found
        gone = [one.span() for one in STANDS_IN.finditer(text)]
        apart, end, place = list[Found](), 0, 0
        for one in sorted(found, key=lambda one: one.start):
            while place < len(gone) and gone[place][1] <= one.start:
                place += 1
            over = place < len(gone) and gone[place][0] < one.end
            if one.start >= end and not over and not self._allowed(text[one.start : one.end]):
                apart.append(one)
                end = one.end
        return apart

    def _without(self, text: str, found: Sequence[Found]) -> str:
        made, end = list[str](), 0
        for one in found:
            self._count(one.kind)
            instead = self._pseudonyms.instead(one.kind, text[one.start : one.end])
            quoted = one.kind in _NUMBERS and _A_NUMBER_IN_JSON.search(before(text, one.start, 16))
            made += (text[end : one.start], f"{quoted[1]}{instead}{quoted[1]}" if quoted else instead)
            end = one.end
        return "".join((*made, text[end:]))

    def _finds(self, text: str) -> Iterator[Found]:
        """What the operator's redactors found."""
        return iter(self._told.get(text, ()))

    def _count(self, kind: str) -> None:
        if self._asked is not None:
            return
        self.counts[kind] += 1
        if self._tally is not None:
            self._tally.add(kind)

    def _deny(self, text: str) -> Iterator[Found]:
        for number, form in enumerate(self._denied, 1):
            for found in form.finditer(text):
                if found.group():
                    yield Found(*found.span(), f"denied_{number}")

    def _allowed(self, value: str) -> bool:
        return any(form.fullmatch(value) for form in self._allow)


def _told_name(pair: dict[Any, Any]) -> str:
    """The name in ``{"name": "authorization", "value": …}``, as lists of headers and attributes are written."""
    told = pair.get("name", pair.get("key")) if "value" in pair else None
    return told if isinstance(told, str) else ""


def _compiled(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise SettingsError(f"[capture] {key}: {text!r} is no regular expression: {error}; mend or remove it") from None
