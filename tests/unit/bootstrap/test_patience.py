"""Workers that wait while something is away, and the loop around them."""

from __future__ import annotations

import threading

import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.bootstrap.patience import FIRST_PAUSE_S, LONGEST_PAUSE_S, Patient
from millstream.bootstrap.pipeline import Pipeline
from millstream.errors import Conflict, PositionLost, Unavailable


class Scripted:
    """A worker whose steps return or raise what a list says; False for ever after."""

    busy = False

    def __init__(self, *script):
        self.script = list(script)
        self.steps = 0

    def step(self):
        self.steps += 1
        answer = self.script.pop(0) if self.script else False
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    """Seconds, set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def test_a_worker_in_trouble_is_stepped_again_later_and_later():
    """Each failure doubles the pause up to the longest; a step that goes through ends the trouble."""
    clock = Clock()
    worker = Scripted(*[Unavailable("MLflow is away")] * 8, True)
    patient = Patient(worker, clock)
    pauses = []
    while worker.script:
        before = worker.steps
        happened = patient.step()
        if worker.steps > before and patient.trouble:
            pauses.append(0.0)
        if not happened:
            clock.now += FIRST_PAUSE_S / 2
            pauses[-1] += FIRST_PAUSE_S / 2
    assert patient.trouble is None
    expected = [min(FIRST_PAUSE_S * 2**n, LONGEST_PAUSE_S) for n in range(8)]
    assert pauses == pytest.approx(expected, abs=FIRST_PAUSE_S)


def test_a_conflict_is_waited_out_and_a_lost_position_is_not():
    """Another writer may be faster; a lost position needs a person."""
    assert Patient(Scripted(Conflict("moved"))).step() is False
    with pytest.raises(PositionLost):
        Patient(Scripted(PositionLost("gone"))).step()


def test_an_idle_loop_with_a_worker_in_trouble_says_so_at_the_end(tmp_path):
    """`--until-idle` works off what it can, then raises what the worker waits for; a stopped loop just ends."""
    opened = open_sqlite(tmp_path / "log.db")
    working = Scripted(True, True)
    broken = Scripted(Unavailable("MLflow is away"), Unavailable("MLflow is away"))
    loop = Pipeline(opened.log, opened.store, [], [], [broken, working])
    with pytest.raises(Unavailable, match="MLflow is away"):
        loop.run(threading.Event(), until_idle=True)
    assert working.script == []
    stopped = threading.Event()
    stopped.set()
    assert loop.run(stopped) == {"projected": 0}
    opened.close()
