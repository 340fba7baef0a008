"""Decisions of the buffer as operations of the `APPLY` script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from millstream.buffer_entry import SUPERSEDED, entry_of, use_key
from millstream.rollout import (
    BufferDecision,
    RolloutAdmitted,
    RolloutId,
    RolloutsAcknowledged,
    RolloutsEvicted,
    RolloutsLeased,
    RolloutsReleased,
)


class StoredLease(Struct, frozen=True):
    """A lease as it lies in the hash of leases; ``fence`` is the offset of its event."""

    token: str
    fence: int
    lineage: str
    parent: int
    rollout_ids: tuple[RolloutId, ...]


def operations(
    offset: int, decisions: Sequence[BufferDecision], payloads: Mapping[RolloutId, bytes]
) -> tuple[list[list[Any]], list[bytes]]:
    """The operations of one record, and the payloads they refer to by place (from 1; 0: none)."""
    found: list[list[Any]] = []
    carried: list[bytes] = []
    for decision in decisions:
        if isinstance(decision, RolloutAdmitted):
            found.append(_admit(decision, payloads, carried))
        elif (operation := _operation(offset, decision)) is not None:
            found.append(operation)
    return found, carried


def _admit(decision: RolloutAdmitted, payloads: Mapping[RolloutId, bytes], carried: list[bytes]) -> list[Any]:
    entry = entry_of(decision)
    payload = payloads.get(decision.rollout_id)
    if payload is not None:
        carried.append(payload)
    place = 0 if payload is None else len(carried)
    return ["admit", decision.rollout_id, msgspec.json.encode(entry).decode(), place, entry.group, entry.bytes]


def _operation(offset: int, decision: BufferDecision) -> list[Any] | None:
    match decision:
        case RolloutsEvicted(rollout_ids=ids, reason=reason):
            return ["evict", reason.startswith(SUPERSEDED), *ids]
        case RolloutsLeased():
            lease = StoredLease(decision.token, offset, decision.lineage, decision.parent, tuple(decision.rollout_ids))
            return ["lease", decision.training_id, msgspec.json.encode(lease).decode()]
        case RolloutsAcknowledged():
            key = use_key(decision.lineage, decision.parent)
            return ["acknowledge", decision.training_id, key, *decision.rollout_ids]
        case RolloutsReleased():
            key = use_key(decision.lineage, decision.parent)
            return ["release", decision.training_id, key, decision.used, *decision.rollout_ids]
    return None
