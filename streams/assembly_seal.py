"""Sealing: a run becomes one revision of a trajectory, made of its raw lines without re-encoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from blake3 import blake3

from millstream.events import TrajectoryEnded
from millstream.streams.assembly_binding import bind
from millstream.streams.assembly_links import mend_links, with_agents
from millstream.streams.assembly_node import answers, asks, nodes
from millstream.streams.assembly_order import ordered
from millstream.streams.assembly_run import Run, gapless, missing_seqs
from millstream.trajectory import STATUS_OF, SealReason

_encode = msgspec.json.Encoder().encode
_SAID = {reason: f'"status":"{status}","reason":"{reason}"'.encode() for reason, status in STATUS_OF.items()}
"""Status and reason of a trajectory, as JSON."""


def whole(run: Run) -> bool:
    """Whether nothing is missing: every seq is there and no link dangles."""
    return gapless(run) and not (run.spans and mend_links(nodes(run.spans.values()), run.hung).broken)


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


def _verdict(asked: list[str], answered: list[str], end_reason: str) -> SealReason:
    """The reason of a whole run. One that was driven into a limit is complete even when its last call
    got no answer.
    """
    if end_reason == "crash":
        return "reported_crash"
    return (
        "complete"
        if end_reason == "limit" or asked == answered or set(answered).issuperset(asked)
        else "unanswered_call"
    )


def seal(
    trajectory_id: str,
    run: Run,
    reason: SealReason,
    origin: tuple[int, int],
    priced: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """The JSON of a `millstream.trajectory.Trajectory`; ``run.reason`` is set to the final reason. ``origin``: its
    partition and the mapping epoch. ``priced`` gives a line its cost.

    ``content_hash``: BLAKE3 (16 bytes, hex) over the lines in order, then status, reason and missing (the
    long part first: BLAKE3 is fast on what it is given in one piece from the start).
    """
    broken: tuple[str, ...] = ()
    if not (run.others or run.spans or run.disturbed):
        lane = run.lane
        seqs = range(len(lane)) if reason == "complete" else sorted(lane)
        lines = list(map(lane.__getitem__, seqs))
        asked, answered, end_reason = run.asked, run.answered, run.end_reason
    else:
        lines, asked, answered, end_reason, broken = _decoded(run)
    if priced is not None:
        lines = list(map(priced, lines))
    if reason == "complete":
        reason = _verdict(asked, answered, end_reason)
        missing = broken
    else:
        missing = broken + missing_seqs(run)
    run.reason = reason
    return _trajectory(trajectory_id, run, reason, missing, lines, origin)


def _decoded(run: Run) -> tuple[list[bytes], list[str], list[str], str, tuple[str, ...]]:
    """(lines in order, calls asked, calls answered, end reason, broken links), from the events again."""
    mended = mend_links(bind(with_agents(nodes(run.lines()), run.hung)), run.hung)
    listed = ordered(mended.nodes, run.hung)
    return (
        [node.raw for node in listed],
        [call for node in listed for call in asks(node.event)],
        [call for node in listed for call in answers(node.event)],
        next((node.event.reason for node in listed if type(node.event) is TrajectoryEnded), ""),
        mended.broken,
    )


def _trajectory(
    trajectory_id: str,
    run: Run,
    reason: SealReason,
    missing: tuple[str, ...],
    lines: Sequence[bytes],
    origin: tuple[int, int],
) -> bytes:
    what = b'%s,"missing":%s' % (_SAID[reason], _encode(missing) if missing else b"[]")
    events = b",".join(lines)
    tail = b'],"content_hash":"%b","evidence":{"first_log_ms":%d,"sealed_ms":%d,"duplicates":%d,"conflicts":%d,' % (
        blake3(events).update(what).hexdigest(16).encode(),
        run.first_ms,
        run.sealed_ms,
        run.duplicates,
        run.conflicts,
    )
    head = b'{"id":%b,"revision":%d,%b,"events":[' % (_encode(trajectory_id), run.revision, what)
    return b"".join((head, events, tail, b'"partition":%d},"mapping_epoch":%d}' % origin))


def reissued(body: bytes, trajectory_id: str, revision: int, number: int) -> bytes:
    """A sealed trajectory (what `seal` gave, of that id and revision) as revision ``number``, caused by a replay."""
    name = _encode(trajectory_id)
    head = b'{"id":%b,"revision":%d,' % (name, revision)
    assert body.startswith(head)
    end = body.rindex(b'},"mapping_epoch":')
    return b'{"id":%b,"revision":%d,%b,"cause":"replay"%b' % (name, number, body[len(head) : end], body[end:])
