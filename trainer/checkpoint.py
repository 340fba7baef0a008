"""Checkpoints of a training, so that a killed one goes on from its last whole epoch and not from a half-written file.

A checkpoint is a folder: `state.safetensors` (trained parameters and the optimiser's moments) and `checkpoint.json`
(progress, the consumed rollout ids, the checksum of the state), written under another name, synced, then renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from safetensors.torch import load_file, save_file
from torch import Tensor

from millstream.trainer.folders import file_hash
from millstream.trainer.optimise import Progress, Trainer

_PREFIX = "epoch-"
_HALF = ".half"


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a checkpoint says of itself. `manifest`: of the training it belongs to."""

    manifest: str
    epoch: int
    step: int
    skipped: int
    metrics: list[dict[str, float]]
    consumed: tuple[str, ...]
    checksum: str


class Found(Struct, frozen=True, kw_only=True):
    """The newest whole checkpoint, if any, and what was passed over on the way to it."""

    folder: Path | None = None
    checkpoint: Checkpoint | None = None
    unusable: tuple[str, ...] = ()


def save_checkpoint(root: Path, trainer: Trainer, manifest: str, consumed: tuple[str, ...]) -> Path:
    """Write the checkpoint of the epoch that just ended; the ones before it are removed afterwards."""
    progress = trainer.progress
    target = root / f"{_PREFIX}{progress.epoch:04d}"
    half = root / f"{target.name}{_HALF}"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    save_file(_tensors(trainer), half / "state.safetensors")
    about = Checkpoint(
        manifest=manifest,
        epoch=progress.epoch,
        step=progress.step,
        skipped=progress.skipped,
        metrics=progress.metrics,
        consumed=consumed,
        checksum=file_hash(half / "state.safetensors"),
    )
    (half / "checkpoint.json").write_bytes(msgspec.json.encode(about))
    put(half, target)
    for old in sorted(root.glob(f"{_PREFIX}*"))[:-2]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def put(half: Path, target: Path) -> None:
    """Give a finished folder its name: its files are on disk before the name is."""
    for path in half.rglob("*"):
        _sync(path)
    shutil.rmtree(target, ignore_errors=True)
    half.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find_checkpoint(root: Path, manifest: str) -> Found:
    """The newest checkpoint of this manifest whose checksum holds; older ones are tried when it does not."""
    unusable: list[str] = []
    for folder in sorted(root.glob(f"{_PREFIX}*"), reverse=True):
        problem, about = _read(folder, manifest)
        if about is not None:
            return Found(folder=folder, checkpoint=about, unusable=tuple(unusable))
        unusable.append(f"{folder.name}: {problem}")
    return Found(unusable=tuple(unusable))


def _read(folder: Path, manifest: str) -> tuple[str, Checkpoint | None]:
    if folder.name.endswith(_HALF):
        return "was being written when the process ended", None
    try:
        about = msgspec.json.decode((folder / "checkpoint.json").read_bytes(), type=Checkpoint)
        checksum = file_hash(folder / "state.safetensors")
    except (OSError, msgspec.DecodeError) as error:
        return f"unreadable ({error})", None
    if about.manifest != manifest:
        return "belongs to another manifest", None
    if about.checksum != checksum:
        return "its checksum does not hold", None
    return "", about


def restore_checkpoint(found: Found, trainer: Trainer) -> None:
    """Put weights, moments and progress back as they were at the end of that epoch."""
    if found.folder is None or found.checkpoint is None:
        return
    tensors = load_file(found.folder / "state.safetensors")
    with torch.no_grad():
        for name, parameter in _named(trainer).items():
            parameter.copy_(tensors[f"weight/{name}"])
            moments = _moments_of(tensors, name)
            if moments:
                trainer.optimizer.state[parameter] = moments
    about = found.checkpoint
    trainer.progress = Progress(about.epoch, about.step, about.skipped, list(about.metrics))


def _named(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p for name, p in trainer.policy.model.named_parameters() if p.requires_grad}


def _tensors(trainer: Trainer) -> dict[str, Tensor]:
    found = {}
    for name, parameter in _named(trainer).items():
        found[f"weight/{name}"] = parameter.detach().contiguous()
        state: Mapping[str, Any] = trainer.optimizer.state.get(parameter, {})
        found.update({f"{key}/{name}": value.contiguous() for key, value in state.items()})
    return found


def _moments_of(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    keys = ("step", "exp_avg", "exp_avg_sq")
    return {key: tensors[f"{key}/{name}"] for key in keys if f"{key}/{name}" in tensors}
