"""The snapshot of assembly: msgpack, lists in a fixed order, so that equal states are equal bytes."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from millstream.dialects.reading import Place
from millstream.errors import Unavailable
from millstream.ndjson import UNREADABLE
from millstream.streams.assembly_closed import Stones
from millstream.streams.assembly_ledger import Ledger
from millstream.streams.assembly_run import Run

FORMAT = 1


class PackedRun(Struct, array_like=True, frozen=True):
    """A `Run` with its dicts as lists, sorted but for ``identities``; what is derived is left out."""

    trajectory_id: str
    producer: str
    times: tuple[int, int, int, int, int, int]
    revision: int
    reason: str
    counts: tuple[int, int]
    marks: tuple[bool, bool, bool, bool]
    last: list[tuple[str, int]] | None
    lanes: list[tuple[str, list[tuple[int, bytes]]]]
    spans: list[tuple[str, bytes]]
    identities: list[tuple[str, int]]
    calls: tuple[list[str], list[str]]
    end_reason: str
    aliases: list[tuple[str, str]] = []
    hung: list[tuple[str, Place]] = []
    replays: int = 0


class Packed(Struct, array_like=True, frozen=True):
    """The whole state of one partition's assembly."""

    format: int
    now: int
    next_offset: int
    ledger: Ledger
    runs: list[PackedRun]
    closed: Stones


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packed).decode


def pack_run(trajectory_id: str, run: Run) -> PackedRun:
    """A run as lists."""
    return PackedRun(
        trajectory_id,
        run.producer,
        (run.first_ms, run.last_ms, run.age_ms, run.born, run.end_ms, run.sealed_ms),
        run.revision,
        run.reason,
        (run.duplicates, run.conflicts),
        (run.imported, run.linked, run.graced, run.disturbed),
        None if run.last is None else sorted(run.last.items()),
        sorted((producer, sorted(lane.items())) for producer, lane in run.lanes.items()),
        sorted(run.spans.items()),
        list(run.identities.items()),
        (run.asked, run.answered),
        run.end_reason,
        sorted(run.aliases.items()),
        sorted(run.hung.items()),
        run.replays,
    )


def unpack_run(packed: PackedRun) -> Run:
    """The run of its lists; its timer is not set."""
    first_ms, last_ms, age_ms, born, end_ms, sealed_ms = packed.times
    duplicates, conflicts = packed.counts
    imported, linked, graced, disturbed = packed.marks
    lanes = {producer: dict(lane) for producer, lane in packed.lanes}
    return Run(
        producer=packed.producer,
        lane=lanes.pop(packed.producer, {}),
        identities=dict(packed.identities),
        asked=packed.calls[0],
        answered=packed.calls[1],
        plain=None if packed.reason or linked or packed.last is not None else packed.producer,
        last_ms=last_ms,
        heavy=True,
        weight=-1,
        scheduled=-1,
        first_ms=first_ms,
        age_ms=age_ms,
        born=born,
        revision=packed.revision,
        end_ms=end_ms,
        sealed_ms=sealed_ms,
        reason=packed.reason,
        duplicates=duplicates,
        conflicts=conflicts,
        imported=imported,
        linked=linked,
        graced=graced,
        disturbed=disturbed,
        end_reason=packed.end_reason,
        last=None if packed.last is None else dict(packed.last),
        others=lanes,
        spans=dict(packed.spans),
        rooted=any(place.root for _, place in packed.hung),
        aliases=dict(packed.aliases),
        hung=dict(packed.hung),
        replays=packed.replays,
    )


def empty() -> Packed:
    """The beginning."""
    return Packed(FORMAT, 0, 0, Ledger(), [], Stones([], [], []))


def dump(state: Packed) -> bytes:
    """The snapshot's bytes."""
    return _encode(state)


def load(snapshot: bytes) -> Packed:
    """The snapshot of `dump`. Raises `Unavailable` when it is none, or of another format."""
    try:
        state = _decode(snapshot)
    except UNREADABLE as error:
        raise Unavailable(f"the state of assembly can't be read ({error}): rebuild it from telemetry") from None
    if state.format != FORMAT:
        raise Unavailable(f"the state of assembly has format {state.format}, this version reads {FORMAT}: upgrade")
    return state
