"""The buffering stage: grades in, decisions about rollouts out. The one writer of its namespace's
``buffer-events``.

It folds grades into rewards, runs into groups, decides each group when it is whole or its timer fires,
and turns what happens to trainings into leases. All decisions of one cause are one record, so that a
reader applies them together. Timers fire from the log time of any record of its inputs; a `Tick` in
``grades`` is such a record, and one flagged `CLOSE_OPEN` fires every timer at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from millstream.events import CLOSE_OPEN, Interface, Tick
from millstream.grade import GradeGiven
from millstream.graders.reward import Formula
from millstream.ledger import policy_events
from millstream.policy import AnyPolicyEvent, PolicyLedger
from millstream.ports import Output, Record
from millstream.recalls import EvidenceRecalled, RecallLifted, Recalls
from millstream.rollout import BufferDecision, GradingFinished, RolloutId
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.buffer_book import BufferBook
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.grade_lines import BufferingCounts, read_lines
from millstream.streams.graded_runs import GradedRun, NamedGraders, is_feedback
from millstream.streams.group_decision import GroupDecider
from millstream.streams.grouping import Grouping, GroupingState
from millstream.streams.groups import Group, group_key
from millstream.streams.leasing import Leasing, Trainings
from millstream.streams.near_duplicates import compact
from millstream.topics import BUFFER_EVENTS, GRADES, POLICY_EVENTS

FORGET_S = 7 * 86_400.0
"""How long a run without a place in the buffer waits for a grade that would change its fate."""

NEVER_MS = 1 << 62
"""Later than any deadline."""

_encode = msgspec.json.Encoder().encode


class _Snapshot(Struct, kw_only=True):
    now_ms: int
    counts: BufferingCounts
    grouping: GroupingState
    ledger: BufferLedger
    signatures: dict[RolloutId, bytes]
    trainings: msgspec.Raw


class BufferingStage:
    """``interface``: the policy's (all unknown: any is taken). ``lineages``: whose rollouts are taken
    (empty: any). ``name`` is the stage's in the store: each namespace needs its own.
    """

    inputs = (GRADES.name, POLICY_EVENTS.name)
    tick_topic = GRADES.name
    """Where its ticks go."""

    def __init__(
        self,
        settings: BufferSettings,
        reward: RewardSettings,
        *,
        interface: Interface | None = None,
        lineages: frozenset[str] = frozenset(),
        claim_timeout_s: float = 60.0,
        name: str = "buffer",
        forget_s: float = FORGET_S,
    ) -> None:
        self.name = name
        self.namespace = settings.namespace
        self.named = NamedGraders(Formula.of(reward))
        self.now_ms = 0
        self.counts = BufferingCounts()
        self.book = BufferBook(settings, reward)
        most = settings.max_rollouts + settings.max_remembered
        self.grouping = Grouping(int(settings.group_timeout_s * 1000), int(forget_s * 1000), most)
        self.decider = GroupDecider(self.namespace, self.named.formula, interface or Interface(), lineages, self.book)
        trainings = Trainings(policies=PolicyLedger(claim_timeout_ms=int(claim_timeout_s * 1000)))
        self.leasing = Leasing(self.namespace, self.book, trainings)

    @property
    def recalls(self) -> Recalls:
        """What has been recalled, as far as ``policy-events`` has been read."""
        return self.leasing.trainings.policies.recalls

    def feed(self, record: Record) -> Sequence[Output]:
        """Fold one record in; every output is one record of decisions, or a dead letter."""
        self.now_ms = max(self.now_ms, record.log_ms)
        outputs = [self._output(told) for group in self.grouping.due(self.now_ms) for told in self._fire(group)]
        self.grouping.forget(self.now_ms)
        if record.value is None:
            self.counts.empty += 1
        elif record.topic == GRADES.name:
            for item in read_lines(self.name, record, record.value, self.counts):
                outputs += [item] if isinstance(item, Output) else map(self._output, self._take(item))
        else:
            outputs += map(self._output, self._policy(record))
        return outputs

    def deadline_ms(self) -> int | None:
        """When the next group's timer is due."""
        return self.grouping.deadline_ms()

    @property
    def open(self) -> int:
        """Groups that wait for more runs or for their timer."""
        return len(self.grouping.open())

    def snapshot(self) -> bytes:
        """The whole state in MessagePack, keys sorted where their order means nothing."""
        trainings = msgspec.msgpack.encode(self.leasing.trainings)
        return msgspec.msgpack.encode(
            _Snapshot(
                now_ms=self.now_ms,
                counts=self.counts,
                grouping=self.grouping.state(),
                ledger=self.book.ledger,
                signatures=self.book.signatures,
                trainings=msgspec.Raw(trainings),
            ),
            order="deterministic",
        )

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by a snapshot's."""
        kept = msgspec.msgpack.decode(snapshot, type=_Snapshot)
        self.now_ms, self.counts = kept.now_ms, kept.counts
        self.grouping.load(kept.grouping)
        trainings = msgspec.msgpack.decode(kept.trainings, type=Trainings)
        self.leasing.trainings = trainings
        self.book.load(kept.ledger, kept.signatures, [w.rollout_ids for w in trainings.wanted.values()])

    def _take(self, item: GradeGiven | GradingFinished | Tick) -> Iterable[list[BufferDecision]]:
        if isinstance(item, GradeGiven):
            return self._grade(item)
        if isinstance(item, GradingFinished):
            return self._finish(item)
        self.counts.ticks += 1
        if CLOSE_OPEN not in item.flags:
            return ()
        return [told for group in self.grouping.due(NEVER_MS) for told in self._fire(group)]

    def _grade(self, given: GradeGiven) -> Iterable[list[BufferDecision]]:
        self.counts.grades += 1
        if given.grader not in self.named.names:
            self.counts.unnamed += 1
            return ()
        run = self.grouping.run(given.trajectory_id, self.now_ms)
        if not run.add(given):
            self.counts.repeated += 1
            return ()
        if not run.revision or (given.revision != run.revision and not is_feedback(given.grader)):
            return ()
        return self._settle(run)

    def _settle(self, run: GradedRun) -> Iterable[list[BufferDecision]]:
        """A grade came for a run that is graded already: its reward, and so its group, may change."""
        waited = run.waiting
        changed = run.settle(self.named, self.recalls)
        group = self.grouping.groups.get(run.group)
        if group is None:
            return ()
        run.reward_revision += changed and run.reward_revision > 0
        if self._key(run) != group.key:
            return self._regraded(run, waited=waited)
        group.waiting += run.waiting - waited
        return self._changed(group) if changed else self._check(group)

    def _finish(self, finished: GradingFinished) -> Iterable[list[BufferDecision]]:
        self.counts.finished += 1
        run = self.grouping.run(finished.trajectory_id, self.now_ms)
        if finished.revision < run.revision:
            self.counts.stale += 1
            return [[self.decider.stale(run, finished.revision, self.now_ms)]]
        if finished.revision == run.revision:
            self.counts.repeated += 1
            return self._settle(run)
        told: list[list[BufferDecision]] = []
        if run.revision and not run.reward_revision:
            told.append([self.decider.stale(run, run.revision, self.now_ms)])
        waited = run.waiting
        facts = finished.facts
        signature = compact(facts.signature) if self.book.near.enabled else b""
        run.finish(msgspec.structs.replace(finished, facts=msgspec.structs.replace(facts, signature=())), signature)
        run.settle(self.named, self.recalls)
        run.reward_revision = 0
        return [*told, *self._move(run, waited=waited)]

    def _move(self, run: GradedRun, *, waited: bool) -> Iterable[list[BufferDecision]]:
        """Put a run where it belongs now: the group it is in, another, or its first."""
        key = self._key(run)
        group = self.grouping.groups.get(run.group)
        if group is not None and group.key == key and not group.evicted:
            group.waiting += run.waiting - waited
            return self._changed(group)
        told: list[list[BufferDecision]] = []
        if (left := self.grouping.leave(run, was_waiting=waited)) is not None:
            run.left = left.id
            told += self._changed(left)
        return [*told, *self._changed(self.grouping.join(run, key, self.now_ms))]

    def _regraded(self, run: GradedRun, *, waited: bool) -> Iterable[list[BufferDecision]]:
        """Move a run whose epochs are others now. What it leaves behind is withdrawn whole and waits: in
        most cases the other members are graded anew at once, and deciding the rest after each would be
        n decisions for n members.
        """
        told: list[list[BufferDecision]] = []
        if (left := self.grouping.leave(run, was_waiting=waited)) is not None:
            run.left = left.id
            if left.evicted or not left.closed or self.book.is_held(left.admitted):
                told += self._changed(left)
            else:
                told += [gone] if (gone := self.decider.withdraw(left, self.now_ms)) else []
                self.grouping.reopen(left, self.now_ms)
        return [*told, *self._changed(self.grouping.join(run, self._key(run), self.now_ms))]

    def _key(self, run: GradedRun) -> str:
        return group_key(self.namespace, run.trajectory_id, run.facts, run.epochs)

    def _changed(self, group: Group) -> Iterable[list[BufferDecision]]:
        """Something in a group is new: decide it if it is whole, again if it was decided."""
        if group.evicted:
            return ()
        return self._decide(group) if group.closed else self._check(group)

    def _check(self, group: Group) -> Iterable[list[BufferDecision]]:
        return self._decide(group) if group.full and not group.closed else ()

    def _fire(self, group: Group) -> Iterable[list[BufferDecision]]:
        group.by_timer = True
        return self._decide(group)

    def _decide(self, group: Group) -> Iterable[list[BufferDecision]]:
        if self.book.is_held(group.admitted):
            group.stale = True
            return ()
        members = self.grouping.members(group)
        if any(self._lingers(run) for run in members):
            return ()
        group.closed, group.stale = True, False
        told = self.decider.decide(group, members, self.now_ms)
        self.grouping.rest(group, self.now_ms)
        for name in told.victims:
            victim = self.grouping.groups[name]
            victim.evicted, victim.admitted = True, ()
            self.grouping.rest(victim, self.now_ms)
        return [list(told.decisions)]

    def _lingers(self, run: GradedRun) -> bool:
        """Whether a rollout of the run is still in the buffer with the group that it left: a training holds it.
        What was postponed for it is decided when it is let go.
        """
        left = self.grouping.groups.get(run.left)
        return left is not None and left.stale

    def _policy(self, record: Record) -> Iterator[list[BufferDecision]]:
        for event in policy_events(record):
            if event is None:
                self.counts.undecodable += 1
            else:
                yield from self._training(event)

    def _training(self, event: AnyPolicyEvent) -> Iterator[list[BufferDecision]]:
        wanted = dict(self.leasing.trainings.wanted)
        if decisions := self.leasing.feed(event, self.now_ms):
            yield decisions
        if isinstance(event, EvidenceRecalled | RecallLifted):
            yield from self._recall(event)
        ended = wanted.keys() - self.leasing.trainings.wanted.keys()
        freed = self._stale(i for name in ended for i in wanted[name].rollout_ids)
        for group in freed:
            yield from self._decide(group)
        for group in self._postponed({group.id for group in freed}):
            yield from self._decide(group)

    def _recall(self, event: EvidenceRecalled | RecallLifted) -> Iterator[list[BufferDecision]]:
        """What rests on recalled evidence loses its reward, or has it again: all of it first, then each group
        is decided once.
        """
        groups: dict[str, Group] = {}
        one = "" if isinstance(event, RecallLifted) or event.grader in self.named.names else event.trajectory_id
        for trajectory_id in [one] if one else sorted(self.grouping.runs):
            run = self.grouping.runs.get(trajectory_id)
            if run is None:
                continue
            waited = run.waiting
            changed = run.settle(self.named, self.recalls)
            if (group := self.grouping.groups.get(run.group)) is not None:
                run.reward_revision += changed and run.reward_revision > 0
                group.waiting += run.waiting - waited
                groups.update({group.id: group} if changed else {})
        for name in sorted(groups):
            yield from self._changed(groups[name])

    def _stale(self, free: Iterable[RolloutId]) -> list[Group]:
        """Groups that waited for these rollouts to be let go."""
        entries = self.book.ledger.entries
        names = sorted({entries[i].group for i in free if i in entries})
        return [group for name in names if (group := self.grouping.groups[name]).stale]

    def _postponed(self, freed: set[str]) -> list[Group]:
        """Groups whose decision waited for what their members had left behind in these."""
        runs = [run for run in self.grouping.runs.values() if run.left in freed] if freed else []
        groups = {run.group: self.grouping.groups.get(run.group) for run in runs}
        found = [group for _, group in sorted(groups.items()) if group and (group.full or group.by_timer)]
        return [group for group in found if not group.closed]

    def _output(self, decisions: list[BufferDecision]) -> Output:
        value = b"\n".join(map(_encode, decisions))
        return Output(BUFFER_EVENTS.name, self.namespace, value, {"kind": "decisions"})
