"""Which rollouts may enter the buffer: the rules for one rollout and for a whole group.

A member that is refused fills its place in the group and gets no advantage; the rest is admitted when at
least two rewards remain (one, in a group of size 1). Near-duplicates are looked for across groups only,
among rollouts of the same lineage and policy version: a newer policy's runs are new evidence even where
they repeat an older one's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush

from msgspec import Struct

from millstream.events import Interface
from millstream.graders.reward import Formula
from millstream.rollout import RefusedReason, RolloutId
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.graded_runs import GradedRun


class Refusal(Struct, frozen=True):
    """Why not."""

    reason: RefusedReason
    detail: str = ""


def refusal(run: GradedRun, interface: Interface, lineages: frozenset[str]) -> Refusal | None:
    """Why this rollout may not enter whatever its group is, or None. Unknown parts of an interface,
    a lineage that is not given and a split that was not drawn pass.
    """
    facts = run.facts
    if facts.split in ("held_out", "report"):
        return Refusal("wrong_split", f"split {facts.split}")
    if lineages and facts.lineage and facts.lineage not in lineages:
        return Refusal("wrong_lineage", f"lineage {facts.lineage!r}")
    if part := interface.mismatch(facts.interface):
        theirs, ours = getattr(facts.interface, part), getattr(interface, part)
        return Refusal("interface_mismatch", f"{part} is {theirs}, the policy's is {ours}")
    return _unusable(run)


def _unusable(run: GradedRun) -> Refusal | None:
    facts = run.facts
    if facts.status != "complete" and not facts.hit_limit:
        return Refusal("censored", f"{facts.status}: {facts.reason}")
    if not facts.trainable:
        return Refusal("untrainable", "no token in it was sampled by the policy")
    if run.reward is None:
        return Refusal("recalled" if run.recalled else "no_reward", run.why)
    return None


def scope_of(lineage: str, policy_version: int | None) -> str:
    """Within which near-duplicates count."""
    return f"{lineage}@{policy_version}"


class Shares:
    """How many of the buffered rollouts succeeded, as `[reward] success` has it."""

    def __init__(self, settings: BufferSettings, reward: RewardSettings) -> None:
        self.most = settings.max_share_success
        self.success_at = Formula.of(reward).success_at
        self.successes = 0
        self.total = 0

    def count(self, reward: float, by: int) -> None:
        """A rollout came (+1) or left (−1)."""
        self.total += by
        self.successes += by * (reward >= self.success_at)

    def refuses(self, rewards: Sequence[float]) -> str:
        """Why a group with these rewards would leave too few failures, or ''. A group that has its own
        share of failures always passes.
        """
        won = sum(reward >= self.success_at for reward in rewards)
        share = (self.successes + won) / (self.total + len(rewards))
        if won / len(rewards) <= self.most or share <= self.most:
            return ""
        return f"successes would be {share:.0%} of the buffer, above max_share_success {self.most:g}"


class Room:
    """Quotas: whole groups of the lowest priority make room, never one that a training holds."""

    def __init__(self, settings: BufferSettings, ledger: BufferLedger) -> None:
        self.settings = settings
        self.ledger = ledger
        self._queue: list[tuple[float, str]] = [(self.priority(g), g) for g in ledger.groups]
        heapify(self._queue)

    def priority(self, group: str) -> float:
        """A group's priority: that of its best rollout."""
        return max(self.ledger.entries[i].priority for i in self.ledger.groups[group])

    def push(self, group: str) -> None:
        """A group entered the buffer."""
        heappush(self._queue, (self.priority(group), group))

    def victims(
        self, count: int, size: int, priority: float, held: AbstractSet[RolloutId]
    ) -> tuple[str, ...] | Refusal:
        """Groups to evict so that ``count`` rollouts of ``size`` bytes fit, or why they can't."""
        over = count + len(self.ledger.entries) - self.settings.max_rollouts
        over_bytes = size + self.ledger.bytes - self.settings.max_bytes
        found: list[str] = []
        kept: list[tuple[float, str]] = []
        while (over > 0 or over_bytes > 0) and self._queue and self._queue[0][0] < priority:
            theirs, group = heappop(self._queue)
            if group not in self.ledger.groups or group in found or theirs != self.priority(group):
                continue
            kept.append((theirs, group))
            ids = self.ledger.groups[group]
            if not held.isdisjoint(ids):
                continue
            found.append(group)
            over -= len(ids)
            over_bytes -= sum(self.ledger.entries[i].bytes for i in ids)
        fits = over <= 0 and over_bytes <= 0
        for item in kept:
            if not fits or item[1] not in found:
                heappush(self._queue, item)
        return tuple(found) if fits else self._refusal(over, over_bytes)

    def _refusal(self, over: int, over_bytes: int) -> Refusal:
        reason: RefusedReason = "quota" if over > 0 else "byte_budget"
        beyond = f"{over} rollouts over max_rollouts" if over > 0 else f"{over_bytes} bytes over max_bytes"
        return Refusal(reason, f"{beyond}, and nothing of lower priority is free to leave")
