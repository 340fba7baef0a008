"""The stages of a runtime, as settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from millstream.bootstrap.plans import Plan
from millstream.bootstrap.policies import interface_of
from millstream.deploy.gate import success_from
from millstream.errors import SettingsError, nearest
from millstream.graders.reward import Formula
from millstream.prices import load
from millstream.streams.alarms import AlarmStage
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.graded_runs import is_feedback
from millstream.streams.grading import GradingStage
from millstream.streams.trigger import Trigger
from millstream.topics import TELEMETRY, TRAJECTORIES

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


RUN_SHARE: Final = 0.8
"""Of the largest batch: what the events of one run may take, so that its record has room for the rest."""


def check_rewards(runtime: Runtime) -> None:
    """Raises `SettingsError` where a reward, or the gold of the alarms, names a grader that is not enabled, and for
    a success that no score can be.
    """
    names = runtime.graders.names
    for plan in runtime.plans:
        Formula.of(plan.reward).check(names)
        success_from(plan.gate)
        gold = plan.alarms.gold
        if plan.alarms.enabled and gold not in names and not is_feedback(gold):
            hint = nearest(gold, [*names, "feedback"])
            raise SettingsError(f"[alarms] gold = {gold!r}: no enabled grader has that name{hint}")


def assembling(runtime: Runtime) -> Assembler:
    """Events to trajectories; one for each partition. On Kafka a run is sealed as overflown before its record
    would be one that no topic takes.
    """
    settings = runtime.loaded.settings
    assembly = settings.assembly
    if runtime.on_kafka:
        most = int(settings.kafka.max_batch_bytes * RUN_SHARE)
        assembly = structs.replace(assembly, max_bytes=min(assembly.max_bytes, most))
    prices = load(runtime.loaded.path(assembly.prices)) if assembly.prices else None
    return Assembler(assembly, topic_id=runtime.log.topic_id(TELEMETRY.name), prices=prices)


def grading(runtime: Runtime) -> GradingStage:
    """Trajectories to grades; all of a process share the graders."""
    return GradingStage(runtime.graders, topic_id=runtime.log.topic_id(TRAJECTORIES.name))


def triggers(plan: Plan) -> bool:
    """Whether the stream asks for trainings of a plan."""
    return plan.base is not None and plan.trigger.enabled


def _suffix(runtime: Runtime, plan: Plan) -> str:
    return "" if plan is runtime.plans[0] else f":{plan.namespace}"


def buffering(runtime: Runtime, plan: Plan) -> BufferingStage:
    """Grades to decisions of the buffer."""
    several = len(runtime.plans) > 1
    return BufferingStage(
        plan.buffer,
        plan.reward,
        interface=interface_of(plan),
        lineages=frozenset({plan.lineage}) if several else frozenset(),
        claim_timeout_s=plan.trainer.claim_timeout_s,
        name=f"buffer{_suffix(runtime, plan)}",
    )


def alarming(runtime: Runtime, plan: Plan) -> AlarmStage:
    """Grades to alarms that a reward is being fooled."""
    return AlarmStage(
        plan.alarms,
        plan.reward,
        lineage=plan.lineage,
        lineages=frozenset({plan.lineage}) if len(runtime.plans) > 1 else frozenset(),
        name=f"alarms{_suffix(runtime, plan)}",
    )


def triggering(runtime: Runtime, plan: Plan) -> Trigger:
    """Decisions of the buffer to requests of trainings."""
    gated = plan.gate.enabled and bool(plan.gate.evaluation)
    return Trigger(
        plan.trigger if gated else structs.replace(plan.trigger, wait_for_gate=False),
        plan.trainer,
        lineage=plan.lineage,
        namespace=plan.namespace,
        max_uses=plan.buffer.max_uses,
        graders=Formula.of(plan.reward).names,
        success_at=Formula.of(plan.reward).success_at,
        name=f"trigger{_suffix(runtime, plan)}",
    )
