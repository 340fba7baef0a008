"""The demo's settings: the lineage that learns, and a second one whose reward can be hacked.

Both have the same trainer and gate. Only the reward formula differs, and that the second one's two rounds
run without a gate between them, so that the gate sees what such a reward does when nothing stops it: its alarms
are told and stop no training. Its runs are told one after another, so none waits for those that began before it.
The other lineage has the alarms as they are set by default, which look at a run ten minutes after it began.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from millstream.bootstrap.plans import Plan
from millstream.examples.finqa.evaluation import EVALUATION
from millstream.examples.finqa.settings import LOOP
from millstream.loading import Loaded, load
from millstream.settings import (
    AlarmSettings,
    BufferSettings,
    GateSettings,
    RewardSettings,
    TrainerSettings,
    TriggerSettings,
)

HERE = Path(__file__).resolve().parent
BASE = HERE / "base"
LINEAGE, HACK = "finqa", "finqa-hack"
GRADERS = ("correct", "efficiency", "format", "groundedness")
FORMULA = "0.8*correct + 0.1*efficiency*correct + 0.05*format + 0.05*steady"
HACK_FORMULA = "groundedness"
NEAR_DUPLICATE = 0.95
"""Runs here are a few short calls, alike but for names and years: only near copies are duplicates."""
SPARE_GROUPS = 2
"""A round has this many groups more than a training asks for: a few may be refused."""


def write_settings(folder: Path) -> Path:
    """The settings file of a demo's folder, so that every command can look at it afterwards."""
    path = folder / "millstream.toml"
    lines = ["# The demo's settings.", "[storage]", 'data = "."', "[graders]", f"enabled = {json.dumps(GRADERS)}"]
    lines += [f"files = {json.dumps([str(HERE / 'steady.py')])}", "[reward]", f"formula = {json.dumps(FORMULA)}"]
    lines += ["[buffer]", f"namespace = {json.dumps(LINEAGE)}"]
    lines += ["[policy]", f"lineage = {json.dumps(LINEAGE)}", f"base = {json.dumps(str(BASE))}"]
    lines += ["[gate]", f"evaluation = {json.dumps(EVALUATION)}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def demo_settings(file: Path) -> Loaded:
    """The settings of a demo's file; the environment does not change them."""
    return load(file, environ={})


def plans(seed: int) -> tuple[Plan, Plan]:
    """The two lineages."""
    trainer = TrainerSettings(
        algorithm="sft",
        learning_rate=LOOP.imitation.learning_rate,
        epochs=LOOP.imitation.epochs,
        tokens_per_batch=LOOP.imitation.batch_tokens,
        max_length=512,
        keep_reward=LOOP.imitation.threshold,
        keep_per_group=LOOP.imitation.per_group,
        seed=seed,
    )
    gate = GateSettings(
        evaluation=EVALUATION,
        gold="correct",
        alpha=LOOP.gate_alpha,
        tasks=LOOP.gate.tasks,
        worlds=LOOP.gate.worlds,
        temperature=LOOP.temperature,
    )
    learner = Plan(
        lineage=LINEAGE,
        base=BASE,
        reward=RewardSettings(formula=FORMULA),
        buffer=BufferSettings(namespace=LINEAGE, near_duplicate=NEAR_DUPLICATE),
        trigger=TriggerSettings(min_groups=LOOP.practice.tasks - SPARE_GROUPS, min_informative=8),
        trainer=trainer,
        gate=gate,
    )
    hack = replace(
        learner,
        lineage=HACK,
        alarms=AlarmSettings(gold="correct", hold_s=0, stops=()),
        reward=RewardSettings(formula=HACK_FORMULA),
        buffer=replace(learner.buffer, namespace=HACK),
        gate=replace(gate, guardrails_decide=False),
        trigger=replace(learner.trigger, chain=True),
        first_gated=1 + LOOP.hack_rounds,
    )
    return learner, hack
