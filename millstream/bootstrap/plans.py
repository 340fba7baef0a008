"""Plans: what a lineage is trained on and judged by. Settings make one; a program may add more."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from millstream.loading import Loaded
from millstream.settings import (
    AlarmSettings,
    BufferSettings,
    GateSettings,
    RewardSettings,
    TrainerSettings,
    TriggerSettings,
)


class Plan(Struct, frozen=True, kw_only=True):
    """One lineage with its own namespace of the buffer. ``base`` None: nothing is trained.

    ``first_gated``: versions below it meet no gate (an experiment that judges only its end).
    """

    lineage: str
    base: Path | None
    reward: RewardSettings
    buffer: BufferSettings
    trigger: TriggerSettings
    trainer: TrainerSettings
    gate: GateSettings
    first_gated: int = 2
    alarms: AlarmSettings = AlarmSettings()

    @property
    def namespace(self) -> str:
        """The namespace of the buffer."""
        return self.buffer.namespace


def plan_of(loaded: Loaded) -> Plan:
    """The plan that settings describe."""
    settings = loaded.settings
    return Plan(
        lineage=settings.policy.lineage,
        base=loaded.path(settings.policy.base) if settings.policy.base else None,
        reward=settings.reward,
        buffer=settings.buffer,
        trigger=settings.trigger,
        trainer=settings.trainer,
        gate=settings.gate,
        alarms=settings.alarms,
    )
