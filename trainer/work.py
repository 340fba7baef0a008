"""The child process that trains: one order in, one result out. The only door from the worker to torch.

Run as `python -m millstream.adapters.child_serving millstream.trainer.work`. Doing an order twice gives the same
result: a finished one is returned, one that was cut short goes on from its last whole epoch.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from millstream.errors import MillstreamError
from millstream.failpoints import AFTER_CHECKPOINT, reach
from millstream.rollout import Rollout
from millstream.settings import TrainerSettings
from millstream.trainer.algorithms import Algorithm, Selection, algorithm
from millstream.trainer.batches import Example
from millstream.trainer.checkpoint import find_checkpoint, put, restore_checkpoint, save_checkpoint
from millstream.trainer.folders import content_hash
from millstream.trainer.manifest import PAYLOAD_FILE, Manifest, read_manifest, read_payload
from millstream.trainer.model import Policy, load_policy, save_policy
from millstream.trainer.optimise import LoopSettings, Progress, Trainer, evaluate, with_reference
from millstream.trainer.orders import WorkOrder, WorkResult, finite, settings_of
from millstream.trainer.rendering import tokenise_rendered
from millstream.trainer.tokens import Tokenised, TokenLimits, counted, tokenise_logged

RESULT_FILE = "result.json"
WATCHED = 64
"""How many examples, evenly spaced, the KL to the champion and the evaluation after training look at."""


def handle(method: str, payload: bytes) -> bytes:
    """Answer one call: `train` (a `WorkOrder`), or `warm` (load the libraries early; given a folder, its model too)."""
    if method == "warm":
        if payload:
            load_policy(Path(payload.decode()))
        return str(torch.__version__).encode()
    if method == "train":
        return msgspec.json.encode(train(msgspec.json.decode(payload, type=WorkOrder)))
    raise MillstreamError(f"the training child knows 'train' and 'warm', not {method!r}")


def train(order: WorkOrder) -> WorkResult:
    """Do an order. A training that cannot be done says so in `failure`; nothing is raised for its data."""
    folder = Path(order.folder)
    manifest = read_manifest(folder)
    done = _finished(folder, manifest)
    if done is not None:
        return done
    return _Training(order, manifest).run()


def _finished(folder: Path, manifest: Manifest) -> WorkResult | None:
    path = folder / "result" / RESULT_FILE
    if not path.is_file():
        return None
    result = msgspec.json.decode(path.read_bytes(), type=WorkResult)
    whole = result.manifest == manifest.id and content_hash(Path(result.model)) == result.content_hash
    return result if whole else None


class _Training:
    def __init__(self, order: WorkOrder, manifest: Manifest) -> None:
        self.order = order
        self.manifest = manifest
        self.folder = Path(order.folder)
        self.settings = settings_of(manifest.settings)
        self.started = time.perf_counter()
        self.counts: dict[str, int] = {}
        self.notes: tuple[str, ...] = ()
        self.resumed = 0

    def run(self) -> WorkResult:
        torch.set_num_threads(self.settings.threads)
        torch.manual_seed(self.manifest.seed)
        method = make_algorithm(self.settings, self.manifest)
        policy = load_policy(Path(self.order.start), lora_rank=self.settings.lora_rank, seed=self.manifest.seed)
        rollouts = read_payload(self.folder / PAYLOAD_FILE, self.manifest.payload)
        selection = self._select(method, policy, rollouts)
        if not selection.examples:
            return self._failed(f"nothing to train on: {_told(self.counts)}")
        examples = self._with_reference(policy, selection.examples, method)
        consumed = tuple(sorted({example.sequence.rollout_id for example in examples}))
        trainer = self._trainer(policy, method, consumed)
        progress = trainer.run(examples, lambda done: self._checkpoint(trainer, done, consumed))
        return self._save(policy, method, examples, progress, consumed)

    def _select(self, method: Algorithm, policy: Policy, rollouts: Sequence[Rollout]) -> Selection:
        limits = TokenLimits(max_length=self.settings.max_length, vocabulary=policy.vocabulary, ratios=method.ratios)
        items: list[Tokenised] = (
            tokenise_rendered(rollouts, policy.tokenizer, limits)
            if self.settings.tokens_source == "rendered" and not method.ratios
            else tokenise_logged(rollouts, limits)
        )
        selection = method.select(items)
        counts = counted(items)
        self.counts = {
            "rollouts": counts.rollouts,
            "sequences": counts.sequences,
            **{f"dropped_{reason}": count for reason, count in sorted(counts.dropped.items())},
            **selection.counts,
            "trained_tokens": sum(example.sequence.trained for example in selection.examples),
        }
        return selection

    def _with_reference(self, policy: Policy, examples: Sequence[Example], method: Algorithm) -> list[Example]:
        same = self.order.champion == self.order.start
        champion = policy if same else load_policy(Path(self.order.champion))
        ordered = sorted(examples, key=lambda example: example.key)
        chosen = ordered if method.references else watched(ordered)
        known = with_reference(champion, chosen, self.settings.tokens_per_batch, method.temperature)
        found = {example.key: example for example in known}
        return [found.get(example.key, example) for example in ordered]

    def _trainer(self, policy: Policy, method: Algorithm, consumed: tuple[str, ...]) -> Trainer:
        settings = self.settings
        loop = LoopSettings(
            learning_rate=settings.learning_rate,
            epochs=settings.epochs,
            tokens_per_batch=settings.tokens_per_batch,
            max_grad_norm=settings.max_grad_norm,
            warmup_steps=settings.warmup_steps,
            seed=self.manifest.seed,
        )
        trainer = Trainer(policy, method, loop)
        found = find_checkpoint(self.folder / "checkpoints", self.manifest.id)
        self.notes = tuple(f"checkpoint {problem}: passed over" for problem in found.unusable)
        if found.checkpoint is not None and found.checkpoint.consumed == consumed:
            restore_checkpoint(found, trainer)
            self.resumed = found.checkpoint.epoch
        return trainer

    def _checkpoint(self, trainer: Trainer, progress: Progress, consumed: tuple[str, ...]) -> None:
        if progress.epoch < self.settings.epochs:
            save_checkpoint(self.folder / "checkpoints", trainer, self.manifest.id, consumed)
            reach(AFTER_CHECKPOINT)

    def _save(
        self,
        policy: Policy,
        method: Algorithm,
        examples: Sequence[Example],
        progress: Progress,
        consumed: tuple[str, ...],
    ) -> WorkResult:
        half, target = self.folder / "result.half", self.folder / "result"
        shutil.rmtree(half, ignore_errors=True)
        try:
            save_policy(policy, half / "model")
        except MillstreamError as error:
            return self._failed(str(error), progress)
        measured = finite(evaluate(policy, method, watched(examples), self.settings.tokens_per_batch))
        self.counts["optimizer_steps"] = progress.step - progress.skipped
        self.counts["skipped_steps"] = progress.skipped
        if progress.skipped == progress.step or None in measured.values():
            return self._failed(f"the evaluation is not finite: {measured}", progress, measured)
        result = self._result(
            progress=progress,
            model=str(target / "model"),
            content_hash=content_hash(half / "model"),
            evaluation=measured,
            consumed=consumed,
        )
        (half / RESULT_FILE).write_bytes(msgspec.json.encode(result))
        put(half, target)
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        return result

    def _failed(
        self, why: str, progress: Progress | None = None, measured: dict[str, float | None] | None = None
    ) -> WorkResult:
        return self._result(progress=progress or Progress(), failure=why, evaluation=measured or {})

    def _result(
        self,
        *,
        progress: Progress,
        evaluation: dict[str, float | None],
        model: str = "",
        content_hash: str = "",
        failure: str = "",
        consumed: tuple[str, ...] = (),
    ) -> WorkResult:
        return WorkResult(
            manifest=self.manifest.id,
            model=model,
            content_hash=content_hash,
            failure=failure,
            steps=tuple(finite(step) for step in progress.metrics),
            evaluation=evaluation,
            counts=self.counts,
            consumed=consumed,
            resumed_epoch=self.resumed,
            notes=self.notes,
            seconds=time.perf_counter() - self.started,
        )


def make_algorithm(settings: TrainerSettings, manifest: Manifest) -> Algorithm:
    """The algorithm of a manifest. Raises `SettingsError`."""
    return algorithm(
        manifest.algorithm,
        settings.options,
        keep_reward=settings.keep_reward,
        keep_per_group=settings.keep_per_group,
        seed=manifest.seed,
    )


def watched(examples: Sequence[Example]) -> list[Example]:
    """At most `WATCHED` of the examples, evenly spaced."""
    return list(examples[:: -(-len(examples) // WATCHED)])


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
