"""What the train worker and its child process say to each other, as JSON. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from millstream.settings import TrainerSettings

NOT_OF_THE_RESULT = ("heartbeat_s", "claim_timeout_s")
"""Settings that do not shape what is trained, and so stay out of manifests."""


class WorkOrder(Struct, frozen=True, kw_only=True):
    """Train what the manifest in `folder` says, from the model in `start`; `champion` is what KL is measured to."""

    folder: str
    start: str
    champion: str


class WorkResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of it. `model` is the folder of the new policy; empty when `failure` says why there is none.

    `steps`: metrics of each optimiser step. `evaluation`: of the weights as saved; None where a value is not finite.
    `counts`: denominators of everything kept and dropped. `consumed`: the rollouts that were trained on.
    """

    manifest: str
    model: str = ""
    content_hash: str = ""
    failure: str = ""
    steps: tuple[dict[str, float | None], ...] = ()
    evaluation: dict[str, float | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    consumed: tuple[str, ...] = ()
    resumed_epoch: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class Caller(Protocol):
    """A process that answers calls, such as a child process. Not called from two threads at once."""

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """Answer one call. Raises `Unavailable` when the process ended, `GraderError` with what it raised."""
        ...


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The metrics with None where a value is not finite: JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def settings_of(tree: Mapping[str, Any]) -> TrainerSettings:
    """Trainer settings from a manifest."""
    return msgspec.convert(dict(tree), TrainerSettings)


def training_settings(settings: TrainerSettings, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into a manifest: the lineage's settings, then what the request asks for.

    Raises `msgspec.ValidationError` for an unknown key or a wrong type.
    """
    tree = {**msgspec.to_builtins(settings), **overrides}
    checked = msgspec.to_builtins(msgspec.convert(tree, TrainerSettings))
    return {name: value for name, value in checked.items() if name not in NOT_OF_THE_RESULT}
