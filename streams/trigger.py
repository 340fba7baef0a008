"""The trigger: when enough new, informative groups wait for a lineage's champion, ask for a training.

A group is informative when its rewards differ. A request pins every rollout that may be used now, those
released by a refused candidate included; but only groups that came since the last request count towards
asking again. While a training is open, its candidate awaits the gate, or an alarm says that the reward is
being fooled, nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from millstream.ledger import policy_events
from millstream.ndjson import UNREADABLE, filled
from millstream.policy import AnyPolicyEvent, PolicyLedger, Training, TrainingRequested, Version
from millstream.ports import Output, Record
from millstream.rollout import BufferDecision, GroupClosed, RolloutsAcknowledged, RolloutsReleased
from millstream.settings import TrainerSettings, TriggerSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.training_request import Choice, choose, idle_words, request_by_hand, request_of
from millstream.topics import BUFFER_EVENTS, POLICY_EVENTS

__all__ = ["Trigger", "TriggerState", "blocked_by", "request_by_hand"]

_LINE = msgspec.json.Decoder(BufferDecision)


class TriggerState(Struct, kw_only=True):
    """``fresh``: the groups that came since the last request and are still there, and whether each is
    informative. ``consumed``: this lineage's trainings whose rollouts no gate has released. ``retry_at``: so
    many fresh groups before families that teach nothing are looked for again, which takes the whole buffer.
    """

    now_ms: int = 0
    buffer: BufferLedger = field(default_factory=BufferLedger)
    policies: PolicyLedger = field(default_factory=PolicyLedger)
    fresh: dict[str, bool] = field(default_factory=dict)
    consumed: dict[str, None] = field(default_factory=dict)
    requested: int = 0
    retry_at: int = 0
    undecodable: int = 0


class Trigger:
    """One trigger for one lineage and namespace. ``max_uses`` is the buffer's, ``graders`` those that the
    reward is made of: while an alarm about one of them stands, nothing is asked for. A reward of
    ``success_at`` or more is a success.
    """

    inputs = (BUFFER_EVENTS.name, POLICY_EVENTS.name)

    def __init__(
        self,
        settings: TriggerSettings,
        trainer: TrainerSettings,
        *,
        lineage: str,
        namespace: str,
        max_uses: int = 3,
        graders: frozenset[str] = frozenset(),
        success_at: float = 0.5,
        name: str = "trigger",
    ) -> None:
        self.name = name
        self.settings = settings
        self.trainer = trainer
        self.lineage = lineage
        self.namespace = namespace
        self.max_uses = max_uses
        self.graders = graders
        self.success_at = success_at
        self._claim_timeout_ms = int(trainer.claim_timeout_s * 1000)
        self.state = TriggerState(policies=PolicyLedger(claim_timeout_ms=self._claim_timeout_ms))

    def feed(self, record: Record) -> Sequence[Output]:
        """Fold one record in; at most one request comes out."""
        self.state.now_ms = max(self.state.now_ms, record.log_ms)
        if record.topic == BUFFER_EVENTS.name:
            self._decisions(record)
        else:
            for event in policy_events(record):
                self._fold(event)
        request = self._request()
        if request is None:
            return ()
        self._fold(request)
        self.state.fresh.clear()
        self.state.requested += 1
        return (Output(POLICY_EVENTS.name, self.lineage, msgspec.json.encode(request), {"kind": "policy"}),)

    def deadline_ms(self) -> int | None:
        """It has no timers."""
        return None

    def snapshot(self) -> bytes:
        """The whole state in MessagePack."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by a snapshot's."""
        self.state = msgspec.msgpack.decode(snapshot, type=TriggerState)

    def _fold(self, event: AnyPolicyEvent | None) -> None:
        """Fold a policy event; of a request the rollout ids are not kept."""
        self.state.retry_at = 0
        if event is None:
            self.state.undecodable += 1
        elif self.state.policies.apply(event) and isinstance(event, TrainingRequested):
            self.state.policies.trainings[event.id].request = msgspec.structs.replace(event, rollout_ids=())

    def _decisions(self, record: Record) -> None:
        for line in filled(record.value):
            try:
                decision = _LINE.decode(line)
            except UNREADABLE:
                self.state.undecodable += 1
                continue
            if decision.namespace == self.namespace:
                self.state.buffer.apply(decision, record.offset)
                self._note(decision)

    def _note(self, decision: BufferDecision) -> None:
        if isinstance(decision, GroupClosed) and decision.rollout_ids:
            self.state.fresh[decision.group] = decision.std > 0
        elif isinstance(decision, RolloutsAcknowledged) and decision.lineage == self.lineage:
            self.state.consumed[decision.training_id] = None
        elif isinstance(decision, RolloutsReleased):
            self.state.consumed.pop(decision.training_id, None)

    def _request(self) -> TrainingRequested | None:
        if len(self.state.fresh) < self.state.retry_at or not self._enough():
            return None
        if (champion := self.state.policies.champion(self.lineage)) is None:
            return None
        if blocked_by(self.state.policies, self.lineage, self.settings) or self._behind():
            return None
        if self.state.policies.graders.stopping(self.lineage, self.graders) is not None:
            return None
        state = self.state
        choice = choose(
            state.buffer, state.policies, self.settings, self.lineage, champion, self.max_uses, self.success_at
        )
        state.fresh = {g: told for g, told in state.fresh.items() if g in choice.usable}
        if not self._enough(choice.idle) or not choice.rollout_ids:
            state.retry_at = len(state.fresh) + max(1, self.settings.min_groups // 8)
            return None
        request = request_of(
            choice,
            self.trainer,
            self.lineage,
            self.namespace,
            reason=self._reason(choice, champion),
            log_ms=self.state.now_ms,
        )
        return None if request.id in self.state.policies.trainings else request

    def _behind(self) -> bool:
        """Whether the buffer's answer to something in ``policy-events`` is still to come: the end of a
        lease, or the release of what a refused candidate was trained on.
        """
        trainings, versions = self.state.policies.trainings, self.state.policies.lineage(self.lineage).versions
        if any(
            trainings[name].state in ("finished", "failed") for name in self.state.buffer.leases if name in trainings
        ):
            return True
        judged = (versions.get(trainings[name].version or 0) for name in self.state.consumed if name in trainings)
        return any(version is not None and version.verdict in ("refuse", "inconclusive") for version in judged)

    def _enough(self, idle: frozenset[str] = frozenset()) -> bool:
        """Groups of families that teach nothing count as new, but never as informative."""
        informative = self._informative(idle)
        return len(self.state.fresh) >= self.settings.min_groups and informative >= self.settings.min_informative

    def _informative(self, idle: frozenset[str]) -> int:
        return sum(told and group not in idle for group, told in self.state.fresh.items())

    def _reason(self, choice: Choice, champion: Version) -> str:
        fresh, settings = self.state.fresh, self.settings
        older = len(choice.usable) - len(fresh)
        informative = self._informative(choice.idle)
        idle = f"; {len(choice.idle)} groups {idle_words(choice.families)}" if choice.idle else ""
        return (
            f"{len(fresh)} new groups ({settings.min_groups} needed), {informative} of them informative "
            f"({settings.min_informative} needed), {older} older groups still usable; "
            f"{len(choice.rollout_ids)} rollouts for champion {champion.version}{idle}"
        )


def blocked_by(policies: PolicyLedger, lineage: str, settings: TriggerSettings) -> str:
    """Why no training of this lineage may be asked for now, or ''."""
    mine = [training for training in policies.trainings.values() if training.request.lineage == lineage]
    for training in mine:
        if training.state in ("requested", "claimed"):
            return f"training {training.request.id} is {training.state}"
    if not settings.wait_for_gate or settings.chain:
        return ""
    versions = policies.lineage(lineage).versions
    return next((told for told in (_awaits(policies, t, versions) for t in mine) if told), "")


def _awaits(policies: PolicyLedger, training: Training, versions: dict[int, Version]) -> str:
    """What a finished training's candidate waits for: its gate, or the promotion that its gate said."""
    if training.state != "finished" or training.version is None:
        return ""
    version = versions.get(training.version)
    champion = policies.lineage(training.request.lineage).champion
    if version is None or version.stage != "candidate" or training.request.parent != champion:
        return ""
    if version.verdict is None:
        return f"candidate {version.version} awaits the gate"
    return f"candidate {version.version} awaits its promotion" if version.verdict == "promote" else ""
