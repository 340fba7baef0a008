"""The decision about one group: who enters, who doesn't and why, and who has to leave for it.

Deciding a group again (a late reward, a newer revision, a late member) evicts what it had in the buffer
and admits anew, in one record, so that no rollout is ever counted twice.
"""

from __future__ import annotations

from msgspec import Struct

from millstream.buffer_entry import SUPERSEDED
from millstream.codec import digest
from millstream.events import Interface
from millstream.graders.reward import Formula
from millstream.rollout import (
    BufferDecision,
    GroupClosed,
    RolloutAdmitted,
    RolloutId,
    RolloutRefused,
    RolloutsEvicted,
)
from millstream.streams.admission import Refusal, refusal, scope_of
from millstream.streams.buffer_book import BufferBook
from millstream.streams.graded_runs import GradedRun
from millstream.streams.groups import Group, GroupStatistics, priority_of, statistics_of


def rollout_id(run: GradedRun) -> RolloutId:
    """The id of a run with its reward as it is now."""
    return RolloutId(digest(run.trajectory_id, run.revision, run.content_hash, run.reward_revision))


class Decided(Struct, frozen=True):
    """What was decided, in the order in which it is written, and the groups that had to leave."""

    decisions: tuple[BufferDecision, ...]
    victims: tuple[str, ...] = ()


class GroupDecider:
    """Decides groups of one namespace against its `BufferBook`."""

    def __init__(
        self, namespace: str, formula: Formula, interface: Interface, lineages: frozenset[str], book: BufferBook
    ) -> None:
        self.namespace = namespace
        self.formula = formula
        self.interface = interface
        self.lineages = lineages
        self.book = book

    def decide(self, group: Group, runs: list[GradedRun], now_ms: int) -> Decided:
        """Decide a group whose members are ``runs`` (sorted by trajectory; none: they all went elsewhere).
        The book is up to date after it.
        """
        group.turn += 1
        group.decision = digest("closed", self.namespace, group.id, group.turn)
        told: list[BufferDecision] = self._supersede(group, now_ms)
        if not runs:
            group.admitted = ()
            return Decided(tuple(told))
        for run in runs:
            run.reward_revision = run.reward_revision or 1
        refusals = {run.trajectory_id: refusal(run, self.interface, self.lineages) for run in runs}
        rewarded = [run for run in runs if refusals[run.trajectory_id] is None]
        statistics = statistics_of([run.reward for run in rewarded if run.reward is not None])
        admissions = [self._admission(group, run, statistics, now_ms) for run in rewarded]
        found = self._victims(group, rewarded, admissions)
        victims: tuple[str, ...] = ()
        if isinstance(found, Refusal):
            refusals.update({run.trajectory_id: found for run in rewarded})
            admissions = []
        else:
            victims = found
        told += self._make_room(victims, group, now_ms)
        group.admitted = tuple(admitted.rollout_id for admitted in admissions)
        told.append(self._closed(group, runs, len(rewarded), statistics, now_ms))
        self._admit(group, admissions, {run.trajectory_id: run.signature for run in rewarded})
        told += admissions
        told += [self._refused(group, run, why, now_ms) for run in runs if (why := refusals[run.trajectory_id])]
        return Decided(tuple(told), victims)

    def stale(self, run: GradedRun, revision: int, now_ms: int) -> RolloutRefused:
        """The fate of a revision that a newer one replaced before it was decided: it has no group."""
        return RolloutRefused(
            id=digest("stale_revision", self.namespace, run.trajectory_id, revision),
            namespace=self.namespace,
            log_ms=now_ms,
            trajectory_id=run.trajectory_id,
            trajectory_revision=revision,
            group="",
            reason="stale_revision",
            detail=f"a newer revision of the trajectory came ({revision} is not the highest)",
        )

    def withdraw(self, group: Group, now_ms: int) -> list[BufferDecision]:
        """Take a whole group out of the buffer: a grade of one of its members is of a new epoch, so the
        advantages of all no longer hold.
        """
        return self._leave(group, now_ms, "withdrawn", f"members of group {group.id} are graded anew")

    def _supersede(self, group: Group, now_ms: int) -> list[BufferDecision]:
        return self._leave(group, now_ms, "superseded", f"group {group.id} is decided again")

    def _leave(self, group: Group, now_ms: int, how: str, why: str) -> list[BufferDecision]:
        """The decision by which all that was admitted of a group leaves; none when nothing was."""
        if not group.admitted:
            return []
        gone = RolloutsEvicted(
            id=digest(how, group.decision),
            namespace=self.namespace,
            log_ms=now_ms,
            rollout_ids=group.admitted,
            reason=f"{SUPERSEDED}: {why}",
        )
        self.book.apply(gone)
        return [gone]

    def _victims(
        self, group: Group, runs: list[GradedRun], admissions: list[RolloutAdmitted]
    ) -> tuple[str, ...] | Refusal:
        """The groups that must leave, or why this one may not enter."""
        if not admissions:
            return ()
        if len(runs) < 2 and group.size > 1:
            return Refusal("thin_group", f"{len(runs)} of {group.size} has a reward; an advantage needs two")
        facts = runs[0].facts
        scope = scope_of(facts.lineage, facts.policy_version)
        rewards = [admitted.reward for admitted in admissions]
        if why := self.book.group_refusal(group.id, scope, rewards, [run.signature for run in runs]):
            return why
        size = sum(run.facts.bytes for run in runs)
        best = max(admitted.priority for admitted in admissions)
        return self.book.room.victims(len(runs), size, best, self.book.held.keys())

    def _make_room(self, victims: tuple[str, ...], group: Group, now_ms: int) -> list[BufferDecision]:
        evictions: list[BufferDecision] = [self._eviction(victim, group, now_ms) for victim in victims]
        for eviction in evictions:
            self.book.apply(eviction)
        return evictions

    def _admit(self, group: Group, admissions: list[RolloutAdmitted], signatures: dict[str, bytes]) -> None:
        for admitted in admissions:
            self.book.apply(admitted, signatures[admitted.trajectory_id])
        if admissions:
            self.book.entered(group.id)

    def _admission(self, group: Group, run: GradedRun, statistics: GroupStatistics, now_ms: int) -> RolloutAdmitted:
        assert run.reward is not None
        advantage = statistics.advantage(run.reward)
        identity = rollout_id(run)
        return RolloutAdmitted(
            id=digest("admitted", group.decision, identity),
            namespace=self.namespace,
            log_ms=now_ms,
            rollout_id=identity,
            trajectory_id=run.trajectory_id,
            trajectory_revision=run.revision,
            content_hash=run.content_hash,
            position=run.position,
            group=group.id,
            reward=run.reward,
            advantage=advantage,
            priority=priority_of(advantage, now_ms, self.book.settings.priority_tau_s),
            facts=run.facts,
            grade_ids=run.grade_ids,
            grader_epochs=run.epochs,
            formula=self.formula.formula,
        )

    def _refused(self, group: Group, run: GradedRun, why: Refusal, now_ms: int) -> RolloutRefused:
        return RolloutRefused(
            id=digest("refused", group.decision, rollout_id(run)),
            namespace=self.namespace,
            log_ms=now_ms,
            trajectory_id=run.trajectory_id,
            trajectory_revision=run.revision,
            group=group.id,
            reason=why.reason,
            detail=why.detail,
            reward=run.reward,
            position=run.position,
        )

    def _closed(
        self, group: Group, runs: list[GradedRun], rewarded: int, statistics: GroupStatistics, now_ms: int
    ) -> GroupClosed:
        facts = runs[0].facts
        return GroupClosed(
            id=group.decision,
            namespace=self.namespace,
            log_ms=now_ms,
            group=group.id,
            task_id=facts.task_id,
            lineage=facts.lineage,
            policy_version=facts.policy_version,
            size=len(runs),
            rewarded=rewarded,
            mean=statistics.mean,
            std=statistics.std,
            rollout_ids=group.admitted,
            by_timer=group.by_timer,
        )

    def _eviction(self, victim: str, group: Group, now_ms: int) -> RolloutsEvicted:
        return RolloutsEvicted(
            id=digest("evicted", group.decision, victim),
            namespace=self.namespace,
            log_ms=now_ms,
            rollout_ids=tuple(sorted(self.book.ledger.groups[victim])),
            reason=f"made room for group {group.id}, whose priority is higher",
        )
