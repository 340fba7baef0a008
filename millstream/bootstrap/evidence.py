"""Commands that change what counts as evidence: `regrade` and `recall`, wired to the graders and the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import SettingsError
from millstream.graders import feedback
from millstream.ledger import LedgerReader
from millstream.streams.regrading import Regrading

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
