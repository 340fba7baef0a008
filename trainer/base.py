"""The base of a lineage: version 1, champion from the start."""

from __future__ import annotations

from pathlib import Path

from millstream.codec import digest
from millstream.errors import Conflict
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import PolicyPromoted, PolicyRegistered
from millstream.ports import Log, Tracker
from millstream.trainer.folders import check_policy, content_hash, template_hash, tokenizer_hash

BASE = "base"
"""What a base has in place of a training id."""


def ensure_base(log: Log, tracker: Tracker, lineage: str, base_dir: Path) -> int:
    """Register a base directory and make it champion, unless the lineage has versions; its version.

    May be called any number of times by any number of processes. Raises `SettingsError` when the directory is no
    causal LM, `Conflict` when the registry already numbers versions that the log does not know, `Unavailable`.
    """
    versions = LedgerReader(log).refresh().lineage(lineage).versions
    if versions:
        return min(versions)
    check_policy(base_dir)
    found = content_hash(base_dir)
    version = tracker.registered(lineage, BASE)
    run_id = ""
    if version is None:
        tags = {"training_id": BASE, "content_hash": found[:16], "algorithm": BASE}
        run_id = tracker.start(lineage, BASE, {"base": str(base_dir)}, {"training_id": BASE})
        tracker.register(lineage, run_id, base_dir, tags)
        tracker.finish(run_id, "FINISHED")
        version = tracker.registered(lineage, BASE)
    if version != 1:
        raise Conflict(
            f"the registry numbers the base of {lineage!r} {version}, not 1: it belongs to another log; "
            "give [storage] tracking a registry of its own, or another [policy] lineage"
        )
    registered = PolicyRegistered(
        id=digest("registered", lineage, version),
        lineage=lineage,
        version=version,
        uri=tracker.place(lineage, version),
        training_id=BASE,
        run_id=run_id,
        content_hash=found,
    )
    promoted = PolicyPromoted(
        id=digest("promoted", lineage, version, "bootstrap"),
        lineage=lineage,
        version=version,
        expected_champion=None,
        reason="bootstrap",
        by="bootstrap",
    )
    append_policy_events(log, [registered, promoted])
    return version


def interface_parts(folder: Path) -> tuple[str, str]:
    """(tokenizer hash, chat-template hash) of a policy folder: what `TrajectoryStarted.interface` tells of it."""
    return tokenizer_hash(folder), template_hash(folder)
