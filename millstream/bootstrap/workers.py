"""``millstream worker STAGE``: one stage on Kafka, in as many processes as it has partitions.

`assemble` and `grade` own partitions of their input and are handed its records by Faust. `buffer` and
`trigger` are the one writer of a topic, `train` and `gate` act for the whole cluster: of each, one process
works, the owner of `policy-events`, and others stand by. What a worker knows is in the store and the log;
a process that is killed costs the time until its group notices.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from millstream.bootstrap.acting import act
from millstream.bootstrap.examining import register
from millstream.bootstrap.exporting import exporters
from millstream.bootstrap.instances import instance_of
from millstream.bootstrap.joining import joiner
from millstream.bootstrap.judging import meter_judge
from millstream.bootstrap.parts import require
from millstream.bootstrap.patience import Patient, Worker
from millstream.bootstrap.policies import judges, trainers
from millstream.bootstrap.second_tries import missing, second_tries
from millstream.bootstrap.stages import alarming, assembling, buffering, check_rewards, grading, triggering, triggers
from millstream.errors import SettingsError, Stuck, Unavailable
from millstream.partition import unslot
from millstream.ports import Gap, Processor, Record
from millstream.streams.delivered import Delivered
from millstream.streams.ownership import Ownership
from millstream.streams.poison import DeadShare
from millstream.streams.projection import Projector
from millstream.streams.runner import FIRST_PAUSE_S, LONGEST_PAUSE_S, Limits, StageRunner
from millstream.topics import POLICY_EVENTS, TELEMETRY, TRAJECTORIES

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime

logger = logging.getLogger(__name__)
LIMITS: Final = Limits(commit_bytes=4 << 20, commit_s=0.05)


class StageMember:
    """A stage's share of a consumer group. ``every``: one process does it all."""

    def __init__(self, runtime: Runtime, stage: str) -> None:
        self.runtime = runtime
        self.stage = stage
        self.every = stage in ("buffer", "trigger")
        self.topic = {"assemble": TELEMETRY, "grade": TRAJECTORIES}.get(stage, POLICY_EVENTS).name
        workers = runtime.loaded.settings.workers
        self.delivered = None if self.every else Delivered(runtime.log.read, workers.memory_bytes)
        self.stop = threading.Event()
        self._projector = Projector(runtime.log, runtime.buffer()) if stage == "buffer" else None
        self._again = second_tries(runtime) if stage == "grade" else []
        self._besides = [Patient(worker) for worker in self._beside()]
        self.ownership = Ownership(self._runners, runtime.log, self.delivered, self.stop, turn=self._turn)
        self._look()

    def _beside(self) -> Sequence[Worker]:
        """What one process of a stage does beside it."""
        if self.stage == "buffer":
            return [*exporters(self.runtime), joiner(self.runtime)]
        return self._again

    @property
    def _leads(self) -> bool:
        """Whether that is this process: the owner of the stage, or of its first partition."""
        return any(self.every or runner.partition == 0 for runner in self.ownership.runners)

    def _processors(self) -> list[Processor]:
        runtime, plan = self.runtime, self.runtime.plans[0]
        if self.stage == "assemble":
            return [assembling(runtime)]
        if self.stage == "grade":
            return [grading(runtime)]
        if self.stage == "buffer":
            return [buffering(runtime, plan)]
        alarms: list[Processor] = [alarming(runtime, plan)] if plan.alarms.enabled else []
        return [*alarms, triggering(runtime, plan)] if triggers(plan) else alarms

    def _runners(self, partition: int) -> list[StageRunner]:
        runtime, workers = self.runtime, self.runtime.loaded.settings.workers
        made = []
        for processor in self._processors():
            runner = StageRunner(
                processor,
                runtime.log,
                runtime.store,
                partition,
                every_partition=self.every,
                limits=LIMITS,
                watch=runtime.monitor,
            )
            runner.dead = DeadShare(workers.max_dead_share, workers.dead_window)
            made.append(runner)
        return made

    def _look(self) -> None:
        monitor = self.runtime.monitor
        if monitor and self.stage == "buffer":
            buffer = self.runtime.buffer()
            monitor.look_at(lambda: self.ownership.runners, buffers=lambda: {buffer.namespace: buffer.stats()})
        elif monitor:
            monitor.look_at(lambda: self.ownership.runners, missing=lambda: missing(self._again) if self._leads else {})

    def _turn(self) -> int:
        moved = 0
        if self._leads:  # else it is another process's turn
            moved = sum(one.step() for one in self._besides)
            moved += self._projector.run_once() if self._projector else 0
        if self.runtime.monitor:
            waits = {"project": self._projector.waiting} if self._projector else {}
            self.runtime.monitor.turn(waits)
        return moved

    def assigned(self, partitions: Iterable[int]) -> None:
        """These partitions are ours, and no others."""
        self.ownership.assigned(partitions)

    def revoked(self, partitions: Iterable[int]) -> None:
        """These are not ours any more."""
        self.ownership.revoked(partitions)

    def positions(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Where the store says that reading goes on; the beginning where it knows of nothing."""
        if self.every:
            return {}
        try:
            told = self.runtime.store.positions()
        except Unavailable:
            return {}  # the runner reads from the log what is not brought
        known = {one.partition: one.offset for one in told if (one.stage, one.topic) == (self.stage, self.topic)}
        return {partition: known.get(partition, 0) for partition in partitions}

    def deliver(self, record: Record) -> None:
        """A record of one of our partitions."""
        if self.delivered:
            self.delivered.put(record)

    @property
    def full(self) -> bool:
        """Whether as much waits as may."""
        return self.delivered is not None and self.delivered.full

    def run(self) -> None:
        """Work until `end`."""
        self.ownership.run()

    def end(self) -> None:
        """Make `run` return."""
        self.ownership.end()

    def accept_loss(self) -> list[Gap]:
        """Move the stage past what it can't read any more, in all its partitions."""
        log, store = self.runtime.log, self.runtime.store
        partitions = [0] if self.every else range(log.partitions(self.topic))
        return [
            gap
            for partition in partitions
            for runner in self._runners(partition)
            for place in runner.positions
            for gap in store.accept_loss(runner.processor.name, runner.partition, *unslot(place))
        ]


def run_worker(
    runtime: Runtime, stage: str, *, instance: str = "", accept_loss: Callable[[Gap], None] | None = None
) -> int:
    """Work until SIGTERM or SIGINT; how many records it fed. ``accept_loss`` is told each gap that is accepted
    first. Raises `SettingsError`, `PositionLost` and whatever else a person has to see to.
    """
    if not runtime.on_kafka:
        raise SettingsError(
            f'`millstream worker {stage}` works on Kafka ([storage] log = "kafka://HOST:9092"); on the embedded '
            "log `millstream up` runs every stage"
        )

    def check_format() -> None:
        """Before partitions are taken from those who can work on them."""
        runtime.store.format()

    if not _all_there(runtime.check_topics, check_format):
        return 0
    if stage in ("train", "gate"):
        _act(runtime, stage, instance)
        return 0
    return _belong(runtime, stage, instance, accept_loss)


def _all_there(*asked: Callable[[], object]) -> bool:
    """Wait until everything that is asked answers; False when we are told to end before. Raises `Stuck`."""
    stop = threading.Event()
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        for ask in asked:
            _wait_for(ask, stop)
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    return not stop.is_set()


def _wait_for(ask: Callable[[], object], stop: threading.Event) -> None:
    pause = FIRST_PAUSE_S
    while not stop.is_set():
        try:
            ask()
        except Stuck:
            raise
        except Unavailable as error:
            logger.warning("%s; trying again in %.1f s", error, pause)
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        else:
            return


def _act(runtime: Runtime, stage: str, instance: str) -> None:
    require("training ([policy] base)", "train", "mlflow")
    from millstream.adapters.kafka_cluster import Cluster
    from millstream.adapters.kafka_membership import Membership

    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    who = instance_of(runtime, stage, instance)
    session_s = runtime.loaded.settings.workers.session_s
    turn = Membership(Cluster.of(runtime.loaded), f"millstream-{stage}", POLICY_EVENTS.name, who, session_s)
    runtime.on_close(turn.close)
    make = trainers if stage == "train" else judges
    if runtime.monitor:
        runtime.monitor.look_at(list, policies=stage == "gate")
    act(runtime.log, lambda: make(runtime), turn, stop, runtime.monitor, runtime.store.format)


def _belong(runtime: Runtime, stage: str, instance: str, accept_loss: Callable[[Gap], None] | None) -> int:
    if stage == "trigger" and not any(triggers(plan) or plan.alarms.enabled for plan in runtime.plans):
        raise SettingsError(
            "nothing to do: no training is ever asked for ([policy] base is empty or [trigger] enabled is off), and "
            "[alarms] enabled is off"
        )
    if stage == "grade":
        check_rewards(runtime)
        meter_judge(runtime)
        register(runtime)
    require("a worker", "faust")
    from millstream.adapters import faust
    from millstream.adapters.kafka_cluster import Cluster

    member = StageMember(runtime, stage)
    if accept_loss:
        for gap in member.accept_loss():
            accept_loss(gap)
    workers = runtime.loaded.settings.workers
    cluster = Cluster.of(runtime.loaded)
    group = faust.Group(
        name=cluster.topic(f"millstream-{stage}"),
        topic=member.topic,
        instance=instance_of(runtime, stage, instance),
        folder=runtime.loaded.data / "faust",
        session_s=workers.session_s,
        poll_s=workers.poll_s,
    )
    faust.run(cluster, group, member)
    return member.ownership.moved
