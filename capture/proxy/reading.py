"""The bytes of an exchange, read as a call: coded or not, streamed or not, whole or broken off."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from millstream.dialects import openai_calls
from millstream.dialects.openai_calls import Answered, Api, Asked
from millstream.errors import Undecodable
from millstream.forwarding import Ending, Headers

_decode = msgspec.json.Decoder().decode
_WORDS: Final = 500
_OVER: Final = ("completed", "incomplete", "failed")
_WBITS: Final = {"gzip": 31, "deflate": 15}


class Seen(Struct, kw_only=True):
    """What passed by. Bodies are pieces, as they were coded on the wire; times are nanoseconds since 1970. ``keys``:
    the caller's, so that what is told of the call has none of them.
    """

    api: Api
    headers: Headers
    began_ns: int
    keys: tuple[bytes, ...] = ()
    sent: list[bytes] = field(default_factory=list)
    status: int = 0
    answer_headers: Headers = ()
    came: list[bytes] = field(default_factory=list)
    ended_ns: int = 0
    ending: Ending = "unanswered"


class Read(Struct, frozen=True):
    """A call as it was asked and answered; ``failure``: why there is no whole answer, and its ``trouble`` in words."""

    asked: Asked
    answered: Answered
    failure: str = ""
    trouble: str = ""


_KEY_HEADERS: Final = frozenset({b"authorization", b"api-key", b"x-api-key", b"proxy-authorization", b"cookie"})
_SHORTEST_KEY: Final = 8
_NO_KEY: Final = b"[REDACTED:caller_key]"


def keys_of(headers: Headers) -> tuple[bytes, ...]:
    """What a caller shows to be let in."""
    told = (value.rpartition(b" ")[2].strip() for name, value in headers if name.lower() in _KEY_HEADERS)
    return tuple(one for one in told if len(one) >= _SHORTEST_KEY)


def without_keys(body: bytes, keys: Iterable[bytes]) -> bytes:
    """A body in which nobody tells the caller's keys: a server that repeats one in its error, a client that has it in
    a field.
    """
    for key in keys:
        body = body.replace(key, _NO_KEY)
    return body


def read(seen: Seen, most: int) -> Read:
    """The call. ``most``: bytes of a body that are read. Raises `Undecodable` for a request that is none."""
    asked = openai_calls.asked(seen.api, _object(without_keys(_plain(seen.sent, seen.headers, most), seen.keys)))
    if seen.status >= 400:
        told = without_keys(_plain_or_nothing(seen.came, seen.answer_headers, most), seen.keys)
        words = _told(told) or f"the upstream answered {seen.status}"
        return Read(asked, Answered(), f"status_{seen.status}", words)
    if seen.ending == "unanswered" or not seen.status:
        left = seen.ending == "left"
        return Read(asked, Answered(), "client_left" if left else "upstream_away", "")
    if _header(seen.answer_headers, b"content-type").startswith("text/event-stream"):
        return _streamed(seen, asked, most)
    return _in_one(seen, asked, most)


def _streamed(seen: Seen, asked: Asked, most: int) -> Read:
    reader, came = openai_calls.stream_reader(seen.api), bytearray()
    try:
        for piece in unpacked(seen.came, _coding(seen.answer_headers), most):
            came += piece
    except Undecodable:
        pass  # what came before it broke off counts
    reader.feed(without_keys(bytes(came), seen.keys))
    body = reader.finish()
    if not body:
        return Read(asked, Answered(), _why(seen))
    answered = openai_calls.answered(seen.api, body)
    over = seen.ending == "whole" or reader.done or body.get("status") in _OVER
    return _judged(seen, asked, answered, whole=over)


def _in_one(seen: Seen, asked: Asked, most: int) -> Read:
    try:
        body = _object(without_keys(_plain(seen.came, seen.answer_headers, most), seen.keys))
    except Undecodable as error:
        return Read(asked, Answered(), _why(seen), str(error))
    return _judged(seen, asked, openai_calls.answered(seen.api, body), whole=True)


def _judged(seen: Seen, asked: Asked, answered: Answered, *, whole: bool) -> Read:
    if answered.error:
        return Read(asked, answered, "error", answered.error[:_WORDS])
    return Read(asked, answered, "" if whole else _why(seen))


def _why(seen: Seen) -> str:
    return {"left": "client_left", "broken": "broken_off"}.get(seen.ending, "unreadable")


def unpacked(pieces: Iterable[bytes], coding: str, most: int) -> Iterable[bytes]:
    """The pieces of a body as they were before a coding. Raises `Undecodable` for what is not in it, for a coding
    that is not known, and when they become more than ``most`` bytes.
    """
    if coding in ("", "identity"):
        yield from pieces
        return
    if coding not in _WBITS:
        raise Undecodable(f"content-encoding {coding[:40]!r} can't be read")
    unzip, made = zlib.decompressobj(wbits=_WBITS[coding]), 0
    try:
        for piece in pieces:
            found = unzip.decompress(piece, most + 1 - made)
            made += len(found)
            if made > most or unzip.unconsumed_tail:
                raise Undecodable(f"the body is larger than {most:,} bytes when it is unpacked")
            yield found
    except zlib.error as error:
        raise Undecodable(f"the body is no {coding}: {error}") from None


def _plain(pieces: Iterable[bytes], headers: Headers, most: int) -> bytes:
    return b"".join(unpacked(pieces, _coding(headers), most))


def _plain_or_nothing(pieces: Iterable[bytes], headers: Headers, most: int) -> bytes:
    try:
        return _plain(pieces, headers, most)
    except Undecodable:
        return b""


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"the body is no JSON: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise Undecodable(f"the body is JSON of type {type(found).__name__}, not an object")
    return found


def _told(body: bytes) -> str:
    """The words of an error's body, short."""
    try:
        error = _object(body).get("error")
    except Undecodable:
        error = body.decode("utf-8", "replace")
    words = error.get("message") if isinstance(error, Mapping) else error
    return " ".join(str(words or "").split())[:_WORDS]


def _coding(headers: Headers) -> str:
    return _header(headers, b"content-encoding").lower()


def _header(headers: Headers, name: bytes) -> str:
    return next((value.decode("latin-1").strip() for key, value in headers if key.lower() == name), "")
