"""Checkpoints: what is half written is passed over by name, and the newest whole one is used (R17)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from millstream.trainer.algorithms import algorithm
from millstream.trainer.checkpoint import find_checkpoint, restore_checkpoint, save_checkpoint
from millstream.trainer.model import load_policy
from millstream.trainer.optimise import LoopSettings, Trainer


def fresh(folder: Path) -> Trainer:
    method = algorithm("sft", {}, keep_reward=0, keep_per_group=1, seed=0)
    return Trainer(load_policy(folder), method, LoopSettings())


@pytest.fixture
def saved(llama: Path, tmp_path: Path) -> Path:
    """Checkpoints of two epochs with different weights."""
    trainer = fresh(llama)
    for epoch in (1, 2):
        with torch.no_grad():
            trainer.parameters[0].fill_(float(epoch))
        trainer.progress.epoch, trainer.progress.step = epoch, 10 * epoch
        save_checkpoint(tmp_path, trainer, "manifest-1", ("r1", "r2"))
    return tmp_path


def test_the_newest_whole_one_is_restored(saved: Path, llama: Path) -> None:
    """Weights, progress and consumed ids come back as they were written."""
    found = find_checkpoint(saved, "manifest-1")
    trainer = fresh(llama)
    restore_checkpoint(found, trainer)
    assert found.checkpoint is not None
    assert (found.checkpoint.consumed, found.unusable) == (("r1", "r2"), ())
    assert (trainer.progress.epoch, trainer.progress.step) == (2, 20)
    assert trainer.parameters[0].detach().unique().tolist() == [2.0]


def test_a_truncated_one_and_a_stray_half_are_passed_over(saved: Path, llama: Path) -> None:
    """The newest cut to half and a folder left while writing: the one before is used, and both are named."""
    newest = saved / "epoch-0002" / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    shutil.copytree(saved / "epoch-0001", saved / "epoch-0003.half")
    found = find_checkpoint(saved, "manifest-1")
    trainer = fresh(llama)
    restore_checkpoint(found, trainer)
    assert trainer.progress.epoch == 1
    assert found.unusable == (
        "epoch-0003.half: was being written when the process ended",
        "epoch-0002: its checksum does not hold",
    )


def test_nothing_whole_is_a_fresh_start(saved: Path, llama: Path) -> None:
    """Without a usable checkpoint a training starts over."""
    for folder in saved.iterdir():
        (folder / "checkpoint.json").unlink()
    found = find_checkpoint(saved, "manifest-1")
    trainer = fresh(llama)
    restore_checkpoint(found, trainer)
    assert (found.folder, trainer.progress.epoch, len(found.unusable)) == (None, 0, 2)


def test_another_manifests_checkpoints_are_not_used(saved: Path) -> None:
    """What was trained from other inputs is never gone on from."""
    found = find_checkpoint(saved, "manifest-2")
    assert found.folder is None
    assert all("another manifest" in why for why in found.unusable)


def test_only_the_last_two_are_kept(saved: Path, llama: Path) -> None:
    """Disk use does not grow with the epochs."""
    trainer: Any = fresh(llama)
    trainer.progress.epoch = 3
    save_checkpoint(saved, trainer, "manifest-1", ())
    assert sorted(path.name for path in saved.iterdir()) == ["epoch-0002", "epoch-0003"]
