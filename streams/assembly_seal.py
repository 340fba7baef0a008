"""Sealing: a run becomes one revision of a trajectory, made of its raw lines without re-encoding."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import cast

import msgspec

from millstream.streams.assembly_links import mend_links
from millstream.streams.assembly_order import ordered
from millstream.streams.assembly_run import ENDED, RESPONSE, RESULT, Entry, Run, gapless, missing_seqs
from millstream.trajectory import STATUS_OF, Evidence, SealReason

_encode = msgspec.json.encode


def whole(run: Run) -> bool:
    """Whether nothing is missing: every seq is there and no link dangles."""
    return gapless(run) and not (run.linked and mend_links(run.entries.values()).broken)


def lacking(run: Run) -> SealReason:
    """Why a run whose patience is over is not whole."""
    return "dangling_link" if run.linked and gapless(run) else "gap_timeout"


def amendable(run: Run) -> bool:
    """Whether an event that comes after the sealing can still change the trajectory. A sequenced run
    that had every seq it was to have can't; one with links may always get another.
    """
    if run.linked:
        return run.reason not in ("complete", "overflow", "reported_crash")
    return run.reason in ("idle_timeout", "max_age", "gap_timeout")


def verdict(entries: Sequence[Entry]) -> SealReason:
    """The reason of a whole run, from its events in order. A run that was driven into a limit is
    complete even when its last call got no answer.
    """
    end = next((entry.reason for entry in entries if entry.kind == ENDED), "")
    if end == "crash":
        return "reported_crash"
    if end == "limit":
        return "complete"
    answered = {entry.calls[0] for entry in entries if entry.kind == RESULT}
    for entry in entries:
        if entry.kind == RESPONSE and not answered.issuperset(entry.calls):
            return "unanswered_call"
    return "complete"


def seal(trajectory_id: str, run: Run, reason: SealReason, partition: int, mapping_epoch: int) -> bytes:
    """The JSON of a `millstream.trajectory.Trajectory`; ``run.reason`` is set to the final reason.

    ``content_hash``: SHA-256 (16 bytes, hex) over status, reason, missing and the lines in order.
    """
    missing: tuple[str, ...] = ()
    entries: Sequence[Entry] = tuple(run.entries.values())
    if run.linked:
        mended = mend_links(entries)
        entries, missing = mended.entries, mended.broken
    entries = ordered(entries)
    if reason == "complete":
        reason = verdict(entries)
    else:
        missing += missing_seqs(run)
    run.reason = reason
    return _trajectory(trajectory_id, run, missing, entries, partition, mapping_epoch)


def _trajectory(
    trajectory_id: str, run: Run, missing: tuple[str, ...], entries: Sequence[Entry], partition: int, mapping_epoch: int
) -> bytes:
    reason = cast("SealReason", run.reason)
    evidence = Evidence(
        first_log_ms=run.first_ms,
        sealed_ms=run.sealed_ms,
        duplicates=run.duplicates,
        conflicts=run.conflicts,
        partition=partition,
    )
    body = b'"status":"%s","reason":"%s","missing":%s,"events":[%s]' % (
        STATUS_OF[reason].encode(),
        reason.encode(),
        _encode(missing),
        b",".join([entry.raw for entry in entries]),
    )
    return b'{"id":%s,"revision":%d,"content_hash":"%s",%s,"evidence":%s,"mapping_epoch":%d}' % (
        _encode(trajectory_id),
        run.revision,
        sha256(body).hexdigest()[:32].encode(),
        body,
        _encode(evidence),
        mapping_epoch,
    )
