"""Who grades again what a judge that was away could not: one worker of the process that grades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.bootstrap.evidence import alone
from millstream.graders.running import GraderSet
from millstream.streams.second_tries import SecondTries

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


def missing(workers: Sequence[SecondTries]) -> dict[str, int]:
    """How many grades wait for a second try, by grader."""
    return {name: count for worker in workers for name, count in worker.missing.items()}


def second_tries(runtime: Runtime) -> list[SecondTries]:
    """The worker, where a grader asks something outside and the settings have it tried again."""
    epochs = {grader.name: grader.epoch for grader in runtime.graders.graders if grader.outside}
    retry_s = runtime.loaded.settings.graders.retry_s
    if not epochs or not retry_s:
        return []

    @contextmanager
    def opened(name: str) -> Iterator[GraderSet]:
        with alone(runtime):
            graders = runtime.one_grader(name)
            try:
                yield graders
            finally:
                graders.close()

    made = SecondTries(runtime.log, epochs, opened, retry_s)
    runtime.on_close(made.close)
    return [made]
