"""Commands that change what counts as evidence: `regrade` and `recall`, wired to the graders and the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from millstream.bootstrap.policies import kept_gate
from millstream.console import recalled, regrade_diff
from millstream.console.impact import Impact
from millstream.console.regrade_diff import Plain, RegradeDiff
from millstream.deploy.recall import Target, lift_events, mends, recall_events
from millstream.deploy.rejudging import Rejudged, rejudge_all
from millstream.errors import SettingsError
from millstream.grade import Grade, GradeGiven
from millstream.graders import feedback
from millstream.graders.running import effective
from millstream.ledger import LedgerReader, append_policy_events
from millstream.ports import Log
from millstream.streams.grading import attempts_of
from millstream.streams.regrading import Progress, Regrading
from millstream.trajectory import Trajectory

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


LOCK = "regrade.lock"
"""Held by whoever regrades, in the data directory."""


@contextmanager
def alone(runtime: Runtime) -> Iterator[None]:
    """Nobody else regrades this data meanwhile. Raises `SettingsError` while somebody does."""
    from millstream.adapters.lock import RunnerLock, holder

    path = runtime.loaded.data / LOCK
    try:
        lock = RunnerLock(path).acquire()
    except SettingsError:
        raise SettingsError(
            f"pid {holder(path) or 'unknown'} regrades this data now: another `millstream regrade`, or a running `up` "
            "that grades what a judge had missed; try again when it is done"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def regrading(runtime: Runtime, grader: str, since_ms: int) -> Iterator[Regrading]:
    """A regrade by one grader of the settings, alone on this data. Raises `SettingsError` for an unknown
    grader, for feedback (people give it, no grader) and while another regrade runs.
    """
    if grader == feedback.NAME or grader.startswith(feedback.NAME + "."):
        raise SettingsError(f"{grader!r} is what people and outcomes say; there is nothing to grade again")
    graders = runtime.one_grader(grader)
    runtime.on_close(graders.close)
    with alone(runtime):
        recalls = LedgerReader(runtime.log).refresh().recalls
        yield Regrading(runtime.log, graders, since_ms=since_ms, recalls=recalls)


def running(runtime: Runtime) -> int | None:
    """The pid of the `up` that works on this data, or None: it grades new runs by the graders that it began with."""
    from millstream.adapters.lock import holder

    return None if runtime.on_kafka else holder(runtime.loaded.data / "runner.lock")


class Preview(Struct, frozen=True, kw_only=True):
    """What a regrade would change, and the gates' decisions that rest on the grader's other epochs."""

    diff: RegradeDiff
    gates: tuple[Rejudged, ...]


def preview(runtime: Runtime, work: Regrading, progress: Progress) -> Preview:
    """Grade without appending, and follow what would differ."""

    def new() -> Iterator[list[GradeGiven]]:
        for batch in work.grades():
            progress(work.report.regraded, len(work.wanted))
            yield from (given for _, given in batch)

    def gold(t: Trajectory) -> Grade:
        return effective(attempts_of(work.graders, [t])[0][0]).grade

    name, epoch = work.grader.name, work.grader.epoch
    plains = [Plain(plan.lineage, plan.namespace, plan.reward) for plan in runtime.plans]
    ledger = LedgerReader(runtime.log).refresh()
    return Preview(
        diff=regrade_diff.diff(runtime.log, name, epoch, new(), plains, work.recalls),
        gates=tuple(rejudge_all(ledger, name, epoch, lambda archive: kept_gate(runtime, archive), gold)),
    )


class Recalled(Struct, frozen=True, kw_only=True):
    """A recall, made (``id`` undoes it) or only weighed (``written`` False): what is taken back, what rests
    on it, what mends it. ``stood``: all of it was recalled before. ``grades``: how many, by epoch.
    """

    id: str
    target: Target
    reason: str
    written: bool
    stood: bool
    grades: dict[str, int]
    impact: Impact
    mends: tuple[str, ...]


def recall(runtime: Runtime, target: Target, reason: str, *, dry_run: bool) -> Recalled:
    """Take evidence back, unless ``dry_run``: events for the buffer to follow, and marks on every version and
    training that learned from it.
    """
    log = runtime.log
    ledger = LedgerReader(log).refresh()
    found = recalled.rests_on(log, target.grader, target.epochs, target.span, target.trajectory_id)
    stood = target.stands(ledger)
    recall_id = ""
    if not stood and not dry_run:
        lineages = list(dict.fromkeys([*(plan.lineage for plan in runtime.plans), *ledger.lineages]))
        recall_id = _write(log, lineages, target, found.impact, reason)
        late = recalled.rests_on(log, target.grader, target.epochs, target.span, target.trajectory_id)
        if late.impact.trainings != found.impact.trainings:
            _write(log, lineages, target, late.impact, reason, recall_id)
    marked = [version.version for version in found.impact.versions]
    return Recalled(
        id=recall_id,
        target=target,
        reason=reason,
        written=not stood and not dry_run,
        stood=stood,
        grades=found.grades,
        impact=found.impact,
        mends=tuple(mends(target, found.impact.champions, marked)),
    )


def _write(log: Log, lineages: Sequence[str], target: Target, found: Impact, reason: str, recall_id: str = "") -> str:
    """Append a recall, one event a lineage; its id. ``recall_id``: of the recall that this adds to."""
    versions: dict[str, list[int]] = {}
    trainings: dict[str, list[str]] = {}
    for version in found.versions:
        versions.setdefault(version.lineage, []).append(version.version)
    for training in found.trainings:
        trainings.setdefault(training.lineage, []).append(training.training_id)
    events = recall_events(lineages, target, versions, trainings, reason)
    if recall_id:
        events = [structs.replace(event, recall_id=recall_id) for event in events]
    append_policy_events(log, events)
    return events[0].recall_id


def undo(runtime: Runtime, recall_id: str, reason: str) -> None:
    """Let a recall go that was a mistake. Raises `SettingsError` when none of that id stands."""
    ledger = LedgerReader(runtime.log).refresh()
    lineages = list(dict.fromkeys([*(plan.lineage for plan in runtime.plans), *ledger.lineages]))
    append_policy_events(runtime.log, lift_events(ledger, lineages, recall_id, reason))


def recall_target(
    log: Log, named: str, epochs: Sequence[str], span: tuple[int, int] = (0, 0), *, run: bool = False
) -> Target:
    """What a name means: a grader that has graded (all its epochs, or those given; ``span``: grades known
    since and before, 0 for whenever), else a run. Raises `SettingsError` naming what is known.
    """
    known = recalled.epochs_of(log, named)
    if known and not run:
        for epoch in epochs:
            if epoch not in known:
                raise SettingsError(
                    f"grader {named!r} gave no grade in epoch {epoch!r}; its epochs: {', '.join(known)}"
                )
        return Target(grader=named, epochs=tuple(epochs) or known, since_ms=span[0], until_ms=span[1])
    graders = ", ".join(recalled.graders_in(log)) or "none yet"
    if epochs or any(span):
        raise SettingsError(
            f"--epoch, --since and --until are for graders, and {named!r} has not graded; those that have: {graders}"
        )
    if not recalled.is_run(log, named):
        raise SettingsError(f"{named!r} is no run in the log and no grader that has graded; those that have: {graders}")
    return Target(trajectory_id=named)
