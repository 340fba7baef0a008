"""What the buffer knows of a rollout beside its payload: the same in every fold of ``buffer-events``."""

from __future__ import annotations

from msgspec import Struct

from millstream.events import TaskId, TrajectoryId
from millstream.rollout import Position, RolloutAdmitted


class BufferEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One rollout in the buffer. ``bytes``: the payload uncompressed; ``admitted_ms``: log time."""

    trajectory_id: TrajectoryId
    trajectory_revision: int
    content_hash: str
    position: Position
    group: str
    task_id: TaskId
    lineage: str
    policy_version: int | None
    reward: float
    advantage: float
    priority: float
    bytes: int
    admitted_ms: int
    family: str = ""


def entry_of(admitted: RolloutAdmitted) -> BufferEntry:
    """The entry that an admission makes."""
    facts = admitted.facts
    return BufferEntry(
        trajectory_id=admitted.trajectory_id,
        trajectory_revision=admitted.trajectory_revision,
        content_hash=admitted.content_hash,
        position=admitted.position,
        group=admitted.group,
        task_id=facts.task_id,
        lineage=facts.lineage,
        policy_version=facts.policy_version,
        reward=admitted.reward,
        advantage=admitted.advantage,
        priority=admitted.priority,
        bytes=facts.bytes,
        admitted_ms=admitted.log_ms,
        family=facts.family,
    )


def use_key(lineage: str, parent: int) -> str:
    """What consumption is counted by: a lineage and the version its trainings start from."""
    return f"{lineage}@{parent}"


SUPERSEDED = "superseded"
"""The reason of an eviction whose trajectory is decided again in the same record: its uses stay."""
