"""Driving several stages from one thread. `millstream up` has workers beside them and a loop of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from millstream.ports import Log
from millstream.streams.runner import StageRunner

WAIT_S = 0.5
"""How long to wait for news before looking at the timers again."""


def drive(runners: Sequence[StageRunner], log: Log, stop: threading.Event, *, until_idle: bool = False) -> None:
    """Run the stages in turn until ``stop`` is set or, with ``until_idle``, nothing waits in any input
    (pending timers are not waited for). Raises what a stage raises; leaves snapshots after a clean stop.
    """
    while not stop.is_set():
        if step(runners):
            continue
        if until_idle:
            break
        log.wait(awaited(runners), patience(runners, log))
    for runner in runners:
        runner.close()


def step(runners: Sequence[StageRunner]) -> int:
    """One turn of every stage; how many records and ticks it moved (0: idle)."""
    done = sum(runner.run_once() for runner in runners)
    return done or sum(runner.tick_if_due() for runner in runners)


def awaited(runners: Sequence[StageRunner]) -> dict[str, int]:
    """The least position of each input place over all stages: a record at or past one is news."""
    places: dict[str, int] = {}
    for runner in runners:
        for place, offset in runner.positions.items():
            places[place] = min(offset, places.get(place, offset))
    return places


def patience(runners: Sequence[StageRunner], log: Log) -> float:
    """How long to wait for news: until the next timer is due, `WAIT_S` at most."""
    due = [d for runner in runners if (d := runner.processor.deadline_ms()) is not None]
    left = (min(due) - log.now_ms()) / 1000 if due else WAIT_S
    return min(WAIT_S, max(0.001, left))
