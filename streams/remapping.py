"""``replay --from telemetry``: history is read again, by the mapping and the settings of now.

A fresh fold reads each partition up to where the live one stands (the cut). What it seals is held against the last
revision in ``trajectories``: where the content differs, the next revision is put out, with the cause ``replay``; all
else stays as it is. At the end the fresh state takes the place of the live one, so that open runs, too, go on as the
mapping of now reads them. Outputs and state are committed in one step, in groups, and every state in between knows
the revisions that were put out with it: killed at any point, a replay is begun anew and does what is left.

Runs that began before what telemetry still holds can't be read again; they stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast

import msgspec
from msgspec import Struct

from millstream.delivery import Marks
from millstream.errors import Conflict, PositionLost
from millstream.partition import partition_of, slot
from millstream.ports import Gap, Log, Output, Record
from millstream.streams.assembled import Downstream, Version, event_of, letter_of, version_of
from millstream.streams.assembly import Assembler
from millstream.streams.assembly_seal import reissued
from millstream.streams.runner import StageRunner
from millstream.topics import DEAD_LETTERS, TELEMETRY, TRAJECTORIES

BATCH_BYTES: Final = 8 << 20
"""How much is put out in one step."""
SPOOL_BYTES: Final = 64 << 20
"""How much of what changed is held in memory; more lies in a file until it is put out."""

Progress = Callable[[int, int], None]
"""Told (records read, of how many)."""


class Change(Struct, frozen=True, kw_only=True):
    """A trajectory that this mapping tells otherwise; ``before`` None: it was not told at all."""

    trajectory_id: str
    before: Version | None
    after: Version


class Remapped(Struct, frozen=True, kw_only=True):
    """What a replay changed, or would. ``unchanged``: sealed again with the same content. ``kept``: runs that began
    before what telemetry holds. ``untold``: runs that this mapping does not tell any more; they stay as they are.
    """

    mapping_epoch: int
    records: int
    changed: tuple[Change, ...]
    unchanged: int
    kept: int
    untold: int
    dead_letters: int
    feedback: int


class Reading:
    """One partition of ``telemetry``, folded anew up to ``cut``. ``gaps``: what a person gave up there; the fold of
    then did not read it, so this one does not. Close it after use.
    """

    def __init__(
        self, log: Log, fresh: Assembler, partition: int, cut: int, *, known: Downstream, gaps: tuple[Gap, ...] = ()
    ) -> None:
        self.fresh = fresh
        self.partition = partition
        self.cut = cut
        self.records = self.unchanged = self.kept = 0
        self.others: list[Output] = []
        """Feedback and dead letters that are not downstream yet."""
        self.changes: dict[str, Change] = {}
        self._log = log
        self._known = known
        self._topic_id = log.topic_id(TELEMETRY.name)
        mine = [gap for gap in gaps if (gap.topic, gap.partition) == (TELEMETRY.name, partition)]
        self._given_up = sorted((gap.first, gap.end) for gap in mine if gap.topic_id == self._topic_id)
        self.first = log.bounds(TELEMETRY.name, partition)[0]
        self._whole = not self.first and all(gap.topic_id == self._topic_id for gap in mine)
        self.since_ms = -1
        """Runs that began no later can't be read again; −1: all can."""
        self._sealed: dict[str, Version] = {}
        self._spooled: dict[str, tuple[int, int]] = {}
        self._spool = cast("BinaryIO", SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115 — until `close`

    def close(self) -> None:
        """Drop what was spooled."""
        self._spool.close()

    def fold(self, progress: Callable[[int], None]) -> None:
        """Read it. Raises `PositionLost` where records are missing that the live fold has read."""
        for record in self._read():
            if self.records == 0 and not self._whole:
                self.since_ms = record.log_ms
            self.records += 1
            for output in self.fresh.feed(record):
                self._take(output)
            progress(1)
        self.fresh.continue_at(self.cut)
        self._compare()

    def _read(self) -> Iterator[Record]:
        at, marks = self.first, Marks()
        while at < self.cut:
            if (over := next((end for first, end in self._given_up if first <= at < end), None)) is not None:
                at = over
                continue
            stop = min([first for first, _ in self._given_up if first > at] + [self.cut])
            records = self._log.read(TELEMETRY.name, self.partition, at)
            if not records:
                raise PositionLost(f"{slot(TELEMETRY.name, self.partition)} ends at {at}, below {self.cut}")
            yield from marks.new(record for record in records if record.offset < stop)
            at = min(records[-1].offset + 1, stop)

    def _take(self, output: Output) -> None:
        if output.topic == DEAD_LETTERS.name:
            letter = letter_of(output.value)
            if letter is not None and letter.origin not in self._known.letters:
                self.others.append(output)
        elif output.headers.get("kind") == "feedback":
            if (output.key, event_of(output)) not in self._known.feedback:
                self.others.append(output)
        else:
            self._hold(output)

    def _hold(self, output: Output) -> None:
        """Remember a seal; of several of one run the last counts."""
        sealed = version_of(output)
        known = self._known.last.get(output.key)
        self._sealed[output.key] = sealed
        self._spooled.pop(output.key, None)
        if known is None or known.content_hash != sealed.content_hash:
            self._spooled[output.key] = (self._spool.tell(), len(output.value))
            self._spool.write(output.value)

    def _compare(self) -> None:
        for name, sealed in self._sealed.items():
            before = self._known.last.get(name)
            if (sealed if before is None else before).first_ms <= self.since_ms:
                self.kept += 1
            elif name not in self._spooled:
                self.unchanged += 1
            else:
                after = msgspec.structs.replace(sealed, revision=before.revision + 1 if before else 1)
                self.changes[name] = Change(trajectory_id=name, before=before, after=after)

    @property
    def untold(self) -> int:
        """Runs of this partition's that were sealed once and are not sealed by this mapping."""
        return sum(
            name not in self._sealed and version.first_ms > self.since_ms
            for name, version in self._known.last.items()
            if partition_of(name, self._log.partitions(TELEMETRY.name)) == self.partition
        )

    @property
    def older(self) -> frozenset[str]:
        """Runs that began before what can be read."""
        return frozenset(name for name, version in self._known.last.items() if version.first_ms <= self.since_ms)

    def bodies(self) -> Iterator[tuple[str, Output]]:
        """(id, what to put out) of each trajectory that changed, in the order of their sealing."""
        for name, change in self.changes.items():
            at, size = self._spooled[name]
            self._spool.seek(at)
            body = reissued(self._spool.read(size), name, self._sealed[name].revision, change.after.revision)
            yield name, Output(TRAJECTORIES.name, name, body, {"kind": "trajectory"})

    def revisions(self) -> dict[str, int]:
        """The last revision of every run, once all is put out."""
        return {name: version.revision for name, version in self._known.last.items()} | {
            name: change.after.revision for name, change in self.changes.items()
        }


def put_out(reading: Reading, live: StageRunner) -> None:
    """Commit what a reading found: what changed in groups, each with the live state that knows it; then the fresh
    state with what is left. ``live`` must have been started, and stand at the cut. Raises `Conflict` when another
    worker took the partition meanwhile; what was put out by then stands.
    """
    assembler = cast("Assembler", live.processor)
    if live.positions[slot(TELEMETRY.name, reading.partition)] != reading.cut:
        raise Conflict(f"assemble:{reading.partition} went on while its history was read")
    batch: list[Output] = []
    numbers: dict[str, int] = {}
    size = 0
    for name, output in reading.bodies():
        batch.append(output)
        numbers[name] = reading.changes[name].after.revision
        size += len(output.value)
        if size >= BATCH_BYTES:
            assembler.renumber(numbers)
            live.replace(assembler.snapshot(), batch)
            batch, numbers, size = [], {}, 0
    reading.fresh.renumber(reading.revisions())
    reading.fresh.adopt(assembler, reading.older, reading.since_ms)
    live.replace(reading.fresh.snapshot(), [*batch, *reading.others])


def total(epoch: int, readings: Mapping[int, Reading]) -> Remapped:
    """What several partitions came to."""
    found = list(readings.values())
    others = [output for one in found for output in one.others]
    letters = sum(output.topic == DEAD_LETTERS.name for output in others)
    return Remapped(
        mapping_epoch=epoch,
        records=sum(one.records for one in found),
        changed=tuple(change for one in found for change in one.changes.values()),
        unchanged=sum(one.unchanged for one in found),
        kept=sum(one.kept for one in found),
        untold=sum(one.untold for one in found),
        dead_letters=letters,
        feedback=len(others) - letters,
    )
