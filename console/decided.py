"""What was decided, read straight from the log: what `rollouts`, `trainings` and `policies` print."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from millstream.console.catalog import decisions, ledger, plain
from millstream.ports import Log
from millstream.rollout import (
    GroupClosed,
    RolloutAdmitted,
    RolloutRefused,
    RolloutsAcknowledged,
    RolloutsEvicted,
    RolloutsLeased,
    RolloutsReleased,
)


class RolloutRow(Struct, frozen=True, kw_only=True):
    """A line of ``rollouts list``: the last decision about one trajectory in one namespace."""

    trajectory_id: str
    namespace: str
    decision: str
    reason: str
    detail: str
    group: str
    reward: float | None
    advantage: float | None
    rollout_id: str
    revision: int
    epochs: tuple[str, ...] = ()
    """``grader=epoch`` of what the reward rests on; empty when there is none."""


def rollout_rows(log: Log, as_of_ms: int | None = None) -> list[RolloutRow]:
    """What became of each graded run: admitted (and then leased, consumed, …) or refused, and why."""
    rows: dict[tuple[str, str], RolloutRow] = {}
    places: dict[str, tuple[str, str]] = {}
    for decision in decisions(log, as_of_ms):
        if isinstance(decision, RolloutAdmitted | RolloutRefused):
            key: tuple[str, str] = (decision.namespace, decision.trajectory_id)
            if key not in rows or rows[key].revision <= decision.trajectory_revision:
                rows[key] = _decided(decision)
            if isinstance(decision, RolloutAdmitted):
                places[decision.rollout_id] = key
        elif not isinstance(decision, GroupClosed):
            told, reason = _FATES[type(decision)], getattr(decision, "reason", "")
            for key in (places[r] for r in decision.rollout_ids if r in places):
                rows[key] = msgspec.structs.replace(rows[key], decision=told, reason=reason, detail="")
    return list(rows.values())


def _decided(decision: RolloutAdmitted | RolloutRefused) -> RolloutRow:
    admitted = isinstance(decision, RolloutAdmitted)
    return RolloutRow(
        trajectory_id=decision.trajectory_id,
        namespace=decision.namespace,
        decision="admitted" if admitted else "refused",
        reason="" if isinstance(decision, RolloutAdmitted) else decision.reason,
        detail="" if isinstance(decision, RolloutAdmitted) else decision.detail,
        group=decision.group,
        reward=decision.reward,
        advantage=decision.advantage if isinstance(decision, RolloutAdmitted) else None,
        rollout_id=decision.rollout_id if isinstance(decision, RolloutAdmitted) else "",
        revision=decision.trajectory_revision,
        epochs=decision.grader_epochs if isinstance(decision, RolloutAdmitted) else (),
    )


_FATES: dict[type, str] = {
    RolloutsLeased: "leased",
    RolloutsAcknowledged: "consumed",
    RolloutsReleased: "admitted",
    RolloutsEvicted: "evicted",
}


def training_rows(log: Log, as_of_ms: int | None = None) -> list[dict[str, Any]]:
    """Trainings as the ledger has them."""
    return [
        {
            "id": key,
            "lineage": t.request.lineage,
            "parent": t.request.parent,
            "start_from": t.request.start_from,
            "algorithm": t.request.algorithm,
            "state": t.state,
            "rollouts": len(t.request.rollout_ids),
            "version": t.version,
            "reason": t.failure or t.request.reason,
            "manifest": t.manifest,
            "metrics": t.metrics,
        }
        for key, t in ledger(log, as_of_ms).trainings.items()
    ]


def policy_rows(log: Log, as_of_ms: int | None = None) -> list[dict[str, Any]]:
    """Versions of all lineages as the ledger has them."""
    return [
        {"lineage": lineage.name, **plain(version)}
        for lineage in ledger(log, as_of_ms).lineages.values()
        for version in lineage.versions.values()
    ]
