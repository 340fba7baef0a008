"""The transitions of assembly: what an event or the passing of time does to a trajectory.

States: absent → open → ending (the end is known) → sealed → closed (a tombstone). The table is in
docs/architecture.md; each row has a unit test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.codec import content_digest
from millstream.events import (
    Event,
    MessageReceived,
    ModelResponded,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
    born_ms,
)
from millstream.settings import Assembly
from millstream.streams.assembly_closed import Tombstones
from millstream.streams.assembly_effects import Effects
from millstream.streams.assembly_ledger import Ledger
from millstream.streams.assembly_run import (
    ENDED,
    MAX_SEQ,
    MESSAGE,
    RESPONSE,
    RESULT,
    STARTED,
    Entry,
    Run,
    Timers,
    gapless,
    note_end,
    past_end,
)
from millstream.streams.assembly_seal import amendable, lacking, seal, whole
from millstream.streams.assembly_timers import Timetable
from millstream.streams.dead_letters import Place
from millstream.trajectory import SealReason

KIND: Final[dict[type, int]] = {
    TrajectoryStarted: STARTED,
    MessageReceived: MESSAGE,
    ModelResponded: RESPONSE,
    ToolReturned: RESULT,
    TrajectoryEnded: ENDED,
}


class Fold:
    """The trajectories of one partition. ``now`` is the monotone log time in milliseconds."""

    def __init__(self, settings: Assembly, effects: Effects, mapping_epoch: int) -> None:
        self.ledger = Ledger()
        self.now = 0
        self.runs: dict[str, Run] = {}
        self.closed = Tombstones(round(settings.retain_s * 1000), settings.max_events)
        self._settings = settings
        self._timers = Timers.of(settings)
        self._sealing = Timetable(self._timers, self.runs, sealed=False)
        self._closing = Timetable(self._timers, self.runs, sealed=True)
        self._effects = effects
        self._mapping_epoch = mapping_epoch

    def resume(self, now: int, ledger: Ledger, runs: Iterable[tuple[str, Run]]) -> None:
        """Take over a restored state (of a fold without any trajectory) and set its timers."""
        self.now, self.ledger = now, ledger
        for name, run in runs:
            self.runs[name] = run
            (self._closing if run.reason else self._sealing).arm(name, run, anew=True)

    # Time

    def deadline(self) -> int | None:
        """When the next trajectory is sealed by a timer."""
        due = self._sealing.next()
        return None if due is None else due[0]

    def advance(self, time_ms: int) -> None:
        """Let time pass: fire every timer that is due, by deadline and then id."""
        self.now = max(self.now, time_ms)
        while (due := self._sealing.next()) is not None and due[0] <= self.now:
            self._expire(*due)
        while (due := self._closing.next()) is not None and due[0] <= self.now:
            self._close(due[1], due[2])
        self.ledger.purged += self.closed.purge(self.now)

    def _expire(self, due: int, trajectory_id: str, run: Run) -> None:
        patience = run.end_ms + self._timers.patience(run)
        if run.end_ms >= 0 and due == patience:
            if run.linked and whole(run):
                self._seal(trajectory_id, run, "complete", due)
            elif run.linked and not run.graced:
                run.graced = True
                self._sealing.arm(trajectory_id, run, anew=True)
            else:
                self._seal(trajectory_id, run, lacking(run), due)
        elif due == run.age_ms + self._timers.max_age:
            self._seal(trajectory_id, run, "max_age", due)
        else:
            self._seal(trajectory_id, run, "idle_timeout", due)

    # Events

    def take(self, event: Event, raw: bytes, offset: int, index: int, *, imported: bool) -> None:
        """Fold in one event that belongs to a trajectory."""
        seq, link = event.seq, event.link
        if not (event.id and event.trajectory_id) or (link is None and (seq is None or not 0 <= seq <= MAX_SEQ)):
            self._unplaceable(event, raw, Place(offset, index))
            return
        name = event.trajectory_id
        identity = event.id if link is None else content_digest(raw)
        run = self.runs.get(name)
        if run is None:
            run = self._begin(event, identity, raw, Place(offset, index), imported=imported)
            if run is None:
                return
        if imported:
            run.imported = True
        known = len(run.identities)
        run.identities.add(identity)
        if len(run.identities) == known:
            self.ledger.duplicate += 1
            run.duplicates += not run.reason
            return
        kind = KIND[type(event)]
        entry = Entry(
            identity,
            raw,
            kind,
            event.producer,
            -1 if seq is None else seq,
            event.time_ns,
            _calls(event),
            offset,
            index,
            event.reason if isinstance(event, TrajectoryEnded) else "",
            link,
        )
        if isinstance(event, TrajectoryEnded):
            self._end(name, run, event)
        if link is not None:
            self._link(name, run, entry)
        elif run.last is not None and entry.seq > run.last.get(entry.producer, MAX_SEQ):
            self._after_end(name, entry)
        else:
            self._place(name, run, entry)
        if not run.reason:
            self._settle(name, run)

    def _unplaceable(self, event: Event, raw: bytes, place: Place) -> None:
        self.ledger.dead += 1
        detail = (
            f"event {event.id!r} of trajectory {event.trajectory_id!r} with seq {event.seq}: an event needs an id, "
            f"a trajectory_id, and a link or a seq of 0 to {MAX_SEQ}"
        )
        self._effects.refused("unplaceable", detail, place, raw, event.trajectory_id)

    def _begin(self, event: Event, identity: str, raw: bytes, place: Place, *, imported: bool) -> Run | None:
        """A new trajectory, unless it is closed or too old."""
        name = event.trajectory_id
        revision = self.closed.revision(name)
        if revision is not None:
            if self.closed.knows(name, identity):
                self.ledger.duplicate += 1
            else:
                self._late("sealed", f"trajectory {name} was sealed for good as revision {revision}", place, raw, name)
            return None
        told = born_ms(name)
        born = -1 if told is None else told
        if told is not None and not imported and born + self._timers.retain <= self.now:
            self._late("too_old", f"trajectory {name} is older than [assembly] retain_s", place, raw, name)
            return None
        run = Run(self.now, self.now, self.now, born, imported=imported)
        self.runs[name] = run
        self._sealing.arm(name, run, anew=True)
        return run

    def _late(self, why: str, detail: str, place: Place, raw: bytes, name: str) -> None:
        self.ledger.late += 1
        self._effects.refused(f"late:{why}", detail, place, raw, name)

    def _end(self, name: str, run: Run, event: TrajectoryEnded) -> None:
        """Learn where the producers ended; what lies after it goes."""
        last = run.last
        note_end(run, event)
        if run.last == last:
            return
        self._reopen(name, run)
        run.end_ms = self.now
        for key in past_end(run):
            entry = run.entries.pop(key)
            run.bytes -= len(entry.raw)
            self.ledger.accepted -= 1
            self._after_end(name, entry)

    def _after_end(self, name: str, entry: Entry) -> None:
        self.ledger.after_end += 1
        detail = f"seq {entry.seq} of producer {entry.producer!r} lies after the end of trajectory {name}"
        self._effects.refused("late:after_end", detail, entry.place, entry.raw, name)

    def _place(self, name: str, run: Run, entry: Entry) -> None:
        """Put a sequenced event into its slot, or settle whose slot it is: the smallest id's."""
        key = entry.key
        held = run.entries.get(key)
        if held is None:
            self._put(name, run, entry)
            return
        self.ledger.conflict += 1
        kept, loser = sorted((held, entry), key=lambda e: e.identity)
        if run.reason:
            kept, loser = held, entry
        run.entries[key] = kept
        run.bytes += len(kept.raw) - len(held.raw)
        run.conflicts += not run.reason
        detail = f"trajectory {name} has two events at {key}: {kept.identity!r} is kept, not {loser.identity!r}"
        self._effects.refused("late:conflict", detail, loser.place, loser.raw, name)

    def _link(self, name: str, run: Run, entry: Entry) -> None:
        """Put a version of a linked event into its slot if it outranks the one that is there."""
        link = entry.link
        assert link is not None
        held = run.entries.get(link.key)
        if held is not None:
            self.ledger.superseded += 1
            if entry.rank < held.rank:
                return
            self.ledger.accepted -= 1
            run.bytes -= len(held.raw)
        self._put(name, run, entry)
        run.linked = True
        if run.end_ms < 0 and link.root and link.finality > 0:
            run.end_ms = self.now

    def _put(self, name: str, run: Run, entry: Entry) -> None:
        self._reopen(name, run)
        run.entries[entry.key] = entry
        run.bytes += len(entry.raw)
        run.last_ms = self.now
        self.ledger.accepted += 1
        if entry.link is None:
            run.producers.add(entry.producer)

    def _reopen(self, name: str, run: Run) -> None:
        """Begin the next revision of a sealed trajectory, with a fresh budget of time."""
        if not run.reason:
            return
        run.reason, run.sealed_ms, run.graced = "", -1, False
        run.revision += 1
        run.age_ms = run.last_ms = self.now
        if run.end_ms >= 0:
            run.end_ms = self.now
        self._sealing.arm(name, run, anew=True)

    # Sealing

    def _settle(self, name: str, run: Run) -> None:
        """Seal a run that is whole or too big; else see to its timer."""
        if run.end_ms >= 0 and (run.graced and whole(run) if run.linked else gapless(run)):
            self._seal(name, run, "complete", self.now)
        elif len(run.entries) > self._settings.max_events or run.bytes > self._settings.max_bytes:
            self._seal(name, run, "overflow", self.now)
        elif run.end_ms >= 0:
            self._sealing.arm(name, run)

    def _seal(self, name: str, run: Run, reason: SealReason, at: int) -> None:
        run.sealed_ms = at
        body = seal(name, run, reason, self._effects.record.partition, self._mapping_epoch)
        self._effects.sealed(name, body)
        self.ledger.revisions += 1
        self.ledger.sealed += run.revision == 1
        if amendable(run) and run.revision < self._settings.max_revisions:
            self._closing.arm(name, run, anew=True)
        else:
            self._close(name, run)

    def _close(self, name: str, run: Run) -> None:
        del self.runs[name]
        self.ledger.purged += not self.closed.close(name, run, self.now)


def _calls(event: Event) -> tuple[str, ...]:
    if isinstance(event, ToolReturned):
        return (event.call_id,)
    if isinstance(event, ModelResponded) and event.tool_calls:
        return tuple([call.id for call in event.tool_calls])
    return ()
