"""Commands that change what counts as evidence: `regrade` and `recall`, wired to the graders and the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from millstream.bootstrap.policies import kept_gate
from millstream.console import regrade_diff
from millstream.console.regrade_diff import Plain, RegradeDiff
from millstream.deploy.rejudging import Rejudged, rejudge_all
from millstream.errors import SettingsError
from millstream.grade import Grade, GradeGiven
from millstream.graders import feedback
from millstream.graders.running import effective
from millstream.ledger import LedgerReader
from millstream.streams.grading import attempts_of
from millstream.streams.regrading import Progress, Regrading
from millstream.trajectory import Trajectory

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


@contextmanager
def regrading(runtime: Runtime, grader: str, since_ms: int) -> Iterator[Regrading]:
    """A regrade by one grader of the settings, alone on this data. Raises `SettingsError` for an unknown
    grader, for feedback (people give it, no grader) and while another regrade runs.
    """
    from millstream.adapters.children import Child
    from millstream.adapters.lock import RunnerLock
    from millstream.graders.loading import load_one

    if grader == feedback.NAME or grader.startswith(feedback.NAME + "."):
        raise SettingsError(f"{grader!r} is what people and outcomes say; there is nothing to grade again")
    graders = load_one(grader, runtime.loaded.settings.graders, runtime.loaded.root, Child)
    runtime.on_close(graders.close)
    lock = RunnerLock(runtime.loaded.data / "regrade.lock").acquire()
    try:
        recalls = LedgerReader(runtime.log).refresh().recalls
        yield Regrading(runtime.log, graders, since_ms=since_ms, recalls=recalls)
    finally:
        lock.release()


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
