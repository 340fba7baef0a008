"""The lifetime of the trajectories of a partition: what the passing of time does to them, when they are
sealed, opened again and forgotten.

States: absent → open → ending (the end is known) → sealed → closed (a tombstone). Each row of the
transition table has its unit test in tests/unit/streams/assembly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from millstream.prices import Prices
from millstream.repair import MAX_EVENT_BYTES
from millstream.settings import Assembly
from millstream.streams.assembly_closed import Tombstones
from millstream.streams.assembly_effects import Effects
from millstream.streams.assembly_ledger import Ledger
from millstream.streams.assembly_run import Run, Timers, gapless
from millstream.streams.assembly_seal import amendable, lacking, seal, whole
from millstream.streams.assembly_timers import Timetable
from millstream.trajectory import SealReason


class Lifetimes:
    """The trajectories of one partition. ``now`` is the monotone log time in milliseconds; a run of at most
    ``light`` + 1 events can't reach a cap.
    """

    def __init__(self, settings: Assembly, effects: Effects, mapping_epoch: int, prices: Prices | None = None) -> None:
        self.ledger = Ledger()
        self.now = 0
        self.runs: dict[str, Run] = {}
        self.closed = Tombstones(round(settings.retain_s * 1000), settings.max_events)
        self._settings = settings
        self.light = min(settings.max_events, settings.max_bytes // MAX_EVENT_BYTES) - 1
        self.most_identities = 4 * settings.max_events
        self.most_open = settings.max_open
        self.timers = Timers.of(settings)
        self.sealing = Timetable(self.timers, self.runs, sealed=False)
        self._closing = Timetable(self.timers, self.runs, sealed=True)
        self.effects = effects
        self._mapping_epoch = mapping_epoch
        self._priced = prices.line if prices else None

    def resume(self, now: int, ledger: Ledger, runs: Iterable[tuple[str, Run]]) -> None:
        """Take over a restored state (of a fold without any trajectory) and set its timers."""
        self.now, self.ledger = now, ledger
        for name, run in runs:
            self.runs[name] = run
            (self._closing if run.reason else self.sealing).arm(name, run, anew=True)

    def renumber(self, revisions: Mapping[str, int]) -> None:
        """These were put out last, of trajectories that may be known here: what is sealed has that number, what is
        open gets the next. Revisions that history has not made count for no amendment.
        """
        for name, revision in revisions.items():
            if (run := self.runs.get(name)) is not None:
                made = run.revision - run.replays
                run.revision = revision if run.reason else revision + 1
                run.replays = run.revision - made
            elif name in self.closed.stones:
                self.closed.renumber(name, revision)

    def adopt(self, other: Lifetimes, older: AbstractSet[str], since_ms: int) -> None:
        """Take over from another fold of the same partition what this one can't have whole: runs that began at
        ``since_ms`` or before (``older``: those of them that were sealed), and what only the other still remembers.
        """
        mine = self.runs.keys() | self.closed.stones.keys()
        began = {name for name, run in other.runs.items() if run.first_ms <= since_ms} | older
        sealed = {name for name, run in other.runs.items() if run.reason} | other.closed.stones.keys()
        names = began | (sealed - mine)
        for name in names & self.runs.keys():
            del self.runs[name]
        self.closed.adopt(other.closed, names)
        for name in sorted(names & other.runs.keys()):
            run = self.runs[name] = other.runs[name]
            (self._closing if run.reason else self.sealing).arm(name, run, anew=True)

    def deadline(self) -> int | None:
        """When the next trajectory is sealed by a timer."""
        due = self.sealing.next()
        return None if due is None else due[0]

    def advance(self, time_ms: int) -> None:
        """Let time pass: fire every timer that is due, by deadline and then id."""
        self.now = max(self.now, time_ms)
        while due := self.sealing.next(self.now):
            self._expire(*due)
        while due := self._closing.next(self.now):
            self._close(due[1], due[2])
        self.ledger.purged += self.closed.purge(self.now)

    def close_open(self) -> None:
        """Fire every sealing timer now, each as of its own deadline: nothing more is waited for."""
        while (due := self.sealing.next()) is not None:
            self._expire(*due)

    def _expire(self, due: int, name: str, run: Run) -> None:
        if run.hung and run.silent:
            del self.runs[name]
            return
        if run.end_ms >= 0 and due == run.end_ms + self.timers.patience(run):
            if run.linked and whole(run):
                self.seal_run(name, run, "complete", due)
            elif run.linked and not run.graced:
                run.graced = True
                self.sealing.arm(name, run, anew=True)
            else:
                self.seal_run(name, run, lacking(run), due)
        elif due == run.age_ms + self.timers.max_age:
            self.seal_run(name, run, "max_age", due)
        else:
            self.seal_run(name, run, "idle_timeout", due)

    def reopen(self, name: str, run: Run) -> None:
        """Begin the next revision of a sealed trajectory, with a fresh budget of time."""
        run.reason, run.sealed_ms, run.graced = "", -1, False
        run.revision += 1
        run.age_ms = run.last_ms = self.now
        if run.end_ms >= 0:
            run.end_ms = self.now
        self.sealing.arm(name, run, anew=True)

    def settle(self, name: str, run: Run) -> None:
        """Seal a run that is whole or too big; else see to its timer."""
        ended = run.end_ms >= 0
        if ended and (run.graced and whole(run) if run.linked else gapless(run)):
            self.seal_run(name, run, "complete", self.now)
        elif len(run.identities) > self.light and self._full(run):
            self.seal_run(name, run, "overflow", self.now)
        elif ended:
            self.sealing.arm(name, run)

    def make_room(self) -> None:
        """Before one run more than may be held: the one that waits for amendments and is due first is closed, or
        else the open one that is due first is sealed as if it had been idle for too long.
        """
        due = self._closing.next() or self.sealing.next()
        if due is None:
            return
        _, name, run = due
        if run.hung and run.silent:
            del self.runs[name]
            return
        if not run.reason:
            self.seal_run(name, run, "idle_timeout", self.now)
        if name in self.runs:
            self._close(name, run)

    def _full(self, run: Run) -> bool:
        if run.weight < 0:
            run.weight = run.size
        limits = self._settings
        return (
            run.weight > limits.max_bytes
            or run.events > limits.max_events
            or len(run.identities) >= self.most_identities
        )

    def seal_run(self, name: str, run: Run, reason: SealReason, at: int) -> None:
        """Put out a revision of a run, sealed at a moment that may lie before now; then keep the run for
        amendments, or only its tombstone.
        """
        run.sealed_ms = at
        body = seal(name, run, reason, (self.effects.record.partition, self._mapping_epoch), self._priced)
        self.effects.sealed(name, body)
        self.ledger.revisions += 1
        self.ledger.sealed += run.revision == 1
        if amendable(run) and run.revision - run.replays < self._settings.max_revisions:
            run.plain = None
            self._closing.arm(name, run, anew=True)
        else:
            self._close(name, run)

    def _close(self, name: str, run: Run) -> None:
        del self.runs[name]
        self.ledger.purged += not self.closed.close(name, run, self.now)
