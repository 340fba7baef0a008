"""Ports: what the stages need from the world, each kept by adapters under one contract suite.

A stage is pure (`Processor`); the log, the store, the buffer and the registry are arguments. Adapters
import only the kernel, and only `millstream.bootstrap` picks among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from millstream.formats import OLDEST, Format, Owner
from millstream.rollout import BufferDecision, Rollout, RolloutId


class Message(Struct, frozen=True):
    """What a producer hands to the log. ``value`` None is a tombstone (skipped and counted)."""

    key: str
    value: bytes | None
    headers: dict[str, str] = field(default_factory=dict)


class Record(Struct, frozen=True):
    """What a reader gets back. ``log_ms`` is the log's own time, monotone in a partition
    (a broker's clock may go back; the folds never do).
    """

    topic: str
    partition: int
    offset: int
    log_ms: int
    key: str
    value: bytes | None
    headers: dict[str, str] = field(default_factory=dict)


class LogWriter(Protocol):
    """What a producer needs of a log."""

    def append(self, topic: str, messages: Sequence[Message], partition: int = 0) -> int:
        """Append in order; the offset of the first, where one is known. Raises `Unavailable`."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; never changes."""
        ...


class Log(Protocol):
    """Topics of partitions of records. Appends are durable when the call returns."""

    def append(self, topic: str, messages: Sequence[Message], partition: int = 0) -> int:
        """Append in order, all or nothing; the offset of the first. Raises `Unavailable`."""
        ...

    def read(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> Sequence[Record]:
        """Records from ``offset`` on, in order, at least one if there is one. Raises `PositionLost`
        when the offset lies outside the topic.
        """
        ...

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(first offset kept, next offset to be written)."""
        ...

    def topic_id(self, topic: str) -> str:
        """Changes when a topic is deleted and made again."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; never changes."""
        ...

    def now_ms(self) -> int:
        """The log's clock (what a record appended now would be stamped with)."""
        ...

    def wait(self, positions: Mapping[str, int], timeout_s: float) -> bool:
        """Wait until some ``topic:partition`` (see `millstream.partition.slot`) holds a record at or
        past its position; False when none does after ``timeout_s``.
        """
        ...


class TopicDifference(Struct, frozen=True, kw_only=True):
    """Where a topic is not as the settings say; ``wrong``: no worker may run on it."""

    key: str
    found: str
    wanted: str
    wrong: bool = False


class TopicState(Struct, frozen=True, kw_only=True):
    """A topic of the closed list in a cluster. ``id`` empty: it is not there. ``done``: what was just changed."""

    topic: str
    name: str
    id: str = ""
    partitions: int = 0
    differences: tuple[TopicDifference, ...] = ()
    done: tuple[str, ...] = ()


class Output(Struct, frozen=True):
    """What a processor wants appended; the partition follows from the key."""

    topic: str
    key: str
    value: bytes
    headers: dict[str, str] = field(default_factory=dict)


@runtime_checkable
class Processor(Protocol):
    """A pure stage. No clock, broker or store inside: the same records give the same outputs."""

    @property
    def name(self) -> str:
        """The stage's name: assemble, grade, buffer, trigger."""
        ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics it reads."""
        ...

    def feed(self, record: Record) -> Sequence[Output]:
        """Fold one record in. Never raises for bad data: that becomes an output to dead-letters."""
        ...

    def deadline_ms(self) -> int | None:
        """The log time at which a timer is due, or None."""
        ...

    def snapshot(self) -> bytes:
        """The whole state, canonical: equal states give equal bytes."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by a snapshot's."""
        ...


class Consumed(Struct, frozen=True):
    """A run of input offsets [first, end) fed in one go; the journal of a state is a list of these."""

    topic: str
    partition: int
    first: int
    end: int


class Assignment(Struct, frozen=True, kw_only=True):
    """What the store knows of a stage when a worker takes it. ``fence`` is minted here and outranks
    every earlier one; state = ``snapshot`` + the records of ``journal`` fed again in order.
    ``positions`` are by ``topic:partition``, ``topic_ids`` by topic; ``outbox`` is the last number used.
    ``unpublished``: outputs that were committed and may not have reached the log, in order. ``format``: what
    the state and the outputs are to be written in.
    """

    stage: str
    partition: int
    fence: int
    positions: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    snapshot: bytes | None = None
    journal: tuple[Consumed, ...] = ()
    high_water: dict[str, int] = field(default_factory=dict)
    outbox: int = 0
    unpublished: tuple[Output, ...] = ()
    format: Format = OLDEST


class StateCommit(Struct, frozen=True, kw_only=True):
    """One step of a stage: inputs consumed, outputs made and, sometimes, a snapshot (which replaces
    the journal). ``high_water``: the last outbox number taken from each (stage, partition) source.
    ``published``: the last outbox number that the log is known to have; the outbox drops up to it.
    """

    assignment: Assignment
    expected: dict[str, int]
    consumed: tuple[Consumed, ...]
    outputs: tuple[Output, ...]
    snapshot: bytes | None = None
    high_water: dict[str, int] = field(default_factory=dict)
    published: int = 0


class StagePosition(Struct, frozen=True, kw_only=True, order=True):
    """How far a stage has read one partition of one topic: ``offset`` is the next to read."""

    stage: str
    stage_partition: int
    topic: str
    partition: int
    topic_id: str
    offset: int


class Gap(Struct, frozen=True, kw_only=True):
    """Records [first, end) that a stage will never read: a loss that a person accepted."""

    stage: str
    stage_partition: int
    topic: str
    partition: int
    topic_id: str
    first: int
    end: int
    reason: str
    log_ms: int


class Store(Protocol):
    """Positions, state, outbox of a stage, committed in one step. On `Conflict` the worker drops its
    memory and assigns again.
    """

    def assign(self, stage: str, partition: int, topic_ids: Mapping[str, str]) -> Assignment:
        """Take a stage's partition: a new fence, and what is needed to restore. Raises
        `PositionLost` when a topic id differs from the one the position was taken in, and `Stuck` (nothing
        is taken) when this build does not read the format.
        """
        ...

    def commit(self, commit: StateCommit) -> tuple[Output, ...]:
        """All of it or nothing. The outputs that the caller has to append to the log now: none where
        log and store are one file. Raises `Conflict` on an old fence, another expected position or another
        format.
        """
        ...

    def positions(self) -> tuple[StagePosition, ...]:
        """How far every stage is, sorted; empty before the first commit."""
        ...

    def waiting(self) -> dict[str, int]:
        """Outputs that were committed and that the log is not known to have, by stage; none are left out."""
        ...

    def gaps(self) -> tuple[Gap, ...]:
        """Every accepted loss, oldest first."""
        ...

    def accept_loss(self, stage: str, stage_partition: int, topic: str, partition: int) -> tuple[Gap, ...]:
        """After `PositionLost`: move the position past what can't be read and record what lies between;
        empty when nothing is lost. The worker must assign again.
        """
        ...

    def format(self) -> Format:
        """What the stages write in; where nothing was written yet, the newest. Raises `Stuck` when this build
        does not read it.
        """
        ...

    def raise_format(self, to: Format) -> None:
        """Have all stages write in it from their next commit on; a lower one than stands changes nothing."""
        ...

    def owners(self) -> tuple[Owner, ...]:
        """Who took each partition of each stage last, sorted."""
        ...


class Lease(Struct, frozen=True):
    """A training's hold on rollouts, with its fence."""

    training_id: str
    token: str
    fence: int
    rollout_ids: tuple[RolloutId, ...]


class BufferStats(Struct, frozen=True, kw_only=True):
    """What the buffer holds now. ``applied`` is the next offset of ``buffer-events`` to apply."""

    rollouts: int = 0
    groups: int = 0
    bytes: int = 0
    leased: int = 0
    consumed: int = 0
    applied: int = 0
    unreadable: int = 0


class Buffer(Protocol):
    """The replay buffer: a projection of ``buffer-events`` with the payloads beside it."""

    @property
    def namespace(self) -> str:
        """Whose decisions it holds; the caller of `apply` leaves those of others out."""
        ...

    def apply(
        self,
        offset: int,
        decisions: Sequence[BufferDecision],
        payloads: Mapping[RolloutId, bytes],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Apply the decisions of one record of ``buffer-events``; applying an offset again, or a
        repetition (by the record's ``headers``), does nothing. Raises `Unavailable` (full, dead):
        nothing of the record was applied.
        """
        ...

    def applied(self) -> int:
        """The next offset of ``buffer-events`` to apply."""
        ...

    def lease(self, training_id: str) -> Lease | None:
        """The standing lease of a training, or None."""
        ...

    def read(self, ids: Sequence[RolloutId]) -> list[Rollout]:
        """Rollouts in the order asked. Raises `Unavailable` naming those that are not there."""
        ...

    def stats(self) -> BufferStats:
        """Counts, for people and metrics."""
        ...

    def dump(self) -> dict[str, Any]:
        """The projection without payloads, canonical: for comparing a rebuild with what it was."""
        ...

    def clear(self) -> None:
        """Drop the projection of this namespace (it can be rebuilt from the log)."""
        ...


class Tracker(Protocol):
    """Where trainings are tracked and versions registered (MLflow)."""

    def start(self, lineage: str, training_id: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Open a tracking run; its id."""
        ...

    def log_metrics(self, run_id: str, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step; non-finite ones are dropped and counted by the caller."""
        ...

    def log_dataset(self, run_id: str, name: str, digest: str, rows: int, source: str) -> None:
        """Say which data a run used."""
        ...

    def log_files(self, run_id: str, folder: Path, name: str) -> str:
        """Store a folder as an artifact; its URI."""
        ...

    def finish(self, run_id: str, status: str) -> None:
        """Close the run: FINISHED, FAILED or KILLED."""
        ...

    def register(self, lineage: str, run_id: str, folder: Path, tags: Mapping[str, str]) -> int:
        """Register a model directory; the version, distinct even when two register at once."""
        ...

    def registered(self, lineage: str, training_id: str) -> int | None:
        """The version that a training registered (the lowest, if it did so twice), or None: found by
        the tag ``training_id``.
        """
        ...

    def tag(self, lineage: str, version: int, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        ...

    def files(self, lineage: str, version: int) -> Path:
        """A local folder with the version's files."""
        ...

    def place(self, lineage: str, version: int) -> str:
        """Where that folder lies, as the log keeps it: relative to the data directory where it lies in there."""
        ...

    def point(self, lineage: str, alias: str, version: int | None) -> None:
        """Make an alias follow the ledger (None removes it)."""
        ...

    def pointed(self, lineage: str, alias: str) -> int | None:
        """Where an alias points, or None."""
        ...
