"""The demo: the whole loop on one machine, on tasks that are generated and said to be.

Three things go on side by side: the learner (its rounds of practice; trainings are asked for by the
stream, judged by the gate), the lineage with the hackable reward, and the measurements on the report set.
The pipeline is the one of `millstream up`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from millstream.bootstrap import Runtime
from millstream.bootstrap.pipeline import Pipeline
from millstream.bootstrap.policies import interface_of, training_folder
from millstream.codec import digest
from millstream.errors import MillstreamError
from millstream.examples.finqa import work
from millstream.examples.finqa.control import train_control
from millstream.examples.finqa.measuring import Measured, measure
from millstream.examples.finqa.plans import BASE, HACK, LINEAGE, demo_settings, plans
from millstream.examples.finqa.practice import Practice
from millstream.examples.finqa.settings import LOOP
from millstream.examples.finqa.telling import Say, Teller
from millstream.ledger import LedgerReader
from millstream.policy import PolicyLedger, Version

POLL_S = 0.05
LEARNER, HACKED, ASIDE = 0, 1, 2
"""Priorities of calls to the children: trainings, gates and the learner's practice come first."""
SPARE_ROUNDS = 2
"""Rounds beyond the number of candidates, should one not be enough for a training."""


def _logical_clock() -> Callable[[], int]:
    """A producer's clock that counts: the same runs are the same events, whatever the time of day."""
    count = itertools.count(1)
    return lambda: next(count)


class Demo:
    """One run of the demo by a settings file of its own. ``say`` is called with each line to print."""

    def __init__(self, settings: Path, seed: int, say: Say) -> None:
        self.seed = seed
        self.runtime = Runtime(demo_settings(settings), plans(seed), work.MODULE)
        self.say = say
        self.teller = Teller(self.runtime.log, say)
        self.measured: dict[str, Future[Measured]] = {}
        self.control: Future[Measured] | None = None
        self.began = time.monotonic()
        self._side = ThreadPoolExecutor(8, thread_name_prefix="demo")
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.began

    def run(self) -> None:
        """Everything, to the end. Raises what any part of it raised."""
        self.say("starting two worker processes (torch) and MLflow")
        self.runtime.children.warm()
        warm = [self._side.submit(self.runtime.children.call, "warm", str(BASE).encode()) for _ in range(2)]
        ready = self._side.submit(self.runtime.tracker.warm, LINEAGE, HACK)
        for child in warm:
            child.result()
        ready.result()
        pipeline = self.runtime.pipeline()
        loop = threading.Thread(target=self._loop, args=(pipeline,), name="pipeline")
        loop.start()
        try:
            self._branches(pipeline)
        finally:
            self._stop.set()
            loop.join()
            self._side.shutdown(cancel_futures=True)
        if self._failure is not None:
            raise self._failure

    def ledger(self) -> PolicyLedger:
        """The policies as they stand."""
        return LedgerReader(self.runtime.log).refresh()

    def _loop(self, pipeline: Pipeline) -> None:
        try:
            pipeline.run(self._stop)
        except BaseException as error:  # noqa: BLE001 — told to whoever waits, raised at the end
            self._failure = error
        finally:
            pipeline.end()

    def _branches(self, pipeline: Pipeline) -> None:
        self.say("the base is version 1 and champion; the report set is measured beside the loop")
        hack = self._side.submit(self._hack, pipeline, self._practice(HACK))
        self._learn(pipeline, self._practice(LINEAGE))
        last = self._champion(LINEAGE)
        self._measure(last, "last")
        hack.result()
        for future in [*self.measured.values(), *([self.control] if self.control else [])]:
            future.result()

    def _practice(self, lineage: str) -> Practice:
        client = self.runtime.client(producer=f"demo-{self.seed}-{lineage}", now_ns=_logical_clock())
        # A known absence of a system prompt: with every part known, ratio methods may use the runs, too.
        interface = structs.replace(interface_of(self.runtime.plan(lineage)), system=digest("system", ""))
        caller = self.runtime.children.at(LEARNER if lineage == LINEAGE else HACKED)
        return Practice(caller, client, interface, self.seed, self.runtime.tracker.files)

    def _learn(self, pipeline: Pipeline, practice: Practice) -> None:
        judged = 0
        for number in range(1, LOOP.candidates + SPARE_ROUNDS + 1):
            champion = self._champion(LINEAGE)
            runs = practice.round(LINEAGE, champion, number)
            if number == 1:
                self._measure(champion, "base")
            pipeline.settle()
            self.teller.round(number, LINEAGE, champion, runs)
            self._settled(pipeline, LINEAGE)
            ledger = self.ledger()
            versions = ledger.lineage(LINEAGE).versions
            if len(versions) - 1 > judged:
                judged = len(versions) - 1
                self._after(ledger, versions[max(versions)], last=judged >= LOOP.candidates)
            if judged >= LOOP.candidates:
                return

    def _after(self, ledger: PolicyLedger, candidate: Version, *, last: bool) -> None:
        """What follows a gate: a promoted version is measured (the last one at the end); the first training
        gets its control arm.
        """
        self.teller.trained(ledger, LINEAGE, candidate)
        self.teller.judged(ledger.gates[LINEAGE, candidate.version][-1])
        if candidate.verdict == "promote" and not last:
            self._measure(candidate, "promoted")
        if self.control is None:
            self.control = self._side.submit(self._control, candidate.training_id)

    def _hack(self, pipeline: Pipeline, practice: Practice) -> None:
        for number in range(1, LOOP.hack_rounds + 1):
            versions = self.ledger().lineage(HACK).versions
            version = versions[max(versions)]
            practice.round(HACK, version, number)
            pipeline.settle()
            self.teller.alarms(self.ledger(), HACK)
            self._settled(pipeline, HACK)
        ledger = self.ledger()
        self.teller.judged(ledger.gates[HACK, max(ledger.lineage(HACK).versions)][-1])

    def _settled(self, pipeline: Pipeline, lineage: str) -> None:
        """Wait until the stream has worked off what was told, and the lineage's training and gate ended."""
        pipeline.settle()
        reader = LedgerReader(self.runtime.log)
        while self._open(reader.refresh(), lineage):
            if self._failure is not None:
                raise self._failure
            time.sleep(POLL_S)

    def _open(self, ledger: PolicyLedger, lineage: str) -> bool:
        first_gated = self.runtime.plan(lineage).first_gated
        trainings = [t for t in ledger.trainings.values() if t.request.lineage == lineage]
        waiting = any(t.state in ("requested", "claimed") for t in trainings)
        versions = ledger.lineage(lineage).versions.values()
        return waiting or any(
            v.stage == "candidate" and v.verdict is None and v.version >= first_gated for v in versions
        )

    def _champion(self, lineage: str) -> Version:
        champion = self.ledger().champion(lineage)
        if champion is None:
            raise MillstreamError(f"lineage {lineage!r} has no champion: the base was not registered")
        return champion

    def _measure(self, version: Version, what: str) -> None:
        """Measure a version on the report set beside everything else: the base and the last champion also
        greedy and with several attempts.
        """
        attempts = LOOP.report_attempts if what in ("base", "last") else 1
        key = f"sampled-{version.version}" if what != "last" else f"last-{version.version}"
        self._submit(key, version, LOOP.temperature, attempts)
        if what in ("base", "last"):
            self._submit(f"greedy-{version.version}", version, 0.0, 1)

    def _submit(self, key: str, version: Version, temperature: float, attempts: int) -> None:
        if key not in self.measured:
            self.measured[key] = self._side.submit(
                measure,
                self.runtime.children.at(ASIDE),
                LINEAGE,
                version.version,
                self._files(version.version),
                temperature=temperature,
                attempts=attempts,
            )

    def _files(self, version: int) -> str:
        return str(self.runtime.tracker.files(LINEAGE, version))

    def _control(self, training_id: str) -> Measured:
        folder = self.runtime.loaded.data / "control"
        caller = self.runtime.children.at(ASIDE)
        model = train_control(caller, training_folder(self.runtime, training_id), folder, self._files(1))
        return measure(caller, LINEAGE, 0, model, temperature=LOOP.temperature)
