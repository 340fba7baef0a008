"""Manifests: everything a training was made from, so that it can be explained and made again.

The id is the digest of the rest. A manifest holds nothing of the attempt (no token, no time), so a training that was
taken over, or made again, has the same one. The payloads lie beside it: a rebuild outlives the log's retention.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from millstream.codec import digest
from millstream.errors import MillstreamError
from millstream.events import Interface
from millstream.ledger import read_all
from millstream.ndjson import filled
from millstream.policy import TrainingRequested
from millstream.ports import Log
from millstream.rollout import Rollout, RolloutAdmitted, RolloutId
from millstream.topics import BUFFER_EVENTS

MANIFEST_FILE = "manifest.json"
PAYLOAD_FILE = "rollouts.ndjson.gz"


class ManifestEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rollout: what it is, what it was graded by, where the log has it (`buffer-events` offset)."""

    rollout_id: RolloutId
    trajectory_id: str
    revision: int
    content_hash: str
    reward: float
    group: str = ""
    task_id: str = ""
    split: str = ""
    split_key: str = ""
    policy_version: int | None = None
    grade_ids: tuple[str, ...] = ()
    grader_epochs: tuple[str, ...] = ()
    formula: str = ""
    admitted_at: int = -1


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All inputs of a training. `cut`: the log is needed up to these offsets (exclusive), by topic."""

    id: str = ""
    training_id: str
    lineage: str
    parent: int
    start_from: int | None = None
    algorithm: str
    settings: dict[str, Any]
    seed: int
    base: str
    champion: str
    tokenizer: str = ""
    template: str = ""
    interfaces: tuple[Interface, ...] = ()
    code: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    payload: str = ""
    rollouts: tuple[ManifestEntry, ...] = ()

    @property
    def grader_epochs(self) -> tuple[str, ...]:
        """Every grader epoch behind the rewards, sorted."""
        return tuple(sorted({epoch for entry in self.rollouts for epoch in entry.grader_epochs}))

    @property
    def formulas(self) -> tuple[str, ...]:
        """Every reward formula, sorted."""
        return tuple(sorted({entry.formula for entry in self.rollouts if entry.formula}))


def identified(manifest: Manifest) -> Manifest:
    """The manifest with its id: the digest of all its other fields."""
    bare = msgspec.structs.replace(manifest, id="")
    return msgspec.structs.replace(manifest, id=digest(msgspec.json.encode(bare, order="deterministic").decode()))


def admissions(log: Log, wanted: Sequence[RolloutId]) -> dict[RolloutId, tuple[int, RolloutAdmitted]]:
    """The admission of each wanted rollout with its offset in `buffer-events` (the last one, if it came twice)."""
    ids, found = set(wanted), {}
    for record in read_all(log, BUFFER_EVENTS.name):
        for line in filled(record.value):
            if b'"RolloutAdmitted"' in line:
                admitted = msgspec.json.decode(line, type=RolloutAdmitted)
                if admitted.rollout_id in ids:
                    found[admitted.rollout_id] = (record.offset, admitted)
    return found


def entry(rollout: Rollout, admitted: tuple[int, RolloutAdmitted] | None) -> ManifestEntry:
    """The line of a rollout."""
    offset, decision = admitted if admitted is not None else (-1, None)
    facts = rollout.facts
    return ManifestEntry(
        rollout_id=rollout.id,
        trajectory_id=rollout.trajectory.id,
        revision=rollout.trajectory.revision,
        content_hash=rollout.trajectory.content_hash,
        reward=rollout.reward,
        group=facts.group,
        task_id=facts.task_id,
        split=facts.split or "",
        split_key=facts.split_key,
        policy_version=facts.policy_version,
        grade_ids=decision.grade_ids if decision else (),
        grader_epochs=decision.grader_epochs if decision else (),
        formula=decision.formula if decision else "",
        admitted_at=offset,
    )


class Origin(Struct, frozen=True, kw_only=True):
    """What a manifest takes from outside the rollouts: hashes of the folders, versions of the code."""

    base: str
    champion: str
    tokenizer: str
    template: str
    code: dict[str, str]
    settings: dict[str, Any]


def make_manifest(
    request: TrainingRequested,
    rollouts: Sequence[Rollout],
    admitted: Mapping[RolloutId, tuple[int, RolloutAdmitted]],
    origin: Origin,
    payload: str,
) -> Manifest:
    """The manifest of a request. `payload`: the hash of the archive."""
    entries = tuple(entry(rollout, admitted.get(rollout.id)) for rollout in rollouts)
    interfaces = {msgspec.json.encode(rollout.facts.interface): rollout.facts.interface for rollout in rollouts}
    return identified(
        Manifest(
            training_id=request.id,
            lineage=request.lineage,
            parent=request.parent,
            start_from=request.start_from,
            algorithm=request.algorithm,
            settings=origin.settings,
            seed=request.seed,
            base=origin.base,
            champion=origin.champion,
            tokenizer=origin.tokenizer,
            template=origin.template,
            interfaces=tuple(interfaces[key] for key in sorted(interfaces)),
            code=origin.code,
            cut={BUFFER_EVENTS.name: 1 + max((line.admitted_at for line in entries), default=-1)},
            payload=payload,
            rollouts=entries,
        )
    )


def write_payload(folder: Path, rollouts: Sequence[Rollout]) -> str:
    """Archive rollouts as gzipped NDJSON; equal rollouts give equal bytes. Returns the SHA-256 of the text."""
    text = b"".join(msgspec.json.encode(rollout) + b"\n" for rollout in rollouts)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAYLOAD_FILE).write_bytes(gzip.compress(text, compresslevel=1, mtime=0))
    return hashlib.sha256(text).hexdigest()


def read_payload(path: Path, expected: str = "") -> list[Rollout]:
    """The rollouts of an archive, in order. Raises `MillstreamError` when it is not the one that was written."""
    text = gzip.decompress(path.read_bytes())
    if expected and hashlib.sha256(text).hexdigest() != expected:
        raise MillstreamError(f"{path} is not the archive of its manifest: the hash differs")
    return list(_lines(text))


def _lines(text: bytes) -> Iterator[Rollout]:
    decoder = msgspec.json.Decoder(Rollout)
    return (decoder.decode(line) for line in text.splitlines())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder. Raises `MillstreamError` when its id does not match its content."""
    path = folder / MANIFEST_FILE
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise MillstreamError(f"no manifest at {path}: {error}") from None
    if identified(manifest).id != manifest.id:
        raise MillstreamError(f"{path} was changed after it was written: its id does not match its content")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST_FILE).write_bytes(
        msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1)
    )
