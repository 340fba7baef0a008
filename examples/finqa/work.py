"""The child process of the demo: it plays, trains and evaluates, so torch is loaded once a process."""

from __future__ import annotations

import msgspec

from millstream.bootstrap import work
from millstream.examples.finqa.playing import Play, PlayedRun, play

MODULE = "millstream.examples.finqa.work"
"""What a child is started with."""

_play = msgspec.msgpack.Decoder(Play).decode
_played = msgspec.msgpack.Decoder(list[PlayedRun]).decode


def handle(method: str, payload: bytes) -> bytes:
    """Answer one call: ``play`` here, everything else as in `millstream up`."""
    if method == "play":
        return msgspec.msgpack.encode(play(_play(payload)))
    return work.handle(method, payload)


def encode(request: Play) -> bytes:
    """The payload of a ``play`` call."""
    return msgspec.msgpack.encode(request)


def decode(answer: bytes) -> list[PlayedRun]:
    """The runs in the answer to a ``play`` call."""
    return _played(answer)
