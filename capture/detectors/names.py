"""Values that are secrets because of the name before them: in texts (``password=…``), and as members of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from millstream.capture.detectors.base import Detector, Found, before

NAMES: Final = (
    *("password", "passwd", "passphrase", "passcode", "clientsecret", "appsecret", "sharedsecret", "webhooksecret"),
    *("apikey", "accesskey", "privatekey", "secretkey", "signingkey", "encryptionkey", "subscriptionkey", "accountkey"),
    *("accesstoken", "authtoken", "refreshtoken", "sessiontoken", "bearertoken", "bottoken", "apitoken", "csrftoken"),
    *("xsrftoken", "accesskeysecret", "hmackey", "masterkey"),
)
"""What a name ends in whose value is a secret, in small letters and without ``_``, ``-`` and blanks."""
_MEMBERS: Final = ("secret", "authorization", "cookie", "pwd", "cvv", "cvc", "cvv2", "credential", "credentials")
"""The same for members of objects; in a sentence these are words."""
_EQUALS: Final = ("secret", "pwd")
"""Words that are names before ``=``."""
_SQUEEZED: Final = str.maketrans("", "", "_- ")
_SIGN = re.compile(r"[:=]")
_QUOTED = re.compile(r"[ \t]{0,4}\\?(?:\"(?P<double>[^\s\"\\][^\"\\\n]{2,400})|'(?P<single>[^\s'\\][^'\\\n]{2,400}))")
_BARE = re.compile(r"(?P<blank>[ \t]{0,4})(?P<value>[^\s\"'\\,;&<>{}()\[\]=]{4,400})(?![(\[])")
_WORD = re.compile(r"[^\W\d]+(?:\.[^\W\d]+)*[.:!?…]*")
"""A word of a sentence, or a name of a program: no value behind a blank."""
_OPTION = re.compile(r"(?<![\w-])--(?P<name>[A-Za-z][\w-]{0,40})[ \t]")
_ELEMENT = re.compile(r"<(?P<name>[A-Za-z][\w.:-]{0,60})>(?P<value>[^<>\s][^<>\n]{2,400})(?=</)")
_PLACEHOLDER = re.compile(
    r"(?:[A-Z]+_)+[A-Z]+|(?i:your|my|some|the)[ _-].*|[*x.X•…]+|[$%].*|(?i:none|null|true|false|string)"
)
_REFERENCES: Final = re.compile(
    r"(?:.{0,60}[_.\-])?(?:id|ids|uuid|guid|hash|sha256|digest|checksum|signature|model|kind|role|type|finish_reason)"
    r"|.{0,60}[a-z](?:Id|ID|Ids)|lineage|group|split_key|family|fingerprint|system_fingerprint|etag|cursor",
)


def squeezed(name: str) -> str:
    """A name in small letters, without ``_``, ``-`` and blanks."""
    return name.translate(_SQUEEZED).lower()


def assigned(fields: Iterable[str] = ()) -> Detector:
    """Finds values that are assigned to a secret name in a text. ``fields``: further names."""
    names = (*NAMES, *map(squeezed, fields))

    def found(text: str) -> Iterator[Found]:
        end = 0
        for sign in _SIGN.finditer(text):
            place = sign.start()
            if place < end:
                continue
            head = squeezed(before(text, place, 48).rstrip("\"'\\ \t:"))
            if head.endswith(names) or (sign.group() == "=" and head.endswith(_EQUALS)):
                start, end = _value(text, place + 1)
                if start < end:
                    yield Found(start, end, "password")

    return found


def flagged(fields: Iterable[str] = ()) -> Detector:
    """Finds values behind a secret name that no ``:`` or ``=`` follows: ``--password …``, ``<password>…</``."""
    names = (*NAMES, *map(squeezed, fields))

    def found(text: str) -> Iterator[Found]:
        for option in _OPTION.finditer(text) if "--" in text else ():
            if squeezed(option["name"]).endswith(names):
                start, end = _value(text, option.end() - 1)
                if start < end:
                    yield Found(start, end, "password")
        for element in _ELEMENT.finditer(text) if "</" in text else ():
            if squeezed(element["name"]).endswith(names) and not _PLACEHOLDER.fullmatch(element["value"]):
                yield Found(*element.span("value"), "password")

    return found


def _value(text: str, place: int) -> tuple[int, int]:
    """Where the value that is assigned lies; both the same when it is none, or one that stands for any."""
    quoted = _QUOTED.match(text, place)
    bare = None if quoted else _BARE.match(text, place)
    if quoted:
        part = "double" if quoted["double"] else "single"
        span, value = quoted.span(part), quoted[part]
    elif bare and not (bare["blank"] and _WORD.fullmatch(bare["value"])):
        span, value = bare.span("value"), bare["value"]
    else:
        return place, place
    return (place, place) if _PLACEHOLDER.fullmatch(value) else span


def secret_name(fields: Iterable[str] = ()) -> Callable[[str], bool]:
    """Tells of the name of a member whether its value is a secret."""
    names = (*NAMES, *_MEMBERS, *map(squeezed, fields))
    return lambda name: len(name) <= 60 and squeezed(name).endswith(names)


def is_reference(name: str) -> bool:
    """Whether a member of that name names something (an id, a hash, a model) and tells nothing of a person."""
    return _REFERENCES.fullmatch(name) is not None


_NEEDLES: Final = (b"secret", b"bearer", b"authoriz", b"cookie", b"credential", b"pwd", b"cvv", b"cvc")
_PASS: Final = (b"passw", b"passphr", b"passcod")
_BEFORE_KEY: Final = tuple(name.removesuffix("key").encode() for name in NAMES if name.endswith("key"))
_BEFORE_TOKEN: Final = tuple(name.removesuffix("token").encode() for name in NAMES if name.endswith("token"))


def may_name(fields: Iterable[str] = ()) -> Callable[[bytes], bool]:
    """Tells of an encoded event, cheaply, whether a secret name or an ``Authorization`` may be in it."""
    words = [squeezed(field) for field in fields]
    needles = (*_NEEDLES, *(word.encode() for word in words if word.isascii()))
    others = [word for word in words if not word.isascii()]
    low = bytes(range(256)).lower()

    def may(data: bytes) -> bool:
        plain = data.translate(low, b"_- ")
        for needle in needles:
            if needle in plain:
                return True
        if b"pass" in plain and any(needle in plain for needle in _PASS):
            return True
        if others and any(word in squeezed(data.decode("utf-8", "replace")) for word in others):
            return True
        return _follows(plain, b"key", _BEFORE_KEY) or _follows(plain, b"token", _BEFORE_TOKEN)

    return may


def _follows(plain: bytes, word: bytes, firsts: tuple[bytes, ...]) -> bool:
    """Whether the word stands right behind one of others."""
    place = plain.find(word)
    while place >= 0:
        if plain[max(0, place - 16) : place].endswith(firsts):
            return True
        place = plain.find(word, place + 1)
    return False
