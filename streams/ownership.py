"""The partitions that a worker owns: a runner for each, all driven by one thread.

Who owns what is decided elsewhere (a consumer group) and told by `assigned` and `revoked`, from any thread.
A revoked partition leaves its snapshot and its memory goes; an owner that was overtaken is stopped by the
store's fence.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from millstream.errors import Stuck, Unavailable
from millstream.partition import unslot
from millstream.ports import Log
from millstream.streams.delivered import Delivered
from millstream.streams.driving import awaited, patience
from millstream.streams.inbox import Place
from millstream.streams.runner import StageRunner

logger = logging.getLogger(__name__)

GATHER_S: Final = 0.02
"""After a group is committed: how long the next one gathers."""
GATHER_BYTES: Final = 256 << 10
OVERDUE_S: Final = 3.0
"""How long a partition may bring nothing, although it holds something, before the log is read instead."""
LEAVE_S: Final = 30.0
"""How long a revoked partition may take to leave its snapshot."""

Make = Callable[[int], Sequence[StageRunner]]
"""The runners of a partition; several where several stages share a worker."""


class Ownership:
    """``make``: the runners of a partition. ``delivered``: where its records come from; None: the runners
    read the log themselves. ``turn`` is called each time round and says how much it moved.
    """

    def __init__(
        self,
        make: Make,
        log: Log,
        delivered: Delivered | None,
        stop: threading.Event,
        *,
        turn: Callable[[], int] = lambda: 0,
    ) -> None:
        self.make = make
        self.log = log
        self.delivered = delivered
        self.stop = stop
        self.turn = turn
        self.moved = 0
        """Records fed by this worker so far."""
        self._runners: dict[int, Sequence[StageRunner]] = {}
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], Future[None]]] = queue.SimpleQueue()
        self._idle: dict[Place, tuple[int, float]] = {}

    @property
    def runners(self) -> list[StageRunner]:
        """Those of the partitions owned now."""
        return [runner for runners in list(self._runners.values()) for runner in runners]

    def assigned(self, partitions: Iterable[int]) -> None:
        """These are ours, and no others."""
        wanted = frozenset(partitions)
        self._order(partial(self._keep, wanted))

    def revoked(self, partitions: Iterable[int]) -> None:
        """These are not ours any more; returns when they have left their snapshots, or after `LEAVE_S`."""
        gone = frozenset(partitions)
        for partition in gone & self._runners.keys():
            for runner in self._runners[partition]:
                runner.stop.set()
        try:
            self._order(partial(self._leave, gone)).result(LEAVE_S)
        except TimeoutError:
            logger.warning("partitions %s have not left in %.0f s; their new owner takes them", sorted(gone), LEAVE_S)

    def end(self) -> None:
        """Stop, also where a runner waits for something; any thread."""
        self.stop.set()
        for runner in self.runners:
            runner.stop.set()

    def _order(self, act: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        if self.stop.is_set():
            done.set_result(None)
        else:
            self._orders.put((act, done))
        return done

    def _obey(self) -> None:
        while not self._orders.empty():
            act, done = self._orders.get()
            try:
                act()
            finally:
                done.set_result(None)

    def _keep(self, wanted: frozenset[int]) -> None:
        self._leave(frozenset(self._runners.keys() - wanted))
        for partition in sorted(wanted - self._runners.keys()):
            runners = self.make(partition)
            if self.delivered:
                self.delivered.open(_places(runners))
                for runner in runners:
                    runner.read = self.delivered.read
            self._runners[partition] = runners

    def _leave(self, gone: frozenset[int]) -> None:
        for partition in sorted(gone & self._runners.keys()):
            runners = self._runners.pop(partition)
            if self.delivered:
                self.delivered.close(_places(runners))
            for runner in runners:
                runner.stop.set()
                try:
                    runner.close()
                except Stuck:
                    raise
                except Unavailable as error:
                    logger.warning("%s:%d leaves no snapshot: %s", runner.processor.name, partition, error)

    def run(self) -> None:
        """Drive the runners until ``stop`` is set; then leave snapshots. Raises what a stage raises."""
        try:
            while not self.stop.is_set():
                self._obey()
                turned = self.turn()
                if self._step():
                    self._gather()
                elif not turned:
                    self._await()
        except BaseException:
            self.stop.set()
            raise
        finally:
            self.stop.set()
            self._obey()
        self._leave(frozenset(self._runners))

    def _step(self) -> int:
        """One turn of every runner; how many records and ticks it moved."""
        done = sum(map(self._run_once, self.runners))
        self.moved += done
        return done or sum(runner.tick_if_due() for runner in self.runners)

    @staticmethod
    def _run_once(runner: StageRunner) -> int:
        try:
            return runner.run_once()
        except Unavailable:
            if runner.stop.is_set():  # revoked while it waited for something: its new owner goes on
                return 0
            raise

    def _gather(self) -> None:
        if self.delivered and self.delivered.waiting_bytes < GATHER_BYTES:
            self.stop.wait(GATHER_S)

    def _await(self) -> None:
        timeout_s = patience(self.runners, self.log)
        if self.delivered is None:
            if self._runners:
                self.log.wait(awaited(self.runners), timeout_s)
            else:
                self.stop.wait(timeout_s)
        elif not self.delivered.wait(timeout_s):
            self._look_for_overdue(self.delivered)

    def _look_for_overdue(self, delivered: Delivered) -> None:
        now = time.monotonic()
        for runner in self.runners:
            for name, offset in runner.positions.items():
                place = unslot(name)
                stands, since = self._idle.get(place, (-1, now))
                if stands != offset:
                    self._idle[place] = (offset, now)
                elif now - since >= OVERDUE_S:
                    self._idle[place] = (offset, now)
                    delivered.overdue(place)


def _places(runners: Sequence[StageRunner]) -> list[Place]:
    return [unslot(name) for runner in runners for name in runner.positions]
