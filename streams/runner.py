"""The runner: one stage on one partition, from the log into the log, whoever brings the records.

It assigns, restores (snapshot, then the journal fed again with its outputs dropped), feeds, and commits
outputs, positions and journal in one step, in groups. On `Conflict` it drops its memory and assigns
again; on `Unavailable` it waits and tries the same step again; any other exception is a fault of the
program and leaves. Outputs that the store could not write together with the state are published after
the commit (`millstream.streams.publishing`); their readers leave repetitions out (`millstream.delivery`).
The snapshot kept in the store is (the processor's snapshot, the marks of what was taken).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from millstream import failpoints
from millstream.codec import digest
from millstream.delivery import Marks, numbered
from millstream.errors import Conflict, PositionLost, Stuck, Unavailable
from millstream.events import NO_RUN, EventId, Tick
from millstream.failpoints import reach
from millstream.partition import slot
from millstream.ports import Assignment, Consumed, Log, Message, Output, Processor, Record, StateCommit, Store
from millstream.streams.inbox import Inbox, Read, Runs
from millstream.streams.metering import Watch
from millstream.streams.poison import DeadShare
from millstream.streams.publishing import append, batches
from millstream.topics import BY_NAME, TELEMETRY

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0


class Limits(Struct, frozen=True, kw_only=True):
    """When a group is committed, and after how much input a snapshot is taken (bytes, seconds)."""

    commit_bytes: int = 1 << 20
    commit_s: float = 0.05
    output_bytes: int = 4 << 20
    snapshot_bytes: int = 64 << 20
    journal_runs: int = 4096
    publish_bytes: int = 512 << 10


class Kept(Struct, frozen=True, array_like=True):
    """What the store keeps as a snapshot."""

    state: bytes
    marks: dict[str, int] = field(default_factory=dict)


class StageRunner:
    """Runs ``processor`` on ``partition``; ``every_partition``: it reads all partitions of its inputs
    (the one writer of a topic). ``stop`` ends the waiting for something that is unavailable. ``watch``
    is told what was committed and what is waited for.
    """

    def __init__(
        self,
        processor: Processor,
        log: Log,
        store: Store,
        partition: int = 0,
        *,
        every_partition: bool = False,
        limits: Limits | None = None,
        stop: threading.Event | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.processor = processor
        self.log = log
        self.store = store
        self.partition = partition
        self.limits = limits or Limits()
        self.read: Read = log.read
        """Brings the records; another one where they are delivered."""
        self.dead: DeadShare | None = None
        """Stops the stage when too much is unusable."""
        self.stop = stop or threading.Event()
        self.watch = watch
        self.skipped = 0
        self._stateless = bool(getattr(processor, "stateless", False))
        self._expects: Callable[[Sequence[Record]], None] | None = getattr(processor, "expect", None)
        self._fresh = processor.snapshot()
        self._places = self._input_places(every_partition)
        self._held: Assignment | None = None
        self._inbox = Inbox(self.read, (), {}, 0)
        self._positions: dict[str, int] = {}
        self._marks = Marks()
        self._outbox = 0
        self._unnoted = False
        self._journal_bytes = self._journal_runs = 0
        self._ticked: int | None = None

    def _input_places(self, every: bool) -> list[tuple[str, int]]:
        places: list[tuple[str, int]] = []
        for topic in self.processor.inputs:
            count = self.log.partitions(topic)
            if every:
                places += [(topic, partition) for partition in range(count)]
            else:
                single = topic in BY_NAME and BY_NAME[topic].single
                places.append((topic, 0 if single else self.partition))
        return places

    @property
    def positions(self) -> dict[str, int]:
        """The next offset to read, by ``topic:partition``; for `Log.wait`."""
        return {slot(*place): self._positions.get(slot(*place), 0) for place in self._places}

    def start(self) -> None:
        """Assign and restore now rather than at the first step. Raises `PositionLost`."""
        if self._held is None:
            self._patiently(self._assign)

    def run_once(self, max_bytes: int | None = None) -> int:
        """Feed one group and commit it; how many records it took (0: idle)."""
        while not self.stop.is_set():
            self.start()
            try:
                return self._step(max_bytes or self.limits.commit_bytes)
            except Conflict as conflict:
                logger.warning("%s; reading the state again", conflict)
                self._held = None
            except BaseException:
                self._held = None  # the memory is half a step ahead of the store: never commit it
                raise
        return 0

    def _step(self, max_bytes: int) -> int:
        runs, outputs = Runs(), list[Output]()
        size = out_size = count = 0
        deadline = time.monotonic() + self.limits.commit_s
        self._inbox.begin()
        while size < max_bytes and out_size < self.limits.output_bytes and (count == 0 or time.monotonic() < deadline):
            try:
                record = self._inbox.pop()
            except PositionLost:
                if count == 0:
                    raise
                break  # what lies before the hole is committed first
            if record is None:
                break
            made = self._take(record)
            if self.dead:
                self.dead.count(record, made)
            runs.add(record)
            count += 1
            size += len(record.value or b"")
            if made:
                outputs += made
                out_size += sum(len(out.value) for out in made)
        if count:
            self._commit(runs.consumed(), outputs, size)
            if self.dead:
                self.dead.check(self.processor.name)
        elif self._unnoted:
            self._commit((), (), 0)  # idle: what was published is noted now
        return count

    def _take(self, record: Record) -> Sequence[Output]:
        if not self._marks.take(record):
            self.skipped += 1
            return ()
        return self.processor.feed(record)

    def _commit(self, consumed: tuple[Consumed, ...], outputs: Sequence[Output], size: int, last: bool = False) -> None:
        assert self._held is not None
        self._journal_bytes += size
        self._journal_runs += len(consumed)
        full = self._journal_bytes >= self.limits.snapshot_bytes or self._journal_runs >= self.limits.journal_runs
        snapshot = self._snapshot() if full or last or self._stateless else None
        commit = StateCommit(
            assignment=self._held,
            expected=self.positions,
            consumed=consumed,
            outputs=tuple(
                numbered(out, self.processor.name, self.partition, n) for n, out in enumerate(outputs, self._outbox + 1)
            ),
            snapshot=snapshot,
            high_water=self._marks.taken,
            published=self._outbox,
        )
        reach(failpoints.BEFORE_COMMIT)
        waiting = self._patiently(lambda: self.store.commit(commit))
        reach(failpoints.BEFORE_PUBLISH)
        self._unnoted = bool(waiting)
        self._outbox += len(outputs)
        self._positions.update({slot(run.topic, run.partition): run.end for run in consumed})
        if snapshot is not None:
            self._journal_bytes = self._journal_runs = 0
        self._publish(waiting)
        if self.watch:
            self.watch.committed(self.processor.name, consumed, outputs)

    def _publish(self, outputs: Sequence[Output]) -> None:
        """Append what the store could not, in order; only then is the next group begun."""
        for place, messages in batches(self.log, outputs, self.limits.publish_bytes):
            self._patiently(partial(append, self.log, place, messages))
            reach(failpoints.IN_PUBLISH)
        reach(failpoints.AFTER_PUBLISH)

    def _snapshot(self) -> bytes:
        state = b"" if self._stateless else self.processor.snapshot()
        return msgspec.msgpack.encode(Kept(state, self._marks.taken))

    def _assign(self) -> None:
        ids = {topic: self.log.topic_id(topic) for topic in self.processor.inputs}
        held = self.store.assign(self.processor.name, self.partition, ids)
        kept = msgspec.msgpack.decode(held.snapshot, type=Kept) if held.snapshot else Kept(self._fresh)
        self._marks, self._positions, self._outbox = Marks(kept.marks), dict(held.positions), held.outbox
        self._journal_bytes = self._journal_runs = 0
        if not self._stateless:
            self.processor.restore(kept.state)
            for run in held.journal:
                self._feed_again(run)
            self._continue()
        self._marks.taken.update(held.high_water)
        self._inbox = Inbox(self._read, self._places, self._positions, 4 * self.limits.commit_bytes)
        self._publish(held.unpublished)
        self._held, self._ticked, self._unnoted = held, None, bool(held.unpublished)

    def _continue(self) -> None:
        """After an accepted loss the position may lie elsewhere than the state was left: below, in a topic
        that was made again.
        """
        continue_at = getattr(self.processor, "continue_at", None)
        if continue_at:
            continue_at(self._positions.get(slot(*self._places[0]), 0))

    def _feed_again(self, run: Consumed) -> None:
        offset = run.first
        self._journal_runs += 1
        while offset < run.end:
            records = self.log.read(run.topic, run.partition, offset, 4 * self.limits.commit_bytes)
            for record in records:
                if record.offset >= run.end:
                    break
                self._take(record)
                self._journal_bytes += len(record.value or b"")
            if not records:
                raise PositionLost(
                    f"{run.topic}:{run.partition} ends at {offset}, but the state of {self.processor.name!r} was made "
                    f"from records up to {run.end}; restore the log, or go on without them by --accept-loss"
                )
            offset = records[-1].offset + 1

    def _read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        records = self._patiently(lambda: self.read(topic, partition, offset, max_bytes))
        if self._expects:
            self._expects(records)
        return records

    def _patiently(self, act: Callable[[], T]) -> T:
        pause = FIRST_PAUSE_S
        while True:
            try:
                done = act()
            except Stuck:
                raise
            except Unavailable as error:
                logger.warning("%s: %s; trying again in %.2f s", self.processor.name, error, pause)
                self._tell(str(error))
                if self.stop.wait(pause):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                if pause > FIRST_PAUSE_S:
                    self._tell("")
                return done

    def _tell(self, why: str) -> None:
        if self.watch:
            self.watch.waiting(self.processor.name, why)

    def tick_if_due(self) -> bool:
        """Append a `Tick` when nothing waits and a timer's time has come; whether it did."""
        deadline = self.processor.deadline_ms()
        if self._held is None or deadline is None or deadline == self._ticked or deadline > self.log.now_ms():
            return False
        topic, partition = self._tick_place()
        after = self._patiently(lambda: self.log.bounds(topic, partition)[1])
        if len(self._inbox) or after > self._positions.get(slot(topic, partition), 0):
            return False
        identity = digest("tick", self.log.topic_id(topic), str(partition), str(deadline))
        tick = Tick(id=EventId(identity), trajectory_id=NO_RUN)
        message = Message("", msgspec.json.encode(tick), {"kind": "tick", "dialect": "millstream"})
        self._patiently(lambda: self.log.append(topic, [message], partition))
        # Stamped before the deadline, the tick was too early: this process's clock is ahead of the log's.
        self._ticked = deadline if self.log.now_ms() >= deadline else None
        return True

    def _tick_place(self) -> tuple[str, int]:
        wanted = getattr(self.processor, "tick_topic", TELEMETRY.name)
        return next((place for place in self._places if place[0] == wanted), self._places[0])

    def replace(self, state: bytes, outputs: Sequence[Output]) -> None:
        """Put another state in the place of this one (a snapshot of its processor at the same positions) and append
        outputs, in one step. The runner must have been started. Raises `Conflict`: nothing was written.
        """
        self.processor.restore(state)
        self._continue()
        try:
            self._commit((), outputs, 0, last=True)
        except BaseException:
            self._held = None
            raise

    def close(self) -> None:
        """Leave a snapshot, so that the next start need not feed the journal again, and an empty outbox.
        Only after a clean stop: after an exception the memory is not to be kept.
        """
        if self._held is not None and (self._unnoted or (self._journal_bytes and not self._stateless)):
            with contextlib.suppress(Conflict):
                self._commit((), (), 0, last=True)
        self._held = None
