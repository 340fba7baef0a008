"""Who holds rollouts: what ``policy-events`` say of trainings, turned into decisions of the buffer.

A claim leases, a finished training acknowledges (the use counts for its lineage and parent), a failed or
taken-over one releases without counting, and a gate that refuses or stays inconclusive releases what its
candidate was trained on, so that the next candidate of the same parent may use it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from millstream.codec import digest
from millstream.policy import (
    AnyPolicyEvent,
    GateDecided,
    PolicyLedger,
    TrainingClaimed,
    TrainingFailed,
    TrainingFinished,
    TrainingRequested,
)
from millstream.rollout import (
    BufferDecision,
    RolloutId,
    RolloutsAcknowledged,
    RolloutsLeased,
    RolloutsReleased,
)
from millstream.streams.buffer_book import BufferBook


class Wanted(Struct, kw_only=True):
    """What an open training of this namespace asked for."""

    lineage: str
    parent: int
    rollout_ids: tuple[RolloutId, ...]


class Trained(Struct, kw_only=True):
    """What a version was trained on, until its gate decides. By trajectory: a reward may be revised."""

    training_id: str
    lineage: str
    parent: int
    trajectory_ids: list[str] = field(default_factory=list)


class Trainings(Struct, kw_only=True):
    """The part of the stage's state that is about trainings. ``policies`` keeps no rollout ids."""

    policies: PolicyLedger
    wanted: dict[str, Wanted] = field(default_factory=dict)
    trained: dict[str, Trained] = field(default_factory=dict)


class Leasing:
    """Turns policy events into leases, acknowledgements and releases of one namespace."""

    def __init__(self, namespace: str, book: BufferBook, trainings: Trainings) -> None:
        self.namespace = namespace
        self.book = book
        self.trainings = trainings

    def feed(self, event: AnyPolicyEvent, now_ms: int) -> list[BufferDecision]:
        """The decisions that follow from an event; the book is up to date after it."""
        if not self.trainings.policies.apply(event):
            return []
        decisions: list[BufferDecision] = []
        if isinstance(event, TrainingRequested):
            self._request(event)
        elif isinstance(event, TrainingClaimed):
            decisions = self._claim(event, now_ms)
        elif isinstance(event, TrainingFinished):
            decisions = self._finish(event, now_ms)
        elif isinstance(event, TrainingFailed):
            decisions = self._fail(event, now_ms)
        elif isinstance(event, GateDecided):
            decisions = self._judge(event, now_ms)
        for decision in decisions:
            self.book.apply(decision)
        return decisions

    def _request(self, event: TrainingRequested) -> None:
        training = self.trainings.policies.trainings[event.id]
        training.request = msgspec.structs.replace(event, rollout_ids=())
        if event.namespace == self.namespace:
            ids = tuple(dict.fromkeys(event.rollout_ids))
            self.trainings.wanted[event.id] = Wanted(lineage=event.lineage, parent=event.parent, rollout_ids=ids)
            self.book.hold(ids)

    def _claim(self, event: TrainingClaimed, now_ms: int) -> list[BufferDecision]:
        wanted = self.trainings.wanted.get(event.training_id)
        if wanted is None:
            return []
        told: list[BufferDecision] = []
        if event.training_id in self.book.ledger.leases:
            told.append(
                self._released(event.training_id, wanted, f"claim taken over by {event.token}", event.id, now_ms)
            )
        ledger, most = self.book.ledger, self.book.settings.max_uses
        taken = ledger.leased_by(wanted.lineage, besides=event.training_id)
        free = tuple(
            i for i in wanted.rollout_ids if i not in taken and ledger.usable(i, wanted.lineage, wanted.parent, most)
        )
        told.append(
            RolloutsLeased(
                id=digest("leased", self.namespace, event.training_id, event.token),
                namespace=self.namespace,
                log_ms=now_ms,
                training_id=event.training_id,
                token=event.token,
                lineage=wanted.lineage,
                parent=wanted.parent,
                rollout_ids=free,
            )
        )
        return told

    def _finish(self, event: TrainingFinished, now_ms: int) -> list[BufferDecision]:
        lease = self.book.ledger.leases.get(event.training_id)
        wanted = self._end(event.training_id)
        if wanted is None or lease is None:
            return []
        entries = self.book.ledger.entries
        self.trainings.trained[f"{wanted.lineage}@{event.version}"] = Trained(
            training_id=event.training_id,
            lineage=wanted.lineage,
            parent=wanted.parent,
            trajectory_ids=[entries[i].trajectory_id for i in lease.rollout_ids if i in entries],
        )
        return [
            RolloutsAcknowledged(
                id=digest("acknowledged", self.namespace, event.training_id, event.token),
                namespace=self.namespace,
                log_ms=now_ms,
                training_id=event.training_id,
                token=event.token,
                lineage=wanted.lineage,
                parent=wanted.parent,
                rollout_ids=tuple(lease.rollout_ids),
            )
        ]

    def _fail(self, event: TrainingFailed, now_ms: int) -> list[BufferDecision]:
        wanted = self._end(event.training_id)
        if wanted is None or event.training_id not in self.book.ledger.leases:
            return []
        reason = f"training failed: {event.reason}"
        return [self._released(event.training_id, wanted, reason, event.id, now_ms)]

    def _end(self, training_id: str) -> Wanted | None:
        wanted = self.trainings.wanted.pop(training_id, None)
        if wanted is not None:
            self.book.let_go(wanted.rollout_ids)
        return wanted

    def _judge(self, event: GateDecided, now_ms: int) -> list[BufferDecision]:
        trained = self.trainings.trained.pop(f"{event.lineage}@{event.version}", None)
        if trained is None or event.verdict == "promote":
            return []
        mine = set(trained.trajectory_ids)
        ids = sorted(i for i, entry in self.book.ledger.entries.items() if entry.trajectory_id in mine)
        return [
            RolloutsReleased(
                id=digest("released", self.namespace, trained.training_id, event.id),
                namespace=self.namespace,
                log_ms=now_ms,
                training_id=trained.training_id,
                lineage=trained.lineage,
                parent=trained.parent,
                rollout_ids=tuple(ids),
                used=True,
                reason=f"gate of version {event.version}: {event.verdict}",
            )
        ]

    def _released(self, training_id: str, wanted: Wanted, reason: str, cause: str, now_ms: int) -> RolloutsReleased:
        return RolloutsReleased(
            id=digest("released", self.namespace, training_id, cause),
            namespace=self.namespace,
            log_ms=now_ms,
            training_id=training_id,
            lineage=wanted.lineage,
            parent=wanted.parent,
            rollout_ids=tuple(self.book.ledger.leases[training_id].rollout_ids),
            used=False,
            reason=reason,
        )
