"""Assembly: events of one partition in, whole trajectories out. A pure fold over the log.

Nothing here reads a clock: time is the log time of the records, timers fire from records only, so a
replay from any snapshot gives the same bytes. Completeness is decided by evidence (every seq of every
producer that the end listed; no dangling link ``grace`` after the root ended); time only decides when
to stop waiting. `assembly_fold` has the transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from millstream.codec import decode_record
from millstream.dialects.reading import DIALECTS, MAPPING_EPOCH
from millstream.ports import Output, Record
from millstream.prices import Prices
from millstream.settings import Assembly
from millstream.streams import assembly_state as state
from millstream.streams.assembly_dialects import DialectFold
from millstream.streams.assembly_effects import Effects
from millstream.streams.assembly_ledger import Ledger
from millstream.streams.dead_letters import REPLAY
from millstream.topics import TELEMETRY

DIALECT = "millstream"


class Assembler:
    """The stage ``assemble`` for one partition of ``telemetry``: a `millstream.ports.Processor`.

    ``topic_id`` is written into dead letters, ``mapping_epoch`` into trajectories; ``prices`` tell what the calls of
    models cost. A record is NDJSON
    of events, or of spans in a dialect that its header names; one with the header ``import`` = 1, or a dead
    letter that is replayed, is never too old.
    """

    def __init__(
        self,
        settings: Assembly,
        *,
        topic_id: str = "",
        mapping_epoch: int = MAPPING_EPOCH,
        prices: Prices | None = None,
    ) -> None:
        self.name = "assemble"
        self.inputs = (TELEMETRY.name,)
        self._settings = settings
        self._mapping_epoch = mapping_epoch
        self._prices = prices
        self._next_offset = 0
        self._effects = Effects(self.name, topic_id)
        self._fold = DialectFold(settings, self._effects, mapping_epoch, prices)

    def feed(self, record: Record) -> list[Output]:
        """Fold one record in; an offset that was fed before changes nothing."""
        if record.offset < self._next_offset:
            return []
        self._next_offset = record.offset + 1
        self._effects.begin(record)
        self._fold.advance(record.log_ms)
        dialect = record.headers.get("dialect", DIALECT)
        if dialect in DIALECTS and record.value:
            self._fold.read(record, imported=_exempt(record))
        elif dialect != DIALECT:
            self._foreign(record)
        else:
            self._lines(record)
        return self._effects.outputs

    def continue_at(self, offset: int) -> None:
        """The next record is this one, whatever was fed before (see `millstream.streams.runner`)."""
        self._next_offset = offset

    def renumber(self, revisions: Mapping[str, int]) -> None:
        """These were the last revisions that were put out, whoever sealed them (see `millstream.streams.remapping`)."""
        self._fold.renumber(revisions)

    def adopt(self, other: Assembler, older: AbstractSet[str], since_ms: int) -> None:
        """Take over what began at ``since_ms`` or before, and what only the other remembers."""
        self._fold.adopt(other._fold, older, since_ms)

    def _lines(self, record: Record) -> None:
        """Each line of a record, in order, at one moment of log time."""
        events, lines = decode_record(record.value or b"")
        self.ledger.inputs += len(events) or 1
        self.ledger.null += not events
        self._fold.take(events, lines, record.offset, imported=_exempt(record))

    def _foreign(self, record: Record) -> None:
        self.ledger.inputs += 1
        self.ledger.dead += 1
        known = ", ".join(sorted((DIALECT, *DIALECTS)))
        detail = f"dialect {record.headers['dialect']!r}: this version maps only {known}"
        self._effects.refused("unknown_dialect", detail, (record.value or b"", record.offset, -1))

    def deadline_ms(self) -> int | None:
        """When the next trajectory is sealed by a timer, or None; forgetting needs no tick."""
        return self._fold.deadline()

    def snapshot(self) -> bytes:
        """The state, canonical."""
        fold = self._fold
        runs = [state.pack_run(name, run) for name, run in sorted(fold.runs.items())]
        return state.dump(
            state.Packed(state.FORMAT, fold.now, self._next_offset, fold.ledger, runs, fold.closed.dump()),
        )

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by a snapshot's; an empty one is the beginning."""
        packed = state.load(snapshot) if snapshot else state.empty()
        fold = DialectFold(self._settings, self._effects, self._mapping_epoch, self._prices)
        fold.resume(packed.now, packed.ledger, [(run.trajectory_id, state.unpack_run(run)) for run in packed.runs])
        fold.closed.load(packed.closed)
        self._fold, self._next_offset = fold, packed.next_offset

    @property
    def ledger(self) -> Ledger:
        """Where each input went."""
        return self._fold.ledger

    @property
    def open(self) -> int:
        """Trajectories that wait for more."""
        return sum(not run.reason for run in self._fold.runs.values())

    @property
    def remembered(self) -> int:
        """Sealed trajectories that are still known: amendable ones and tombstones."""
        return len(self._fold.closed.stones) + len(self._fold.runs) - self.open


def _exempt(record: Record) -> bool:
    """Whether a record may be older than what is kept: it comes from a file, or back from the dead letters."""
    return record.headers.get("import") == "1" or REPLAY in record.headers
