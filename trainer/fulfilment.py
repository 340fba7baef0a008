"""What a training takes, step by step: manifest, run, training in the child, registration."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from millstream import __version__
from millstream.errors import MillstreamError
from millstream.policy import TrainingRequested, Version
from millstream.ports import Tracker
from millstream.rollout import Rollout, RolloutAdmitted, RolloutId
from millstream.settings import TrainerSettings
from millstream.trainer.folders import content_hash, template_hash, tokenizer_hash
from millstream.trainer.manifest import Manifest, Origin, make_manifest, write_manifest, write_payload
from millstream.trainer.orders import Caller, WorkOrder, WorkResult, training_settings

Admitted: TypeAlias = Mapping[RolloutId, tuple[int, RolloutAdmitted]]


@dataclass(frozen=True, slots=True)
class Sources:
    """What a job works with: where it is tracked, and the process that trains."""

    tracker: Tracker
    caller: Caller
    call_timeout_s: float | None = None
    retry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Made:
    """A registered version."""

    version: int
    uri: str
    run_id: str
    content_hash: str
    manifest: str
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no version."""

    reason: str


class Abandoned(Exception):
    """The claim is lost: stop before anything is registered."""


class Fulfilment:
    """One training. `check_standing` raises `Abandoned` once the claim is lost."""

    def __init__(
        self,
        request: TrainingRequested,
        folder: Path,
        settings: TrainerSettings,
        sources: Sources,
        versions: Mapping[int, Version],
        admitted: Admitted,
        check_standing: Callable[[], None],
    ) -> None:
        self.request = request
        self.folder = folder
        self.settings = settings
        self.check_standing = check_standing
        self.tracker = sources.tracker
        self.sources = sources
        self.versions = versions
        self.admitted = admitted

    def do(self, rollouts: list[Rollout]) -> Made | Failure:
        """Train on these rollouts. Raises `MillstreamError`, `Unavailable` (try again) or `Abandoned`."""
        champion = self._files(self.request.parent)
        start = champion if self.request.start_from is None else self._files(self.request.start_from)
        manifest = self._manifest(rollouts, start, champion)
        run_id = self._open(manifest)
        try:
            result = self._trained(start, champion)
            self.check_standing()
            self._log_metrics(run_id, result)
            made = self._register(run_id, manifest, result)
        except Exception as error:
            with contextlib.suppress(MillstreamError):
                self.tracker.finish(run_id, "KILLED" if isinstance(error, Abandoned) else "FAILED")
            raise
        self.tracker.finish(run_id, "FINISHED" if isinstance(made, Made) else "FAILED")
        return made

    def _files(self, version: int) -> Path:
        if version not in self.versions:
            raise MillstreamError(f"{self.request.lineage!r} has no version {version} to train from")
        folder = self.tracker.files(self.request.lineage, version)
        expected = self.versions[version].content_hash
        if expected and content_hash(folder) != expected:
            raise MillstreamError(f"the files of version {version} in {folder} are not those that were registered")
        return folder

    def _manifest(self, rollouts: list[Rollout], start: Path, champion: Path) -> Manifest:
        origin = Origin(
            base=content_hash(start),
            champion=content_hash(champion),
            tokenizer=tokenizer_hash(start),
            template=template_hash(start),
            code={"millstream": __version__},
            settings=training_settings(self.settings, self.request.settings),
        )
        payload = write_payload(self.folder, rollouts)
        manifest = make_manifest(self.request, rollouts, self.admitted, origin, payload)
        write_manifest(self.folder, manifest)
        return manifest

    def _open(self, manifest: Manifest) -> str:
        tags = {
            "training_id": self.request.id,
            "manifest": manifest.id,
            "parent": str(self.request.parent),
            "algorithm": self.request.algorithm,
            "reason": self.request.reason,
        }
        params = {"algorithm": manifest.algorithm, "seed": manifest.seed, "rollouts": len(manifest.rollouts)}
        return self.tracker.start(self.request.lineage, self.request.id, {**params, **manifest.settings}, tags)

    def _trained(self, start: Path, champion: Path) -> WorkResult:
        order = WorkOrder(folder=str(self.folder), start=str(start), champion=str(champion))
        answer = self.sources.caller.call("train", msgspec.json.encode(order), self.sources.call_timeout_s)
        return msgspec.json.decode(answer, type=WorkResult)

    def _register(self, run_id: str, manifest: Manifest, result: WorkResult) -> Made | Failure:
        if result.failure:
            return Failure(result.failure)
        if not result.evaluation or None in result.evaluation.values():
            return Failure(f"the evaluation is not finite: {result.evaluation}; nothing was registered")
        lineage = self.request.lineage
        uri = self.tracker.log_files(run_id, self._record(result), "training")
        self.tracker.log_dataset(run_id, "rollouts", manifest.payload, len(manifest.rollouts), uri)
        version = self.tracker.registered(lineage, self.request.id)
        if version is None:
            self.check_standing()
            self.tracker.register(lineage, run_id, Path(result.model), self._tags(manifest, result))
            version = self.tracker.registered(lineage, self.request.id)
        if version is None or (version in self.versions and self.versions[version].training_id != self.request.id):
            return Failure(
                f"the registry numbered the result {version}, which the log knows as another version: the registry was "
                "replaced or shared; give [storage] tracking the one that belongs to this log"
            )
        return Made(
            version=version,
            uri=self.tracker.place(lineage, version),
            run_id=run_id,
            content_hash=result.content_hash,
            manifest=manifest.id,
            metrics={name: value for name, value in result.evaluation.items() if value is not None}
            | {name: float(count) for name, count in result.counts.items()}
            | {"seconds": result.seconds, "resumed_epoch": float(result.resumed_epoch)},
        )

    def _log_metrics(self, run_id: str, result: WorkResult) -> None:
        for step, metrics in enumerate(result.steps, 1):
            self.tracker.log_metrics(run_id, step, {k: v for k, v in metrics.items() if v is not None})
        ends: dict[str, float] = {f"eval_{k}": v for k, v in result.evaluation.items() if v is not None}
        ends |= {name: float(count) for name, count in result.counts.items()}
        self.tracker.log_metrics(run_id, len(result.steps), {**ends, "seconds": result.seconds})

    def _record(self, result: WorkResult) -> Path:
        """The training's record as it is archived: manifest, payloads, every step's metrics, what was consumed."""
        folder = self.folder / "record"
        folder.mkdir(exist_ok=True)
        for name in ("manifest.json", "rollouts.ndjson.gz"):
            target = folder / name
            target.unlink(missing_ok=True)
            target.hardlink_to(self.folder / name)
        lines = b"".join(msgspec.json.encode(step) + b"\n" for step in result.steps)
        (folder / "steps.ndjson").write_bytes(lines)
        told = msgspec.structs.replace(result, steps=())
        (folder / "result.json").write_bytes(msgspec.json.encode(told))
        return folder

    def _tags(self, manifest: Manifest, result: WorkResult) -> dict[str, str]:
        reward = "; ".join(manifest.formulas)
        return {
            "training_id": self.request.id,
            "manifest": manifest.id,
            "parent": str(self.request.parent),
            "algorithm": manifest.algorithm,
            "reward": reward[:250],
            "grader_epochs": ",".join(manifest.grader_epochs)[:250],
            "interface": f"{manifest.tokenizer[:12]}/{manifest.template[:12]}",
            "seed": str(manifest.seed),
            "content_hash": result.content_hash[:16],
        }
