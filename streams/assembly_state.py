"""The snapshot of assembly: msgpack, lists in a fixed order, so that equal states are equal bytes."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from millstream.errors import Unavailable
from millstream.streams.assembly_ledger import Ledger
from millstream.streams.assembly_run import Entry, Run

FORMAT = 1


class PackedRun(Struct, array_like=True, frozen=True):
    """A `Run` with its dicts and sets as sorted lists; what is derived is left out."""

    trajectory_id: str
    times: tuple[int, int, int, int, int, int]
    revision: int
    reason: str
    counts: tuple[int, int]
    marks: tuple[bool, bool, bool]
    last: list[tuple[str, int]] | None
    entries: list[Entry]
    identities: list[str]


class Packed(Struct, array_like=True, frozen=True):
    """The whole state of one partition's assembly."""

    format: int
    now: int
    next_offset: int
    ledger: Ledger
    runs: list[PackedRun]
    passing: list[tuple[str, bytes]]
    kept: list[tuple[str, bytes]]


def empty() -> Packed:
    """The beginning."""
    return Packed(FORMAT, 0, 0, Ledger(), [], [], [])


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packed).decode


def pack_run(trajectory_id: str, run: Run) -> PackedRun:
    """A run as lists."""
    return PackedRun(
        trajectory_id,
        (run.first_ms, run.last_ms, run.age_ms, run.born, run.end_ms, run.sealed_ms),
        run.revision,
        run.reason,
        (run.duplicates, run.conflicts),
        (run.imported, run.linked, run.graced),
        None if run.last is None else sorted(run.last.items()),
        sorted(run.entries.values(), key=_place),
        sorted(run.identities),
    )


def _place(entry: Entry) -> tuple[str, str, int]:
    return (entry.link.key if entry.link is not None else "", entry.producer, entry.seq)


def unpack_run(packed: PackedRun) -> Run:
    """The run of its lists; its timer is not set."""
    first_ms, last_ms, age_ms, born, end_ms, sealed_ms = packed.times
    duplicates, conflicts = packed.counts
    imported, linked, graced = packed.marks
    return Run(
        first_ms=first_ms,
        last_ms=last_ms,
        age_ms=age_ms,
        born=born,
        revision=packed.revision,
        end_ms=end_ms,
        sealed_ms=sealed_ms,
        reason=packed.reason,
        bytes=sum(len(entry.raw) for entry in packed.entries),
        duplicates=duplicates,
        conflicts=conflicts,
        imported=imported,
        linked=linked,
        graced=graced,
        producers={entry.producer for entry in packed.entries if entry.link is None},
        last=None if packed.last is None else dict(packed.last),
        entries={entry.key: entry for entry in packed.entries},
        identities=set(packed.identities),
    )


def dump(state: Packed) -> bytes:
    """The snapshot's bytes."""
    return _encode(state)


def load(snapshot: bytes) -> Packed:
    """The snapshot of `dump`. Raises `Unavailable` when it is none, or of another format."""
    try:
        state = _decode(snapshot)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the state of assembly can't be read ({error}): rebuild it from telemetry") from None
    if state.format != FORMAT:
        raise Unavailable(f"the state of assembly has format {state.format}, this version reads {FORMAT}: upgrade")
    return state
