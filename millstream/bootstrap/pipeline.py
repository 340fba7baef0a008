"""``millstream up``: every stage, projection and worker of a data directory in one loop.

The stages run in turn in one thread (SQLite commits are what costs); trainings and evaluations run in
child processes beside it, begun and ended by workers whose `step` never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.bootstrap.examining import register
from millstream.bootstrap.exporting import exporters
from millstream.bootstrap.joining import joiner
from millstream.bootstrap.judging import meter_judge
from millstream.bootstrap.parts import require
from millstream.bootstrap.patience import Patient, Worker
from millstream.bootstrap.policies import workers
from millstream.bootstrap.second_tries import missing, second_tries
from millstream.bootstrap.stages import alarming, assembling, buffering, check_rewards, grading, triggering, triggers
from millstream.errors import Unavailable
from millstream.partition import unslot
from millstream.ports import Gap, Log, Processor, Store
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.closing import close_open
from millstream.streams.driving import awaited
from millstream.streams.projection import Projector
from millstream.streams.runner import StageRunner
from millstream.topics import TELEMETRY, TRAJECTORIES, Topic

if TYPE_CHECKING:
    from millstream.bootstrap.monitor import Monitor
    from millstream.bootstrap.runtime import Runtime

BUSY_WAIT_S, IDLE_WAIT_S = 0.02, 0.05


class Pipeline:
    """The loop over stages, projections and workers. `run` may be called again after it ended."""

    def __init__(
        self,
        log: Log,
        store: Store,
        runners: Sequence[StageRunner],
        projectors: Sequence[Projector],
        workers: Sequence[Worker],
        monitor: Monitor | None = None,
    ) -> None:
        self.log = log
        self.store = store
        self.runners = runners
        self.projectors = projectors
        self.workers = [Patient(worker) for worker in workers]
        self.monitor = monitor
        self.moved: dict[str, int] = {runner.processor.name: 0 for runner in runners} | {"projected": 0}
        self._quiet = 0
        self._turned = threading.Condition()
        self._ended = False

    def accept_loss(self) -> list[Gap]:
        """Move every stage past what it can't read any more; the gaps, which `audit` lists from now on."""
        return [
            gap
            for runner in self.runners
            for place in runner.positions
            for gap in self.store.accept_loss(runner.processor.name, runner.partition, *unslot(place))
        ]

    def describe(self) -> str:
        """One line for people."""
        return "running " + ", ".join(self.moved)

    def step(self) -> bool:
        """One turn of everything; whether anything happened."""
        happened = False
        for runner in self.runners:
            count = runner.run_once()
            self.moved[runner.processor.name] += count
            happened = happened or count > 0
        for projector in self.projectors:
            count = projector.run_once()
            self.moved["projected"] += count
            happened = happened or count > 0
        for worker in self.workers:
            happened = worker.step() or happened
        if not happened:
            happened = sum(runner.tick_if_due() for runner in self.runners) > 0
        if self.monitor:
            self.monitor.turn(self._waits())
        return happened

    def _waits(self) -> dict[str, str]:
        """What those beside the stages wait for, '' for nothing."""
        buffers = {f"buffer {one.buffer.namespace}": one.waiting for one in self.projectors}
        return buffers | {type(one.worker).__name__.strip("_"): str(one.trouble or "") for one in self.workers}

    def left_open(self) -> dict[str, int]:
        """What waits for more, or for its timer: runs that are not sealed, groups that the buffer has not decided."""
        stages = [runner.processor for runner in self.runners]
        return {
            "trajectories": sum(one.open for one in stages if isinstance(one, Assembler)),
            "groups": sum(one.open for one in stages if isinstance(one, BufferingStage)),
        }

    @property
    def busy(self) -> bool:
        """Whether a training or an evaluation goes on."""
        return any(worker.busy for worker in self.workers)

    def run(self, stop: threading.Event, *, until_idle: bool = False, close_open: bool = False) -> Mapping[str, int]:
        """Run until ``stop`` is set or, with ``until_idle``, nothing is left to do (pending timers are
        not waited for). ``close_open`` fires them first. Returns records moved, by stage. Raises
        `Unavailable` when it is stopped while a stage can't go on, or idle while a worker or the buffer can't.
        """
        for runner in self.runners:
            runner.stop = stop
        closed: set[str] = set()
        while not stop.is_set():
            if self.step():
                continue
            self._tell()
            if self.busy:
                stop.wait(BUSY_WAIT_S)
            elif close_open and self.close_open(closed):
                continue
            elif until_idle:
                break
            else:
                self.log.wait(awaited(self.runners), IDLE_WAIT_S)
        for runner in self.runners:
            runner.close()
        if until_idle:
            self._tell_trouble()
        return self.moved

    def _tell_trouble(self) -> None:
        """Idle is not done while somebody waits for what is away. Raises `Unavailable`."""
        for worker in self.workers:
            if worker.trouble:
                raise worker.trouble
        for projector in self.projectors:
            if projector.waiting:
                raise Unavailable(f"the buffer waits, the log keeps what it lacks: {projector.waiting}")

    def settle(self) -> None:
        """Wait, beside a running `run`, until the stages have worked off all that is in the log now (long
        work of trainings and gates may go on). Raises `Unavailable` when the loop has ended.
        """
        with self._turned:
            # The turn that is under way may have begun before this call: wait for the one after it.
            wanted = self._quiet + 2
            while self._quiet < wanted and not self._ended:
                self._turned.wait()
        if self._ended:
            raise Unavailable("the pipeline has ended; its own error says why")

    def end(self) -> None:
        """Wake whoever waits in `settle`: nothing more will happen."""
        with self._turned:
            self._ended = True
            self._turned.notify_all()

    def _tell(self) -> None:
        with self._turned:
            self._quiet += 1
            self._turned.notify_all()

    def close_open(self, closed: set[str]) -> bool:
        """Append the next tick that seals open runs or closes open groups; False: nothing is open."""
        return close_open(self.log, [runner.processor for runner in self.runners], closed)


def build(runtime: Runtime) -> Pipeline:
    """The pipeline of a runtime; takes the lock of its data directory."""
    from millstream.adapters.lock import RunnerLock

    if any(plan.base is not None for plan in runtime.plans):
        require("training ([policy] base)", "train", "mlflow")
    if runtime.on_kafka:
        runtime.check_topics()
    lock = RunnerLock(runtime.loaded.data / "runner.lock").acquire()
    runtime.on_close(lock.release)
    log, store = runtime.log, runtime.store
    check_rewards(runtime)
    meter_judge(runtime)
    register(runtime)
    singles: list[Processor] = [
        *(buffering(runtime, plan) for plan in runtime.plans),
        *(alarming(runtime, plan) for plan in runtime.plans if plan.alarms.enabled),
        *(triggering(runtime, plan) for plan in runtime.plans if triggers(plan)),
    ]
    runners = [
        *(StageRunner(assembling(runtime), log, store, p, watch=runtime.monitor) for p in _partitions(log, TELEMETRY)),
        *(StageRunner(grading(runtime), log, store, p, watch=runtime.monitor) for p in _partitions(log, TRAJECTORIES)),
        *(StageRunner(one, log, store, every_partition=True, watch=runtime.monitor) for one in singles),
    ]
    projectors = [Projector(log, runtime.buffer(plan.namespace)) for plan in runtime.plans]
    again = second_tries(runtime)
    if runtime.monitor:
        buffers = [projector.buffer for projector in projectors]
        runtime.monitor.look_at(
            lambda: runners,
            buffers=lambda: {one.namespace: one.stats() for one in buffers},
            missing=lambda: missing(again),
            policies=True,
        )
    beside = [*workers(runtime), *exporters(runtime), *again, joiner(runtime)]
    return Pipeline(log, store, runners, projectors, beside, runtime.monitor)


def _partitions(log: Log, topic: Topic) -> range:
    return range(log.partitions(topic.name))
