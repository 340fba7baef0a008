"""Rollouts: a trajectory with its reward and the policy version that made it, and the decisions
about them that fill ``buffer-events``.

The buffer stage decides from `RolloutFacts` alone (small, carried by `GradingFinished`); the payload
stays in ``trajectories`` and is fetched by position when a rollout is admitted.
"""

from __future__ import annotations

from typing import Literal, NewType, TypeAlias

from msgspec import Struct, field

from millstream.events import Interface, Split, TaskId, TrajectoryId
from millstream.grade import GradeGiven
from millstream.trajectory import SealReason, Status, Trajectory

RolloutId = NewType("RolloutId", str)
"""Hash of (trajectory id, revision, content hash, reward revision)."""


class Position(Struct, frozen=True, order=True):
    """Where something lies in the log. ``index`` is the event within its record; −1 for a record
    that can't be read at all.
    """

    topic_id: str
    partition: int
    offset: int
    index: int = 0


class Habits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run was done, in figures: what the alarms watch. ``broken``: calls whose arguments could not be
    read; ``repeated``: calls made before with the same arguments; ``chars``: length of what the policy wrote;
    ``repetition``: share of its words that repeat a row of four seen before; ``asked``: it ended in a question
    to the user, and had changed nothing. ``began_ms``: log time of its first event.
    """

    calls: int = 0
    broken: int = 0
    failed: int = 0
    repeated: int = 0
    chars: int = 0
    repetition: float = 0.0
    asked: bool = False
    began_ms: int = 0


class RolloutFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What admission, grouping and triggers need to know of a trajectory, without its text.

    ``signature``: MinHash of the policy's own text (char-5 shingles), for near-duplicates across
    groups. ``policy_tokens``: sampled tokens (0 when unknown); ``bytes``: size of the payload.
    ``token_hash``: hash of the sampled token ids (or text), equal for identical answers.
    """

    task_id: TaskId = TaskId("")
    split: Split | None = None
    split_key: str = ""
    family: str = ""
    group: str = ""
    attempt: int = 0
    group_size: int = 1
    lineage: str = ""
    policy_version: int | None = None
    interface: Interface = field(default_factory=Interface)
    status: Status = "complete"
    reason: SealReason = "complete"
    hit_limit: bool = False
    trainable: bool = True
    bytes: int = 0
    policy_tokens: int = 0
    steps: int = 0
    token_hash: str = ""
    signature: tuple[int, ...] = ()
    habits: Habits = field(default_factory=Habits)


class GradingFinished(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=True):
    """Every named grader has answered for this revision; only after it is a reward computed."""

    trajectory_id: TrajectoryId
    revision: int
    content_hash: str
    position: Position
    graders: tuple[str, ...] = ()
    grade_ids: tuple[str, ...] = ()
    facts: RolloutFacts = field(default_factory=RolloutFacts)
    known_ms: int = 0


GradeEvent: TypeAlias = GradeGiven | GradingFinished


class Reward(Struct, frozen=True, kw_only=True):
    """How the grades of one trajectory combine. ``revision`` rises with late feedback or a new grade.
    ``value`` is None while a named grade is not Scored; ``why`` then says which.
    """

    trajectory_id: TrajectoryId
    trajectory_revision: int
    revision: int
    formula: str
    value: float | None
    why: str = ""


class Rollout(Struct, frozen=True, kw_only=True):
    """What the trainer reads from the buffer: a trajectory with its reward."""

    id: RolloutId
    trajectory: Trajectory
    reward: float
    facts: RolloutFacts
    advantage: float = 0.0


RefusedReason: TypeAlias = Literal[
    "no_reward",
    "censored",
    "wrong_split",
    "interface_mismatch",
    "near_duplicate",
    "quota",
    "byte_budget",
    "untrainable",
    "stale_revision",
    "thin_group",
    "wrong_lineage",
    "recalled",
]


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One line of ``buffer-events``: a decision, with its inputs and log time, never re-decided."""

    id: str
    namespace: str
    log_ms: int = 0


class RolloutAdmitted(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A rollout entered the buffer. ``priority`` = log(|advantage| + ε) + t_admit/τ, a constant."""

    rollout_id: RolloutId
    trajectory_id: TrajectoryId
    trajectory_revision: int
    content_hash: str
    position: Position
    group: str
    reward: float
    advantage: float
    priority: float
    facts: RolloutFacts
    grade_ids: tuple[str, ...] = ()
    grader_epochs: tuple[str, ...] = ()
    formula: str = ""


class RolloutRefused(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A rollout was not admitted: the reason, and what it was decided from."""

    trajectory_id: TrajectoryId
    trajectory_revision: int
    group: str
    reason: RefusedReason
    detail: str = ""
    reward: float | None = None
    position: Position | None = None


class GroupClosed(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A group is whole (or its timer fired): how many members, rewards and which rollouts."""

    group: str
    task_id: TaskId
    lineage: str
    policy_version: int | None
    size: int
    rewarded: int
    mean: float
    std: float
    rollout_ids: tuple[RolloutId, ...] = ()
    by_timer: bool = False


class RolloutsEvicted(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Rollouts left the buffer to make room, a whole group at a time."""

    rollout_ids: tuple[RolloutId, ...]
    reason: str


class RolloutsLeased(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A training holds these rollouts. The fence is the offset of this event in ``buffer-events``."""

    training_id: str
    token: str
    lineage: str
    parent: int
    rollout_ids: tuple[RolloutId, ...]


class RolloutsAcknowledged(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A training consumed these rollouts; they count against (lineage, parent version)."""

    training_id: str
    token: str
    lineage: str
    parent: int
    rollout_ids: tuple[RolloutId, ...]


class RolloutsReleased(Decision, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """These rollouts may be used again: their training failed, or its candidate was not promoted.
    ``used`` tells whether the use counts (at most ``max_uses`` per parent).
    """

    training_id: str
    lineage: str
    parent: int
    rollout_ids: tuple[RolloutId, ...]
    used: bool
    reason: str


BufferDecision: TypeAlias = (
    RolloutAdmitted
    | RolloutRefused
    | GroupClosed
    | RolloutsEvicted
    | RolloutsLeased
    | RolloutsAcknowledged
    | RolloutsReleased
)


class PreferencePair(Struct, frozen=True, kw_only=True):
    """Two rollouts of one task, one better than the other."""

    task_id: TaskId
    chosen: RolloutId
    rejected: RolloutId
    margin: float
