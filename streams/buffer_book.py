"""The ledger of the buffering stage with what admission asks of it: an index of near-duplicates, the
share of successes, the room that is left and what trainings hold. All of it follows from the ledger
and the signatures, so a snapshot carries only those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from millstream.rollout import BufferDecision, RolloutAdmitted, RolloutId, RolloutsEvicted
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.admission import Refusal, Room, Shares, scope_of
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.near_duplicates import NearDuplicates


class BufferBook:
    """Applies the stage's own decisions and answers what the next one needs."""

    def __init__(self, settings: BufferSettings, reward: RewardSettings) -> None:
        self.settings = settings
        self.reward = reward
        self.load(BufferLedger(), {}, ())

    def load(
        self, ledger: BufferLedger, signatures: dict[RolloutId, bytes], held: Iterable[Iterable[RolloutId]]
    ) -> None:
        """Take a ledger and build everything else from it. ``held``: the rollouts of each training."""
        self.ledger = ledger
        self.signatures = signatures
        self.held: Counter[RolloutId] = Counter()
        self.near = NearDuplicates(self.settings.near_duplicate)
        self.shares = Shares(self.settings, self.reward)
        self.room = Room(self.settings, ledger)
        for ids in held:
            self.hold(ids)
        for rollout_id, entry in ledger.entries.items():
            self.shares.count(entry.reward, 1)
            self._index(rollout_id, self.signatures.get(rollout_id, b""))

    def hold(self, ids: Iterable[RolloutId]) -> None:
        """A training wants these: they may be neither evicted nor decided again."""
        self.held.update(ids)

    def let_go(self, ids: Iterable[RolloutId]) -> None:
        """A training is done with these."""
        self.held.subtract(ids)
        for rollout_id in ids:
            if self.held[rollout_id] <= 0:
                del self.held[rollout_id]

    def is_held(self, ids: Iterable[RolloutId]) -> bool:
        """Whether some training wants one of these."""
        return not self.held.keys().isdisjoint(ids)

    def apply(self, decision: BufferDecision, signature: bytes = b"") -> None:
        """Fold a decision into the ledger and everything that follows from it."""
        if isinstance(decision, RolloutsEvicted):
            for rollout_id in decision.rollout_ids:
                self._drop(rollout_id)
        self.ledger.apply(decision)
        if isinstance(decision, RolloutAdmitted):
            self.shares.count(decision.reward, 1)
            self._index(decision.rollout_id, signature)

    def entered(self, group: str) -> None:
        """All rollouts of a group have been admitted."""
        self.room.push(group)

    def group_refusal(
        self, group: str, scope: str, rewards: Sequence[float], signatures: Sequence[bytes]
    ) -> Refusal | None:
        """Why a whole group may not enter, quotas aside."""
        if self.near.enabled and (twin := self.near.twin_of_all(scope, group, signatures)):
            return Refusal("near_duplicate", f"every member is like one of group {twin}")
        if told := self.shares.refuses(rewards):
            return Refusal("quota", told)
        return None

    def _index(self, rollout_id: RolloutId, signature: bytes) -> None:
        if signature and self.near.enabled:
            entry = self.ledger.entries[rollout_id]
            self.signatures[rollout_id] = signature
            self.near.add(scope_of(entry.lineage, entry.policy_version), entry.group, signature)

    def _drop(self, rollout_id: RolloutId) -> None:
        entry = self.ledger.entries.get(rollout_id)
        if entry is None:
            return
        self.shares.count(entry.reward, -1)
        if signature := self.signatures.pop(rollout_id, b""):
            self.near.discard(scope_of(entry.lineage, entry.policy_version), entry.group, signature)
