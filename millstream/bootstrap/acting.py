"""Workers that act for the whole cluster, one process at a time: `train` and `gate`.

They keep nothing but what the ledger says; their long work runs in child processes beside the loop. A process
that loses its turn finishes what it has begun: a claim says whose a training is, and a decision names the
champion it expects.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from millstream.bootstrap.patience import Patient, Worker
from millstream.errors import MillstreamError, Stuck, Unavailable
from millstream.partition import slot
from millstream.topics import POLICY_EVENTS

if TYPE_CHECKING:
    from millstream.bootstrap.monitor import Monitor
    from millstream.ports import Log

BUSY_WAIT_S: Final = 0.05
IDLE_WAIT_S: Final = 0.5
LOOK_S: Final = 5.0
logger = logging.getLogger(__name__)


class Turn(Protocol):
    """Whether it is this process that acts."""

    trouble: MillstreamError | None

    @property
    def leads(self) -> bool:
        """Whether it is."""
        ...


def act(
    log: Log,
    make: Callable[[], Sequence[Worker]],
    turn: Turn,
    stop: threading.Event,
    monitor: Monitor | None = None,
    look: Callable[[], object] = lambda: None,
) -> None:
    """Step the workers while it is our turn, until ``stop`` is set. They are made when it first is. ``look`` is
    called every `LOOK_S` and raises where we must not go on. Raises what a person has to see to.
    """
    workers: list[Patient] = []
    looked = time.monotonic()
    while not stop.is_set():
        if turn.trouble:
            raise turn.trouble
        if time.monotonic() - looked > LOOK_S:
            _look(look)
            looked = time.monotonic()
        if turn.leads and not workers:
            workers = [Patient(worker) for worker in make()]
        happened = [worker.step() for worker in workers if turn.leads or worker.busy]
        if monitor:
            monitor.turn({type(one.worker).__name__: str(one.trouble or "") for one in workers})
        if any(happened):
            continue
        if not turn.leads or any(worker.busy for worker in workers):
            stop.wait(BUSY_WAIT_S)
        else:
            _wait(log)


def _look(look: Callable[[], object]) -> None:
    try:
        look()
    except Stuck:
        raise
    except Unavailable as error:
        logger.warning("%s; trying again", error)


def _wait(log: Log) -> None:
    try:
        end = log.bounds(POLICY_EVENTS.name)[1]
    except Unavailable:
        return
    log.wait({slot(POLICY_EVENTS.name, 0): end}, IDLE_WAIT_S)
