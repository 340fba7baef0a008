"""The fold of ``buffer-events``: what the buffer holds, without the payloads.

Every reader folds decisions with this ledger and never decides anew: the buffering stage itself, the
trigger and the tests that compare the Redis projection with what it should be. The fold of a decision
that names an unknown rollout or training is no error: it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from millstream.buffer_entry import SUPERSEDED, BufferEntry, entry_of, use_key
from millstream.rollout import (
    BufferDecision,
    RolloutAdmitted,
    RolloutId,
    RolloutsAcknowledged,
    RolloutsEvicted,
    RolloutsLeased,
    RolloutsReleased,
)


class HeldLease(Struct, kw_only=True):
    """A standing lease. ``fence``: offset of its event, −1 in the state of the stage that decided it."""

    token: str
    fence: int
    lineage: str
    parent: int
    rollout_ids: list[RolloutId]


class Use(Struct, array_like=True):
    """How often a trajectory was trained on for one (lineage, parent), and whether its last use stands."""

    count: int = 0
    held: bool = False


class BufferLedger(Struct, kw_only=True):
    """What stands in one namespace. ``uses`` are by trajectory, so that a rollout whose reward was
    revised keeps them; they go when the trajectory leaves the buffer.
    """

    entries: dict[RolloutId, BufferEntry] = field(default_factory=dict)
    groups: dict[str, list[RolloutId]] = field(default_factory=dict)
    leases: dict[str, HeldLease] = field(default_factory=dict)
    uses: dict[str, dict[str, Use]] = field(default_factory=dict)
    bytes: int = 0

    def apply(self, decision: BufferDecision, offset: int = -1) -> None:
        """Fold one decision in; ``offset`` is its record's, and becomes the fence of a lease."""
        if isinstance(decision, RolloutAdmitted):
            self._admit(decision)
        elif isinstance(decision, RolloutsEvicted):
            self._evict(decision.rollout_ids, keep_uses=decision.reason.startswith(SUPERSEDED))
        elif isinstance(decision, RolloutsLeased):
            self._lease(decision, offset)
        elif isinstance(decision, RolloutsAcknowledged):
            self._acknowledge(decision)
        elif isinstance(decision, RolloutsReleased):
            self._release(decision)

    def _admit(self, decision: RolloutAdmitted) -> None:
        if decision.rollout_id in self.entries:
            self._evict((decision.rollout_id,), keep_uses=True)
        entry = entry_of(decision)
        self.entries[decision.rollout_id] = entry
        self.groups.setdefault(entry.group, []).append(decision.rollout_id)
        self.bytes += entry.bytes

    def _evict(self, ids: Iterable[RolloutId], *, keep_uses: bool) -> None:
        for rollout_id in ids:
            entry = self.entries.pop(rollout_id, None)
            if entry is None:
                continue
            self.bytes -= entry.bytes
            members = self.groups[entry.group]
            members.remove(rollout_id)
            if not members:
                del self.groups[entry.group]
            if not keep_uses:
                self.uses.pop(entry.trajectory_id, None)

    def _lease(self, decision: RolloutsLeased, offset: int) -> None:
        self.leases[decision.training_id] = HeldLease(
            token=decision.token,
            fence=offset,
            lineage=decision.lineage,
            parent=decision.parent,
            rollout_ids=list(decision.rollout_ids),
        )

    def _acknowledge(self, decision: RolloutsAcknowledged) -> None:
        self.leases.pop(decision.training_id, None)
        key = use_key(decision.lineage, decision.parent)
        for rollout_id in decision.rollout_ids:
            if (entry := self.entries.get(rollout_id)) is not None:
                use = self.uses.setdefault(entry.trajectory_id, {}).setdefault(key, Use())
                use.count, use.held = use.count + 1, True

    def _release(self, decision: RolloutsReleased) -> None:
        self.leases.pop(decision.training_id, None)
        key = use_key(decision.lineage, decision.parent)
        for rollout_id in decision.rollout_ids:
            entry = self.entries.get(rollout_id)
            use = self.uses.get(entry.trajectory_id, {}).get(key) if entry else None
            if use is not None and use.held:
                use.held = False
                use.count -= not decision.used

    def leased_by(self, lineage: str, *, besides: str = "") -> set[RolloutId]:
        """The rollouts that trainings of a lineage hold, those of one training left out."""
        return {
            rollout_id
            for training, lease in self.leases.items()
            if lease.lineage == lineage and training != besides
            for rollout_id in lease.rollout_ids
        }

    def usable(self, rollout_id: RolloutId, lineage: str, parent: int, max_uses: int) -> bool:
        """Whether consumption lets a training of (lineage, parent) use this rollout."""
        entry = self.entries.get(rollout_id)
        if entry is None:
            return False
        use = self.uses.get(entry.trajectory_id, {}).get(use_key(lineage, parent))
        return use is None or (not use.held and use.count < max_uses)

    def available(self, lineage: str, parent: int, max_uses: int) -> dict[str, list[RolloutId]]:
        """Groups that a training of (lineage, parent) may use whole, with their sorted rollouts."""
        leased = self.leased_by(lineage)
        return {
            group: sorted(ids)
            for group, ids in self.groups.items()
            if all(i not in leased and self.usable(i, lineage, parent, max_uses) for i in ids)
        }

    def dump(self, applied: int) -> dict[str, Any]:
        """The canonical form that `Buffer.dump` gives too. ``applied``: the next offset to apply."""
        return {
            "applied": applied,
            "rollouts": {key: msgspec.to_builtins(entry) for key, entry in sorted(self.entries.items())},
            "groups": {key: len(ids) for key, ids in sorted(self.groups.items())},
            "leases": {key: msgspec.to_builtins(lease) for key, lease in sorted(self.leases.items())},
            "uses": {key: msgspec.to_builtins(uses) for key, uses in sorted(self.uses.items())},
        }
