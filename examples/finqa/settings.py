"""The numbers of the example, in one place; `base/README.md` tells what came of them."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseShape:
    """The architecture of the base. Small widths need an initial standard deviation of about .07 to learn fast."""

    width: int = 128
    layers: int = 3
    heads: int = 4
    key_value_heads: int = 1
    feed_forward: int = 336
    context: int = 512
    initial_deviation: float = 0.07


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """How the base learns: AdamW, 50 warm-up steps, then a cosine down to 5 % of the learning rate."""

    steps: int = 1300
    batch_tokens: int = 1200
    learning_rate: float = 2.5e-3
    weight_decay: float = 0.01
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How many tasks from how many worlds of their split."""

    worlds: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """Training on the best: rollouts at or above `threshold`, at most `per_group` distinct ones of a group."""

    threshold: float = 0.85
    per_group: int = 4
    epochs: int = 3
    learning_rate: float = 5e-4
    batch_tokens: int = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """One run of the loop. Each gate draws its own tasks; the report set is read by no gate, training or tuning."""

    temperature: float = 0.7
    batch_size: int = 256
    candidates: int = 3
    attempts: int = 8
    practice: Draw = field(default_factory=lambda: Draw(worlds=16, tasks=64))
    gate: Draw = field(default_factory=lambda: Draw(worlds=30, tasks=300))
    gate_alpha: float = 0.01
    report: Draw = field(default_factory=lambda: Draw(worlds=30, tasks=300))
    report_attempts: int = 4
    imitation: Imitation = field(default_factory=Imitation)
    hack_rounds: int = 2


SHAPE: Final = BaseShape()
WARM_START: Final = WarmStart()
LOOP: Final = LoopSettings()
