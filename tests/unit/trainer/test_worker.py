"""The train worker on a real log, buffer and registry: one version a request, whatever dies on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millstream.adapters.children import Child
from millstream.adapters.clock import ManualClock
from millstream.adapters.mlflow import MlflowTracker
from millstream.adapters.redis import RedisBuffer
from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.valkey import Valkey
from millstream.errors import Unavailable
from millstream.grader_events import AlarmCleared, AlarmRaised
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import PolicyRegistered, Training, TrainingClaimed, TrainingFinished, TrainingRequested
from millstream.ports import Log, Message
from millstream.rollout import BufferDecision, Position, Rollout, RolloutAdmitted, RolloutsLeased
from millstream.settings import TrainerSettings
from millstream.trainer import work
from millstream.trainer.base import ensure_base
from millstream.trainer.manifest import read_manifest, read_payload
from millstream.trainer.orders import WorkResult
from millstream.trainer.worker import TrainWorker, WorkerSettings

SETTINGS = TrainerSettings(epochs=1, tokens_per_batch=60, heartbeat_s=10, claim_timeout_s=60)


class InProcess:
    """The training child without a process of its own; `before` runs ahead of each call."""

    def __init__(self) -> None:
        self.calls = 0
        self.before: Any = None

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        self.calls += 1
        if self.before is not None:
            self.before(self.calls)
        return work.handle(method, payload)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    valkey = Valkey(tmp_path_factory.mktemp("valkey"))
    yield valkey.start()
    valkey.close()


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> MlflowTracker:
    folder = tmp_path_factory.mktemp("tracking")
    return MlflowTracker(f"sqlite:///{folder}/mlflow.db", folder)


class Mill:
    """A log, a buffer with the practice rollouts in it, a registry with a base, and a worker."""

    def __init__(self, folder: Path, server: str, tracker: MlflowTracker, base: Path, rollouts: list[Rollout]) -> None:
        self.lineage = f"policy-{folder.name}"
        self.folder = folder
        self.clock = ManualClock()
        self.embedded = open_sqlite(folder / "log.db", clock=self.clock)
        self.log: Log = self.embedded.log
        self.buffer = RedisBuffer(server, self.lineage)
        self.tracker = tracker
        self.caller = InProcess()
        self.rollouts = rollouts
        self.base_version = ensure_base(self.log, tracker, self.lineage, base)
        self.admit()

    def close(self) -> None:
        self.buffer.close()
        self.embedded.close()

    def worker(self, name: str = "w1", **settings: Any) -> TrainWorker:
        told = WorkerSettings(folder=self.folder / "trainings", name=name, retry_s=0, **settings)
        buffers, lineages = {self.lineage: self.buffer}, {self.lineage: SETTINGS}
        return TrainWorker(self.log, buffers, self.tracker, self.caller, lineages, told)

    def decide(self, decisions: Sequence[BufferDecision], payloads: dict[Any, bytes] | None = None) -> None:
        """Append decisions to the log and apply them to the buffer, as the stages do."""
        value = b"\n".join(msgspec.json.encode(decision) for decision in decisions)
        offset = self.log.append("buffer-events", [Message(key="", value=value)])
        self.buffer.apply(offset, decisions, payloads or {})

    def admit(self) -> None:
        admitted = [
            RolloutAdmitted(
                id=f"d-{rollout.id}",
                namespace=self.lineage,
                rollout_id=rollout.id,
                trajectory_id=rollout.trajectory.id,
                trajectory_revision=1,
                content_hash="",
                position=Position("t", 0, 0),
                group=rollout.facts.group,
                reward=rollout.reward,
                advantage=0.0,
                priority=0.0,
                facts=rollout.facts,
                grade_ids=(f"grade-{rollout.id}",),
                grader_epochs=("correct:1",),
                formula="correct",
            )
            for rollout in self.rollouts
        ]
        self.decide(admitted, {rollout.id: msgspec.json.encode(rollout) for rollout in self.rollouts})

    def request(self, training_id: str = "training-1", **fields: Any) -> TrainingRequested:
        told: dict[str, Any] = {
            "id": training_id,
            "lineage": self.lineage,
            "parent": 1,
            "rollout_ids": tuple(sorted(rollout.id for rollout in self.rollouts)),
            "algorithm": "sft",
            "seed": 3,
            "namespace": self.lineage,
            "reason": "enough",
        }
        request = TrainingRequested(**(told | fields))
        append_policy_events(self.log, [request])
        return request

    def lease(self, training_id: str = "training-1", most: int | None = None) -> str:
        """Lease (the first of) what the standing claim asks for; its token."""
        training = self.training(training_id)
        leased = RolloutsLeased(
            id=f"l-{training.token}",
            namespace=self.lineage,
            training_id=training_id,
            token=training.token,
            lineage=self.lineage,
            parent=1,
            rollout_ids=training.request.rollout_ids[:most],
        )
        self.decide([leased])
        return training.token

    def training(self, training_id: str = "training-1") -> Training:
        return LedgerReader(self.log).refresh().trainings[training_id]

    def versions(self) -> list[int]:
        return sorted(LedgerReader(self.log).refresh().lineage(self.lineage).versions)

    def finish(self, worker: TrainWorker) -> None:
        """Step until the work under way is told."""
        while worker.job is not None:
            if worker.job.started:
                worker.job.join()
            worker.step()

    def run(self, worker: TrainWorker, training_id: str = "training-1") -> Training:
        assert worker.step()
        self.lease(training_id)
        self.finish(worker)
        return self.training(training_id)


@pytest.fixture
def mill(tmp_path: Path, server: str, tracker: MlflowTracker, llama: Path, practice: list[Rollout]) -> Iterator[Mill]:
    made = Mill(tmp_path, server, tracker, llama, practice)
    yield made
    made.close()


@pytest.mark.parametrize(("grader", "stops"), [("correct", True), ("another", False)])
def test_what_was_asked_for_before_an_alarm_is_not_begun_while_it_stands(mill: Mill, grader: str, stops: bool) -> None:
    """A burst of runs may be asked for and found fooled in one go: nothing is claimed until somebody has cleared the
    alarm; one about graders of another reward stands in nobody's way.
    """
    mill.request()
    alarm = AlarmRaised(
        id="a", lineage=mill.lineage, alarm="hack", measure="fooled", graders=(grader,), version=1, reference="gold",
        runs=30, hits=20, share=0.7, expected=0.05, evidence=200.0, reason="paid though wrong",
    )  # fmt: skip
    append_policy_events(mill.log, [alarm])
    worker = mill.worker()
    worker.graders = {mill.lineage: frozenset({"correct"})}
    assert worker.step() is not stops
    assert (mill.training().state == "requested") is stops
    cleared = AlarmCleared(id="c", lineage=mill.lineage, alarm_id="a", reason="looked")
    append_policy_events(mill.log, [cleared])
    assert worker.busy or worker.step()
    assert mill.training().state == "claimed"


def test_a_request_becomes_a_registered_version(mill: Mill) -> None:
    """Claim, lease, manifest, training, registration, and the two events at the end, with everything to explain it."""
    request = mill.request()
    worker = mill.worker()
    assert worker.pending()
    training = mill.run(worker)
    assert (training.state, training.version) == ("finished", 2)
    assert not worker.pending()
    version = LedgerReader(mill.log).refresh().lineage(mill.lineage).versions[2]
    assert (version.parent, version.training_id, version.stage) == (1, request.id, "candidate")
    folder = mill.folder / "trainings" / request.id
    manifest = read_manifest(folder)
    assert training.manifest == manifest.id
    assert [entry.rollout_id for entry in manifest.rollouts] == list(request.rollout_ids)
    assert (manifest.seed, manifest.grader_epochs, manifest.formulas) == (3, ("correct:1",), ("correct",))
    assert manifest.rollouts[0].grade_ids == (f"grade-{manifest.rollouts[0].rollout_id}",)
    assert read_payload(folder / "rollouts.ndjson.gz", manifest.payload) == mill.buffer.read(request.rollout_ids)
    files = mill.tracker.files(mill.lineage, 2)
    assert version.uri == mill.tracker.place(mill.lineage, 2)
    assert (mill.tracker.folder.parent / version.uri) == files
    assert (files / "model.safetensors").is_file()
    client = mill.tracker._client
    tags = client.get_model_version(mill.lineage, "2").tags
    assert {"manifest", "parent", "algorithm", "reward", "grader_epochs", "interface", "seed"} <= set(tags)
    run = client.get_run(version.run_id)
    assert run.info.status == "FINISHED"
    assert {"loss", "kl_champion", "entropy", "gradient_norm", "clip_share", "kept"} <= set(run.data.metrics)
    assert {item.path for item in client.list_artifacts(version.run_id)} == {"model", "training"}


def test_the_base_is_version_one_and_champion_once(mill: Mill, llama: Path) -> None:
    """Ensuring a base again changes nothing, in the log and in the registry."""
    before = mill.log.bounds("policy-events")
    assert ensure_base(mill.log, mill.tracker, mill.lineage, llama) == 1
    assert mill.log.bounds("policy-events") == before
    ledger = LedgerReader(mill.log).refresh()
    champion = ledger.champion(mill.lineage)
    assert champion is not None
    assert (champion.version, champion.training_id) == (1, "base")
    other = open_sqlite(mill.folder / "other.db", clock=mill.clock)
    assert ensure_base(other.log, mill.tracker, mill.lineage, llama) == 1
    other.close()
    assert mill.tracker.registered(mill.lineage, "base") == 1


def test_nothing_happens_before_the_lease(mill: Mill) -> None:
    """A claim waits for its lease, beating its heart by log time, and gives up when none comes."""
    mill.request()
    worker = mill.worker(lease_timeout_s=100)
    assert worker.step()
    assert not worker.step()
    first = mill.training().beat_ms
    mill.clock.advance(10_000)
    assert worker.step()
    assert mill.training().beat_ms == first + 10_000
    mill.clock.advance(101_000)
    assert worker.step()
    assert (mill.training().state, mill.training().failure) == ("failed", "the buffer gave no lease within 100 s")
    assert mill.caller.calls == 0


def test_a_lease_of_another_token_is_not_ours(mill: Mill) -> None:
    """Only the lease that answers this claim counts."""
    mill.request()
    worker = mill.worker()
    worker.step()
    training = mill.training()
    leased = RolloutsLeased(
        id="l",
        namespace=mill.lineage,
        training_id="training-1",
        token="somebody else's",
        lineage=mill.lineage,
        parent=1,
        rollout_ids=training.request.rollout_ids,
    )
    mill.decide([leased])
    assert not worker.step()
    assert worker.job is not None
    assert not worker.job.started


def test_only_what_was_leased_is_trained_on(mill: Mill) -> None:
    """Rollouts that may not be used any more are in no lease and no manifest; none left is a failure."""
    mill.request("some")
    mill.request("none")
    worker = mill.worker()
    worker.step()
    mill.lease("some", most=8)
    mill.finish(worker)
    manifest = read_manifest(mill.folder / "trainings" / "some")
    assert len(manifest.rollouts) == 8
    worker.step()
    mill.lease("none", most=0)
    mill.finish(worker)
    assert mill.training("none").failure == "none of the requested rollouts may be used any more"


def test_of_two_workers_one_trains(mill: Mill) -> None:
    """The claim that comes first in the log stands; the other worker finds nothing to do."""
    mill.request()
    first, second = mill.worker("w1"), mill.worker("w2")
    assert first.step()
    assert not second.step()
    assert mill.training().worker == "w1"
    assert not second.busy


def test_a_lost_race_is_noticed(mill: Mill) -> None:
    """A claim that was overtaken between reading and appending does not stand, and is not worked on."""
    request = mill.request()
    worker = mill.worker()
    append = worker._append

    def overtaken(*events: Any) -> None:
        rival = TrainingClaimed(id="c", lineage=mill.lineage, training_id=request.id, token="rival", worker="w0")
        append_policy_events(mill.log, [rival])
        append(*events)

    worker._append = overtaken  # type: ignore[method-assign]
    assert worker.step()
    assert (worker.job, mill.training().token) == (None, "rival")


def test_a_dead_workers_training_is_taken_over_and_registered_once(mill: Mill) -> None:
    """Killed between registering and telling: the next worker finds the version and tells it, registering nothing."""
    mill.request()
    dead = mill.worker("dead")
    dead.step()
    mill.lease()
    dead.step()
    assert dead.job is not None
    dead.job.join()  # registered in MLflow; the process dies before its events are appended
    heir = mill.worker("heir")
    assert not heir.step()
    mill.clock.advance(60_000)
    training = mill.run(heir)
    assert (training.state, training.version, training.worker) == ("finished", 2, "heir")
    assert mill.versions() == [1, 2]
    assert len(mill.tracker._client.search_model_versions(f"name = '{mill.lineage}'")) == 2


def test_a_worker_whose_claim_was_taken_over_drops_its_work(mill: Mill) -> None:
    """Its thread stops before it registers, and its events are never appended."""
    mill.request()
    slow, gate = mill.worker("slow"), threading.Event()
    mill.caller.before = lambda calls: gate.wait(30) if calls == 1 else None
    slow.step()
    mill.lease()
    slow.step()
    mill.clock.advance(60_000)
    heir = mill.worker("heir")
    assert heir.step()
    job = slow.job
    assert slow.step()
    assert not slow.busy
    gate.set()
    assert job is not None
    job.join()
    mill.lease()
    mill.finish(heir)
    assert mill.training().worker == "heir"
    assert mill.versions() == [1, 2]
    assert len(mill.tracker._client.search_model_versions(f"name = '{mill.lineage}'")) == 2


def test_an_evaluation_that_is_not_finite_registers_nothing(mill: Mill) -> None:
    """M05: the training failed with its reason, its run ended FAILED, the registry has only the base."""
    mill.request(settings={"learning_rate": 1e6, "max_grad_norm": 1e9, "epochs": 3})
    training = mill.run(mill.worker())
    assert (training.state, training.version) == ("failed", None)
    assert "finite" in training.failure
    assert mill.tracker.registered(mill.lineage, "training-1") is None
    (run,) = mill.tracker._client.search_runs(
        [mill.tracker._experiment(mill.lineage)], "tags.training_id = 'training-1'"
    )
    assert run.info.status == "FAILED"


def test_a_child_that_says_nan_is_not_believed(mill: Mill) -> None:
    """The worker looks itself: a None in the evaluation is a failure even when the child saw none (M05)."""

    class Odd(InProcess):
        def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
            result = msgspec.json.decode(super().call(method, payload), type=WorkResult)
            return msgspec.json.encode(msgspec.structs.replace(result, evaluation={"nll": None}))

    mill.request()
    mill.caller = Odd()
    training = mill.run(mill.worker())
    assert training.state == "failed"
    assert "nothing was registered" in training.failure


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"settings": {"epocs": 1}}, "epocs"),
        ({"algorithm": "grop"}, "did you mean 'grpo'"),
        ({"parent": 9}, "has no version 9"),
        ({"rollout_ids": ("r-gone",)}, "r-gone"),
        ({"settings": {"keep_reward": 2.0}}, "nothing to train on"),
    ],
)
def test_a_request_that_cannot_be_met_fails_with_its_reason(mill: Mill, fields: dict[str, Any], why: str) -> None:
    """Wrong settings, an unknown algorithm or parent, rollouts that are gone, none good enough: said in the event."""
    mill.request(**fields)
    training = mill.run(mill.worker())
    assert training.state == "failed"
    assert why in training.failure


def test_what_is_away_is_tried_again(mill: Mill) -> None:
    """A child that dies twice is called a third time; the training is made once."""

    def die(calls: int) -> None:
        if calls < 3:
            raise Unavailable("the process ended")

    mill.request()
    mill.caller.before = die
    assert mill.run(mill.worker()).state == "finished"
    assert mill.caller.calls == 3
    runs = mill.tracker._client.search_runs([mill.tracker._experiment(mill.lineage)], "tags.algorithm = 'sft'")
    assert sorted(run.info.status for run in runs) == ["FAILED", "FAILED", "FINISHED"]


def test_two_trainings_follow_each_other(mill: Mill) -> None:
    """One at a time, in the order of the requests; the second starts from the first's candidate."""
    mill.request("first")
    mill.request("second", start_from=2, parent=1)
    worker = mill.worker()
    assert mill.run(worker, "first").version == 2
    assert mill.run(worker, "second").version == 3
    assert LedgerReader(mill.log).refresh().lineage(mill.lineage).versions[3].parent == 2


def test_requests_of_other_lineages_are_left_alone(mill: Mill) -> None:
    """A worker without settings for a lineage claims nothing of it."""
    mill.request(lineage="another")
    worker = mill.worker()
    assert not worker.step()
    assert not worker.pending()


def test_a_registry_that_counts_otherwise_is_noticed(mill: Mill) -> None:
    """A version number that the log knows as something else is a failure that names the mend."""
    taken = PolicyRegistered(id="x", lineage=mill.lineage, version=2, uri="", training_id="older")
    append_policy_events(mill.log, [taken])
    mill.request()
    training = mill.run(mill.worker())
    assert training.state == "failed"
    assert "the registry was replaced or shared" in training.failure


def test_the_events_are_those_of_a_real_child(mill: Mill) -> None:
    """The same training in a process of its own gives the same version, hash for hash."""
    mill.request()
    child = Child("millstream.trainer.work", env={"OMP_NUM_THREADS": "1"})
    mill.caller = child  # type: ignore[assignment]
    try:
        assert mill.run(mill.worker()).state == "finished"
    finally:
        child.close()
    version = LedgerReader(mill.log).refresh().lineage(mill.lineage).versions[2]
    mill.caller = InProcess()
    mill.request("again")
    assert mill.run(mill.worker(), "again").state == "finished"
    again = LedgerReader(mill.log).refresh().lineage(mill.lineage).versions[3]
    assert version.content_hash == again.content_hash


def test_a_stale_finish_is_ignored(mill: Mill) -> None:
    """Events of a token that does not stand change nothing: the fold takes the first valid one."""
    mill.request()
    stale = TrainingFinished(
        id="f", lineage=mill.lineage, training_id="training-1", token="old", version=7, manifest="m"
    )
    append_policy_events(mill.log, [stale])
    assert mill.run(mill.worker()).version == 2
