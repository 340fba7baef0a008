"""The control arm: the same training on the same rollouts, selected at random instead of by reward.

It must not rise: whatever the learner gains over it, the reward taught.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from millstream.deploy.remote import Caller
from millstream.errors import MillstreamError
from millstream.trainer.manifest import MANIFEST_FILE, PAYLOAD_FILE, identified, read_manifest, write_manifest
from millstream.trainer.orders import WorkOrder, WorkResult


def train_control(caller: Caller, training: Path, folder: Path, base: str) -> str:
    """Train from ``base`` on the payload of a finished training; the folder of the resulting policy.

    Raises `MillstreamError` when the training fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(training / PAYLOAD_FILE, folder / PAYLOAD_FILE)
    manifest = read_manifest(training)
    options = {**manifest.settings.get("options", {}), "selection": "random"}
    write_manifest(folder, identified(replace(manifest, settings={**manifest.settings, "options": options})))
    order = WorkOrder(folder=str(folder), start=base, champion=base)
    result = msgspec.json.decode(caller.call("train", msgspec.json.encode(order)), type=WorkResult)
    if result.failure:
        raise MillstreamError(f"the control arm in {folder} ({MANIFEST_FILE}): {result.failure}")
    return result.model
