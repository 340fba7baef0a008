"""The runtime of one process: settings in, ports and workers out. Everything is made when first asked for."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import structs

from millstream.bootstrap.plans import Plan, plan_of
from millstream.errors import SettingsError, nearest
from millstream.loading import Loaded, load

if TYPE_CHECKING:
    from millstream.adapters.child_pool import ChildPool
    from millstream.adapters.kafka_log import KafkaLog
    from millstream.adapters.kafka_topics import KafkaTopics
    from millstream.adapters.mlflow import MlflowTracker
    from millstream.adapters.redis import RedisBuffer
    from millstream.adapters.sqlite import Embedded
    from millstream.bootstrap.monitor import Monitor
    from millstream.bootstrap.pipeline import Pipeline
    from millstream.bootstrap.policies import Rebuilt
    from millstream.capture.blobs import Blobs
    from millstream.capture.client import Client
    from millstream.capture.finders import Finders
    from millstream.capture.importers.base import Imported
    from millstream.capture.shared import Shared
    from millstream.console.doctor import Check
    from millstream.console.status import Status
    from millstream.deploy.gate import Judgement
    from millstream.grade import Grade
    from millstream.graders.hosted.means import Means
    from millstream.graders.judges.judge import Judge
    from millstream.graders.reward import Formula
    from millstream.graders.running import GraderSet
    from millstream.policy import TrainingRequested, Version
    from millstream.ports import Log, LogWriter, Store
    from millstream.recalls import Recalls
    from millstream.trajectory import Trajectory

WORK = "millstream.bootstrap.work"
"""What children are started with; never imported here, since it loads torch."""
CHILDREN = 2
"""How many processes train and evaluate side by side."""


class Runtime:
    """Settings, and what they mean. A context manager; closing it ends what it started."""

    def __init__(self, loaded: Loaded, plans: Sequence[Plan] = (), work_module: str = "") -> None:
        """``plans``: the lineages to run (default: the one of the settings). ``work_module``: what the
        children that train and evaluate are started with.
        """
        self.loaded = loaded
        self.plans = tuple(plans) or (plan_of(loaded),)
        self.work_module = work_module or WORK
        self._closers: list[Callable[[], object]] = []
        self._shared: Shared | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what was started, last first."""
        while self._closers:
            self._closers.pop()()

    @cached_property
    def _embedded(self) -> Embedded:
        from millstream.adapters.sqlite import open_sqlite

        storage = self.loaded.settings.storage
        if storage.state != storage.log:
            raise SettingsError(
                f"[storage] state = {storage.state!r} must be the same file as log = {storage.log!r}: "
                "outputs and state are one transaction"
            )
        found = open_sqlite(self.loaded.database(storage.log))
        self._closers.append(found.close)
        return found

    @cached_property
    def _kafka(self) -> KafkaLog:
        from millstream.bootstrap.parts import require

        require("a log in Kafka ([storage] log)", "kafka")
        from millstream.adapters.kafka_cluster import Cluster
        from millstream.adapters.kafka_log import KafkaLog

        found = KafkaLog(Cluster.of(self.loaded))
        self._closers.append(found.close)
        return found

    @property
    def on_kafka(self) -> bool:
        """Whether the log is a Kafka cluster's."""
        return self.loaded.settings.storage.log.startswith("kafka://")

    @property
    def log(self) -> Log:
        """The log: the embedded file, or a Kafka cluster."""
        return self._kafka if self.on_kafka else self._embedded.log

    @contextmanager
    def topics(self) -> Iterator[KafkaTopics]:
        """The topics of the cluster, to make and compare. Raises `SettingsError` for the embedded log."""
        if not self.on_kafka:
            raise SettingsError(
                f"[storage] log = {self.loaded.settings.storage.log!r} makes its own topics; "
                "with kafka://HOST:9092 they are made by this command"
            )
        from millstream.bootstrap.parts import require

        require("a log in Kafka ([storage] log)", "kafka")
        from millstream.adapters.kafka_cluster import Cluster
        from millstream.adapters.kafka_topics import KafkaTopics

        with closing(KafkaTopics(Cluster.of(self.loaded))) as found:
            yield found

    def check_topics(self) -> None:
        """What a worker asks before it starts. Raises `Stuck` with the command that mends the topics."""
        with self.topics() as found:
            found.check()

    @property
    def store(self) -> Store:
        """The state of the stages: in the embedded file, or beside a Kafka log."""
        return self._beside if self.on_kafka else self._embedded.store

    @cached_property
    def _beside(self) -> Store:
        from millstream.bootstrap.stores import beside

        return beside(self, self.log, self._server)

    def _server(self, url: str) -> str | Callable[[], str]:
        """The URL of a Redis or Valkey server; for the embedded one what starts it and gives its URL,
        asked again when it does not answer.
        """
        return url if url != "embedded" else self._valkey

    @cached_property
    def _valkey(self) -> Callable[[], str]:
        from millstream.adapters.valkey import Valkey

        server = Valkey(self.loaded.data / "valkey")
        self._closers.append(server.close)
        return server.start

    @functools.cache  # noqa: B019 — a runtime lives as long as its process
    def buffer(self, namespace: str = "") -> RedisBuffer:
        """The buffer of a namespace (default: the first plan's)."""
        from millstream.adapters.redis import RedisBuffer

        settings = self.loaded.settings
        server = self._server(settings.storage.buffer)
        found = RedisBuffer(server, namespace or self.plans[0].namespace, self._installation)
        self._closers.append(found.close)
        return found

    @property
    def _installation(self) -> str:
        """What keeps apart what several installations on one cluster have on shared servers."""
        return self.loaded.settings.kafka.namespace if self.on_kafka else ""

    @cached_property
    def tracker(self) -> MlflowTracker:
        """MLflow."""
        from millstream.adapters.mlflow import MlflowTracker

        tracking = self.loaded.settings.storage.tracking
        if tracking.startswith("sqlite:///"):
            tracking = f"sqlite:///{self.loaded.database(tracking)}"
        return MlflowTracker(tracking, self.loaded.data / "mlflow", self._installation)

    @cached_property
    def children(self) -> ChildPool:
        """The processes that train and evaluate."""
        from millstream.adapters.child_pool import ChildPool

        threads = str(self.plans[0].trainer.threads)
        env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TQDM_DISABLE": "1"}
        pool = ChildPool(self.work_module, CHILDREN, env=env)
        self._closers.append(pool.close)
        return pool

    @cached_property
    def graders(self) -> GraderSet:
        """The enabled graders; people's own in a child process."""
        from millstream.bootstrap.grader_children import spawn_of
        from millstream.graders.loading import load as load_graders

        found = load_graders(
            self.loaded.settings.graders, self.loaded.root, spawn_of(self.loaded.settings.graders), self.means
        )
        self._closers.append(found.close)
        return found

    def one_grader(self, name: str) -> GraderSet:
        """Just the grader of that name, enabled or not; close the set after use. Raises `SettingsError`."""
        from millstream.bootstrap.grader_children import spawn_of
        from millstream.graders.loading import load_one

        settings = self.loaded.settings.graders
        return load_one(name, settings, self.loaded.root, spawn_of(settings), self.means)

    @cached_property
    def monitor(self) -> Monitor | None:
        """What watches the stages of this process and serves metrics, None when that is off."""
        from millstream.bootstrap.monitor import start

        return start(self)

    @cached_property
    def means(self) -> Means:
        """What hosted graders that reach outside are run with, as far as the settings name it."""
        from millstream.bootstrap.means import means_of

        return means_of(self.loaded, self.judge_model, self.on_close)

    @cached_property
    def judge_model(self) -> Judge | None:
        """The model that judges ask, None where the settings name none."""
        from millstream.bootstrap.judging import judge_of

        return judge_of(self.loaded, self.on_close)

    def plan(self, lineage: str = "") -> Plan:
        """The plan of a lineage (default: the first)."""
        found = next((plan for plan in self.plans if lineage in ("", plan.lineage)), None)
        if found is None:
            known = ", ".join(plan.lineage for plan in self.plans)
            raise SettingsError(f"no settings for lineage {lineage!r}; known here: {known}")
        return found

    def success(self, grader: str = "", lineage: str = "", success_at: float | None = None) -> Formula:
        """What success is measured by: a grader's score in its range, else the reward of a lineage; from
        ``success_at`` on where that is given. Raises `SettingsError` for a grader that is neither enabled nor built
        in, and for a success outside of the range.
        """
        from millstream.graders.builtin import BUILTINS
        from millstream.graders.reward import Formula

        if not grader:
            reward = self.plan(lineage).reward
            return Formula.of(reward if success_at is None else structs.replace(reward, success=success_at))
        if grader in BUILTINS or grader.split(".", maxsplit=1)[0] == "feedback":
            return Formula(grader, success=success_at)
        found = next((one for one in self.graders.graders if one.name == grader), None)
        if found is None:
            raise SettingsError(f"unknown grader {grader!r}{nearest(grader, sorted({*self.graders.names, *BUILTINS}))}")
        return Formula(grader, found.low, found.high, success=success_at)

    def recalls(self, as_of_ms: int | None = None) -> Recalls:
        """What has been recalled, by a log time where that is given."""
        from millstream.console.catalog import ledger

        return ledger(self.log, as_of_ms).recalls

    def pipeline(self) -> Pipeline:
        """Every stage and worker, ready to run. Raises `SettingsError` when another runner has the data."""
        from millstream.bootstrap.pipeline import build

        return build(self)

    def on_close(self, act: Callable[[], object]) -> None:
        """Do this when the runtime closes."""
        self._closers.append(act)

    def spool(self) -> Path:
        """Where the SDK keeps what the log does not take."""
        return self.loaded.data / "spool"

    def shared(self) -> Shared:
        """What all edges of this process have in common. Raises `SettingsError` for a redactor that is not there."""
        from millstream.capture.shared import Shared

        if self._shared is None:
            self._shared = Shared(self.blobs(), self.finders())
        return self._shared

    def finders(self) -> Finders | None:
        """The operator's redactors, whose child ends with the runtime; None where none are set. Raises `SettingsError`
        for a file that is not there.
        """
        from millstream.bootstrap.grader_children import spawn_of
        from millstream.capture.finders import Finders

        rules = self.loaded.settings.capture
        files = [self.loaded.path(file) for file in rules.redactors]
        for file in files:
            if not file.is_file():
                raise SettingsError(f"[capture] redactors: no file at {file}")
        if not files:
            return None
        found = Finders(spawn_of(self.loaded.settings.graders), list(map(str, files)), rules.redactors_timeout_s)
        self._closers.append(found.close)
        return found

    def blobs(self) -> Blobs | None:
        """The blob directory; None where none is set."""
        from millstream.capture.blobs import Blobs

        folder = self.loaded.settings.capture.blobs
        return Blobs(self.loaded.path(folder)) if folder else None

    def client(self, producer: str = "", now_ns: Callable[[], int] = time.time_ns) -> Client:
        """An SDK client on this runtime's log, or on the gateway that the settings name. It is opened in the
        background: one that is away when the process starts is tried again, and events are spooled meanwhile.
        ``producer`` and ``now_ns`` fixed: the same runs are the same bytes. Raises `SettingsError`.
        """
        from millstream.capture.client import Client

        capture = self.loaded.settings.capture
        shared = self.shared()
        found = Client(self._writer(), capture, self.spool(), producer=producer, now_ns=now_ns, shared=shared)
        self._closers.append(found.close)
        return found

    def _writer(self) -> Callable[[], LogWriter]:
        """Opens what the SDK writes to; in a forked child again."""
        url = self.loaded.settings.capture.gateway
        if not url:
            return lambda: self.log
        from millstream.adapters.gateway_log import GatewayLog
        from millstream.serving import token_of

        token = token_of(None)
        GatewayLog(url, token)  # a bad URL is told at once
        return lambda: GatewayLog(url, token)

    def import_files(
        self,
        paths: Sequence[Path],
        *,
        kind: str,
        lineage: str,
        dry_run: bool,
        progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> Imported:
        """Import files into telemetry; see `millstream import`. ``progress``: told (bytes read, of how many)."""
        from millstream.capture.importers.base import Options, import_into

        options = Options(format=kind, lineage=lineage, capture=self.loaded.settings.capture)
        return import_into(self.log, paths, options, dry_run=dry_run, shared=self.shared().checked(), progress=progress)

    def status(self) -> Status:
        """What is going on; see `millstream status`. Asks a buffer only where one has been made."""
        from millstream.bootstrap.diagnosis import buffers_in_use
        from millstream.console.status import status

        stats = {plan.namespace: self.buffer(plan.namespace).stats() for plan in buffers_in_use(self)}
        base = self.loaded.settings.policy.base
        return status(self.log, self.store.positions(), stats, policy_base=base)

    def rebuild_buffer(self) -> int:
        """Drop every namespace of the buffer and fold its decisions again; how many records it took."""
        from millstream.streams.projection import rebuild

        for plan in self.plans:
            rebuild(self.buffer(plan.namespace), self.log)
        return max(self.buffer(plan.namespace).applied() for plan in self.plans)

    def request_training(self, lineage: str, algorithm: str) -> TrainingRequested:
        """Append a `TrainingRequested` for what the buffer holds; see `millstream train`."""
        from millstream.bootstrap.policies import request_training

        return request_training(self, lineage, algorithm)

    def judge(self, lineage: str, version: int, *, dry_run: bool) -> Judgement:
        """Judge a version now; see `millstream gate`."""
        from millstream.bootstrap.policies import gate_worker

        return gate_worker(self).judge(lineage or self.plans[0].lineage, version, dry_run=dry_run)

    def rebuild(self, lineage: str, version: int) -> Rebuilt:
        """Make a version again from its manifest; see `millstream rebuild`."""
        from millstream.bootstrap.policies import rebuild

        return rebuild(self, lineage or self.plans[0].lineage, version)

    def promote(self, lineage: str, version: int, reason: str, *, quarantined: bool = False) -> tuple[str, Version]:
        """Make a version the champion; the lineage and what the version is now."""
        from millstream.deploy.promotion import promote

        name = lineage or self.plans[0].lineage
        return name, promote(self.log, name, version, reason, quarantined=quarantined)

    def rollback(
        self, lineage: str, version: int | None, reason: str, *, quarantined: bool = False
    ) -> tuple[str, Version]:
        """Serve an earlier version again; the lineage and what the version is now."""
        from millstream.deploy.promotion import rollback

        name = lineage or self.plans[0].lineage
        return name, rollback(self.log, name, reason, version, quarantined=quarantined)

    def retire(self, lineage: str, version: int, reason: str) -> tuple[str, Version]:
        """Retire a version; the lineage and what the version is now."""
        from millstream.deploy.promotion import retire

        name = lineage or self.plans[0].lineage
        return name, retire(self.log, name, version, reason)


def client() -> Client:
    """The SDK client of a process that only says ``import millstream``: from the settings it finds."""
    return Runtime(load()).client()


@contextmanager
def grader_named(loaded: Loaded, name: str) -> Iterator[Callable[[Trajectory], Grade]]:
    """One grader as a function of a trajectory, its child process (if it is somebody's own) ended after."""
    from millstream.graders.running import effective

    with Runtime(loaded) as runtime:
        graders = runtime.one_grader(name)
        runtime.on_close(graders.close)
        yield lambda trajectory: effective(graders.grade(trajectory)[0]).grade


def diagnose(loaded: Loaded) -> list[Check]:
    """What `millstream doctor` prints."""
    from millstream.bootstrap.diagnosis import diagnose as run

    return run(loaded)
