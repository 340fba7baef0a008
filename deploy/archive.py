"""What a gate decided from, kept: both sides' outcomes, with the runs where the evaluation gave them, so that
a decision can be made again when the gold grader was mended.
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec import Struct

from millstream.deploy.evaluation import Outcomes, TaskOutcome
from millstream.deploy.gate import GateContext
from millstream.settings import GateSettings

MAX_BYTES = 1 << 30
"""Unpacked: more is no archive of ours."""


class GateArchive(Struct, frozen=True, kw_only=True):
    """Everything that `millstream.deploy.gate.judge` was given."""

    settings: GateSettings
    context: GateContext
    champion: tuple[TaskOutcome, ...]
    candidate: tuple[TaskOutcome, ...]


def pack(champion: Outcomes, candidate: Outcomes, settings: GateSettings, context: GateContext) -> bytes:
    """The archive as bytes."""
    kept = GateArchive(settings=settings, context=context, champion=tuple(champion), candidate=tuple(candidate))
    return zlib.compress(msgspec.msgpack.encode(kept), 6)


def unpack(packed: bytes) -> GateArchive | None:
    """The archive, or None when the bytes are none that this version reads."""
    try:
        unzip = zlib.decompressobj()
        plain = unzip.decompress(packed, MAX_BYTES)
        return None if unzip.unconsumed_tail else msgspec.msgpack.decode(plain, type=GateArchive)
    except (zlib.error, msgspec.MsgspecError):
        return None
