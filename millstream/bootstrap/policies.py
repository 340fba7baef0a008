"""Wiring of trainings, gates and aliases."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from millstream.bootstrap.examining import register_gold
from millstream.bootstrap.plans import Plan
from millstream.codec import digest
from millstream.errors import MillstreamError, SettingsError, Stuck, Unavailable
from millstream.events import Interface, new_id
from millstream.ledger import LedgerReader
from millstream.policy import Training, TrainingRequested
from millstream.settings import GateSettings

if TYPE_CHECKING:
    from millstream.bootstrap.patience import Worker
    from millstream.bootstrap.runtime import Runtime
    from millstream.deploy.integrity import ManifestFacts
    from millstream.deploy.worker import GateWorker


logger = logging.getLogger(__name__)


def interface_of(plan: Plan) -> Interface:
    """What a plan's policy is shown, as far as its files tell; all unknown without a base."""
    from millstream.trainer.base import interface_parts

    if plan.base is None:
        return Interface()
    tokenizer, template = interface_parts(plan.base)
    return Interface(tokenizer=tokenizer, template=template)


def workers(runtime: Runtime) -> list[Worker]:
    """The train worker, the gate worker and the keeper of aliases, for the plans that have a base."""
    if all(plan.base is None for plan in runtime.plans):
        return []
    return [*trainers(runtime), *judges(runtime)]


def trainers(runtime: Runtime) -> list[Worker]:
    """The train worker, and what registers the bases. Raises `SettingsError` when no plan has a base."""
    from millstream.graders.reward import Formula
    from millstream.trainer.worker import TrainWorker, WorkerSettings

    plans = _with_base(runtime)
    bases = _Bases(runtime, plans)
    bases.try_now()
    train = TrainWorker(
        runtime.log,
        {plan.namespace: runtime.buffer(plan.namespace) for plan in plans},
        runtime.tracker,
        runtime.children,
        {plan.lineage: plan.trainer for plan in plans},
        WorkerSettings(folder=runtime.loaded.data / "trainings"),
        {plan.lineage: Formula.of(plan.reward).names for plan in plans},
    )
    return [bases, train]


def judges(runtime: Runtime) -> list[Worker]:
    """The gate worker where there is an evaluation, and the keeper of aliases. Raises `SettingsError` when
    no plan has a base, or when the gold of a gate may not gate.
    """
    register_gold(runtime)
    gates: list[Worker] = [gate_worker(runtime)] if any(p.gate.evaluation for p in _with_base(runtime)) else []
    return [*gates, _Aliases(runtime)]


def _with_base(runtime: Runtime) -> list[Plan]:
    plans = [plan for plan in runtime.plans if plan.base is not None]
    if not plans:
        raise SettingsError("[policy] base is empty: name a model directory, without one nothing is trained or judged")
    return plans


class _Bases:
    """Registers the base of each lineage, as soon as the registry answers; until then nothing is trained."""

    busy = False

    def __init__(self, runtime: Runtime, plans: Sequence[Plan]) -> None:
        self.runtime = runtime
        self.missing = list(plans)

    def try_now(self) -> None:
        """Register what can be registered. Raises what waiting does not mend."""
        try:
            self.step()
        except Stuck:
            raise
        except Unavailable as error:
            logger.warning("the stages go on, nothing is trained until the registry answers: %s", error)

    def step(self) -> bool:
        """Register the next base. Raises `Unavailable`."""
        from millstream.trainer.base import ensure_base

        done = bool(self.missing)
        while self.missing:
            plan = self.missing[0]
            assert plan.base is not None
            ensure_base(self.runtime.log, self.runtime.tracker, plan.lineage, plan.base)
            self.missing.pop(0)
        return done


class _Aliases:
    """The keeper of aliases as a worker of the loop."""

    busy = False

    def __init__(self, runtime: Runtime) -> None:
        from millstream.deploy.aliases import AliasKeeper, StoreFence

        self.keeper = AliasKeeper(runtime.log, runtime.tracker, StoreFence(runtime.log, runtime.store))

    def step(self) -> bool:
        """Follow the ledger."""
        return self.keeper.step() > 0


def gate_worker(runtime: Runtime) -> GateWorker:
    """The gate over all plans that have an evaluation."""
    from millstream.deploy.remote import ChildEvaluator
    from millstream.deploy.worker import GateDoors, GateWorker

    functions = {plan.gate.evaluation for plan in runtime.plans if plan.gate.evaluation}
    if len(functions) != 1:
        raise SettingsError(
            "[gate] evaluation names no function that runs a policy on held-out tasks; write it as module:function"
            if not functions
            else f"one evaluation function for all lineages, not {sorted(functions)}"
        )
    evaluator = ChildEvaluator([runtime.children] * runtime.children.size, functions.pop())
    doors = GateDoors(
        evaluator=evaluator,
        gates=lambda lineage, version: gate_of(runtime, lineage, version),
        files=runtime.tracker.files,
        manifests=lambda training: manifest_facts(runtime, training),
        keep=lambda packed: keep_gate(runtime, packed),
    )
    return GateWorker(runtime.log, doors)


def keep_gate(runtime: Runtime, packed: bytes) -> str:
    """Store what a gate decided from, under the hash of its bytes."""
    name = digest(packed)
    folder = runtime.loaded.data / "gates"
    folder.mkdir(parents=True, exist_ok=True)
    waiting = folder / f"{name}.part"
    waiting.write_bytes(packed)
    waiting.replace(folder / name)
    return name


def kept_gate(runtime: Runtime, name: str) -> bytes:
    """What `keep_gate` stored; empty when it is gone or not what was stored."""
    if not name.isalnum():
        return b""
    try:
        packed = (runtime.loaded.data / "gates" / name).read_bytes()
    except OSError:
        return b""
    return packed if digest(packed) == name else b""


def gate_of(runtime: Runtime, lineage: str, version: int) -> GateSettings | None:
    """The gate before a version, or None."""
    plan = next((plan for plan in runtime.plans if plan.lineage == lineage), None)
    gated = plan is not None and plan.gate.enabled and plan.gate.evaluation and version >= plan.first_gated
    return plan.gate if plan and gated else None


def manifest_facts(runtime: Runtime, training: Training) -> ManifestFacts | None:
    """What the gate reads of a training's manifest, or None when it cannot be read."""
    from millstream.deploy.integrity import ManifestFacts, ManifestRollout
    from millstream.trainer.manifest import read_manifest

    try:
        manifest = read_manifest(training_folder(runtime, training.request.id))
    except (OSError, MillstreamError):
        return None
    return ManifestFacts(
        rollouts=tuple(
            ManifestRollout(id=entry.rollout_id, split=entry.split or None)  # type: ignore[arg-type]
            for entry in manifest.rollouts
        ),
        interface=manifest.interfaces[0] if manifest.interfaces else Interface(),
    )


def training_folder(runtime: Runtime, training_id: str) -> Path:
    """Where a training keeps its manifest, payload and result."""
    return runtime.loaded.data / "trainings" / training_id


def request_training(runtime: Runtime, lineage: str, algorithm: str) -> TrainingRequested:
    """Ask for a training on everything the buffer holds for the champion. Raises `SettingsError` when
    there is no champion or nothing to train on, or while an alarm says that the reward is being fooled.
    """
    from millstream.grader_events import stopped
    from millstream.graders.reward import Formula
    from millstream.ledger import append_policy_events
    from millstream.streams.trigger import request_by_hand

    plan = runtime.plan(lineage)
    graders = LedgerReader(runtime.log).refresh().graders
    alarm = graders.stopping(plan.lineage, Formula.of(plan.reward).names)
    if alarm is not None:
        raise SettingsError(f"nothing is trained on this reward: {stopped(alarm)}")
    request = request_by_hand(
        runtime.log,
        plan.trigger,
        plan.trainer,
        plan.lineage,
        plan.namespace,
        algorithm,
        max_uses=plan.buffer.max_uses,
        success_at=Formula.of(plan.reward).success_at,
    )
    append_policy_events(runtime.log, [request])
    return request


class Rebuilt(Struct, frozen=True):
    """A version made again: where, the hash of its content, and whether that is the registered one's."""

    folder: Path
    content_hash: str
    same: bool


def rebuild(runtime: Runtime, lineage: str, version: int) -> Rebuilt:
    """Train a version again from its manifest and archived rollouts, in a fresh folder. Raises
    `SettingsError` when it was not made by a training, `MillstreamError` when the training fails.
    """
    from millstream.trainer.manifest import MANIFEST_FILE, PAYLOAD_FILE, read_manifest
    from millstream.trainer.orders import WorkOrder, WorkResult

    ledger = LedgerReader(runtime.log).refresh()
    versions = ledger.lineage(lineage).versions
    found = versions.get(version)
    if found is None or found.training_id not in ledger.trainings:
        raise SettingsError(
            f"version {version} of {lineage!r} was not made by a training; see `millstream policies list`"
        )
    source = training_folder(runtime, found.training_id)
    folder = runtime.loaded.data / "rebuilds" / f"{found.training_id}-{new_id()[-12:]}"
    folder.mkdir(parents=True)
    for name in (MANIFEST_FILE, PAYLOAD_FILE):
        shutil.copyfile(source / name, folder / name)
    manifest = read_manifest(folder)
    start = manifest.parent if manifest.start_from is None else manifest.start_from
    files = {number: str(runtime.tracker.files(lineage, number)) for number in (start, manifest.parent)}
    order = WorkOrder(folder=str(folder), start=files[start], champion=files[manifest.parent])
    answer = runtime.children.call("train", msgspec.json.encode(order))
    result = msgspec.json.decode(answer, type=WorkResult)
    if result.failure:
        raise MillstreamError(f"version {version} of {lineage!r} could not be made again: {result.failure}")
    return Rebuilt(Path(result.model), result.content_hash, result.content_hash == found.content_hash)
