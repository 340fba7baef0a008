"""What every tracker keeps: runs that end, versions that are distinct, aliases that are asked by name."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from services.mlflow_server import TroubledServer
from services.processes import free_port

from millstream.adapters.mlflow import MlflowTracker
from millstream.errors import SettingsError, Stuck, Unavailable
from millstream.ports import Tracker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("http", marks=pytest.mark.services)])
def tracker(request: pytest.FixtureRequest, folder: Path) -> MlflowTracker:
    """One tracker an adapter; each test has a lineage of its own."""
    if request.param == "http":
        return MlflowTracker(request.getfixturevalue("mlflow_server").url, folder / "cache")
    return MlflowTracker(f"sqlite:///{folder}/mlflow.db", folder)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "none"}')
    (made / "model.safetensors").write_bytes(b"\0" * 64)
    return made


def register(tracker: Tracker, lineage: str, training: str, model: Path) -> int:
    run = tracker.start(lineage, training, {}, {})
    version = tracker.register(lineage, run, model, {"training_id": training})
    tracker.finish(run, "FINISHED")
    return version


def test_a_version_gives_its_files_back(tracker: MlflowTracker, model: Path) -> None:
    """A registered folder comes back byte for byte, under version 1 of its lineage."""
    version = register(tracker, "files", "t1", model)
    found = tracker.files("files", version)
    assert version == 1
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {
        path.name: path.read_bytes() for path in model.iterdir()
    }
    assert tracker.files("files", version) == found


def test_a_training_is_found_by_its_id_and_counts_once(tracker: MlflowTracker, model: Path) -> None:
    """What a training registered is found again, the first of it when it did so twice."""
    assert tracker.registered("found", "t1") is None
    first = register(tracker, "found", "t1", model)
    register(tracker, "found", "t2", model)
    register(tracker, "found", "t1", model)
    assert tracker.registered("found", "t1") == first == 1
    assert tracker.registered("found", "t2") == 2
    assert tracker.registered("found", "t3") is None


def test_installations_on_one_registry_are_apart(tracker: MlflowTracker, tmp_path: Path, model: Path) -> None:
    """The same lineage of two installations: versions, trainings and aliases of their own."""
    other = MlflowTracker(tracker.uri, tmp_path / "other", "blue")
    assert register(tracker, "shared", "t1", model) == register(other, "shared", "t1", model) == 1
    register(other, "shared", "t2", model)
    other.point("shared", "champion", 2)
    assert tracker.registered("shared", "t2") is None
    assert tracker.pointed("shared", "champion") is None
    assert other.pointed("shared", "champion") == 2


def test_aliases_follow_and_go_away(tracker: MlflowTracker, model: Path) -> None:
    """An alias is asked by its name (M03): a champion that is set is found, and only a missing one is None."""
    assert tracker.pointed("aliases", "champion") is None
    first, second = register(tracker, "aliases", "t1", model), register(tracker, "aliases", "t2", model)
    assert tracker.pointed("aliases", "champion") is None
    tracker.point("aliases", "champion", first)
    tracker.point("aliases", "champion", second)
    tracker.point("aliases", "previous", first)
    assert (tracker.pointed("aliases", "champion"), tracker.pointed("aliases", "previous")) == (second, first)
    tracker.point("aliases", "champion", None)
    assert tracker.pointed("aliases", "champion") is None


def test_two_writers_get_two_versions(tracker: MlflowTracker, model: Path) -> None:
    """Registering at once from several threads gives as many distinct versions (M01), each with its own tag."""
    tracker.warm("threads")
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda n: register(tracker, "threads", f"t{n}", model), range(4)))
    assert sorted(versions) == [1, 2, 3, 4]
    assert [tracker.registered("threads", f"t{n}") for n in range(4)] == versions


def test_metrics_arrive_and_non_finite_ones_do_not(tracker: MlflowTracker) -> None:
    """Every finite value of every step is there once the run has ended; NaN and infinity are dropped (M05)."""
    run = tracker.start("metrics", "t1", {"seed": 1}, {"algorithm": "sft"})
    for step in range(1, 601):
        tracker.log_metrics(run, step, {"loss": 1.0 / step, "kl": float("nan"), "norm": float("inf")})
    tracker.finish(run, "FINISHED")
    client = tracker._client
    history = client.get_metric_history(run, "loss")
    assert sorted((point.step, point.value) for point in history) == [(step, 1.0 / step) for step in range(1, 601)]
    data = client.get_run(run).data
    assert set(data.metrics) == {"loss"}
    assert (data.params["seed"], data.tags["algorithm"], data.tags["training_id"]) == ("1", "sft", "t1")


def test_a_run_that_never_ended_is_killed_when_its_training_starts_again(tracker: MlflowTracker) -> None:
    """A run left open by a worker that was killed does not stay RUNNING; other trainings' runs do."""
    left = tracker.start("again", "t1", {}, {})
    other = tracker.start("again", "t2", {}, {})
    tracker.start("again", "t1", {}, {})
    client = tracker._client
    assert (client.get_run(left).info.status, client.get_run(other).info.status) == ("KILLED", "RUNNING")


def test_files_and_datasets_are_kept_with_the_run(tracker: MlflowTracker, tmp_path: Path) -> None:
    """A folder becomes an artifact, a dataset an input of the run."""
    (tmp_path / "manifest.json").write_text("{}")
    run = tracker.start("kept", "t1", {}, {})
    uri = tracker.log_files(run, tmp_path, "training")
    tracker.log_dataset(run, "rollouts", "ab" * 32, 12, uri)
    client = tracker._client
    assert uri.endswith("/training")
    assert [item.path for item in client.list_artifacts(run, "training")] == ["training/manifest.json"]
    (found,) = client.get_run(run).inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.digest) == ("rollouts", ("ab" * 32)[:36])


def test_tags_of_a_version(tracker: MlflowTracker, model: Path) -> None:
    """Tags are set on the version named, and on no other."""
    first, second = register(tracker, "tags", "t1", model), register(tracker, "tags", "t2", model)
    tracker.tag("tags", first, {"verdict": "promote"})
    client = tracker._client
    assert client.get_model_version("tags", str(first)).tags["verdict"] == "promote"
    assert "verdict" not in client.get_model_version("tags", str(second)).tags


def _register_elsewhere(
    uri: str, folder: Path, model: Path, training: str, answers: multiprocessing.Queue[int]
) -> None:
    answers.put(register(MlflowTracker(uri, folder), "processes", training, model))


@pytest.mark.slow
def test_two_processes_on_a_new_database_get_two_versions(tmp_path: Path, model: Path) -> None:
    """Two processes that find no database make its tables once, and get two versions (M01)."""
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[int] = context.Queue()
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    both = [
        context.Process(target=_register_elsewhere, args=(uri, tmp_path / "new", model, f"t{n}", answers))
        for n in range(2)
    ]
    for process in both:
        process.start()
    versions = sorted(answers.get(timeout=90) for _ in both)
    for process in both:
        process.join()
    assert versions == [1, 2]


def test_a_server_that_is_away_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is `Unavailable` with the address in it, never "no champion" (M03)."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = MlflowTracker(f"http://127.0.0.1:{free_port()}", tmp_path)
    with pytest.raises(Unavailable, match=r"MLflow at http://127\.0\.0\.1:\d+: .*is it running"):
        away.pointed("policy", "champion")


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [(500, "500", Unavailable), (502, "502", Unavailable), (0, "timed out", Unavailable), (401, "401", Stuck),
     (403, "403", Stuck)],
)  # fmt: skip
def test_a_server_in_trouble_is_told_in_one_line(tmp_path: Path, monkeypatch, status, told, kind) -> None:
    """Faults and time-outs may heal; refused credentials do not, and the mend names where they are set."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with TroubledServer(status) as server:
        with pytest.raises(Unavailable) as caught:
            MlflowTracker(server.url, tmp_path).pointed("policy", "champion")
        assert server.asked
    assert type(caught.value) is kind
    text = str(caught.value)
    assert server.url in text
    assert told in text
    assert "\n" not in text
    assert ("MLFLOW_TRACKING_USERNAME" in text) is (kind is Stuck)


@pytest.mark.parametrize("uri", ["mlruns", "postgresql://h/db", ""])
def test_other_uris_are_refused(tmp_path: Path, uri: str) -> None:
    """Only a database file and a server are offered."""
    with pytest.raises(SettingsError, match="sqlite:///NAME or http"):
        MlflowTracker(uri, tmp_path)


def test_a_lineage_that_mlflow_cannot_name_is_refused(tmp_path: Path, folder: Path) -> None:
    """Slashes and quotes would break a query or a path."""
    with pytest.raises(SettingsError, match="cannot name a lineage"):
        MlflowTracker(f"sqlite:///{folder}/mlflow.db", folder).start("a/b' or 1", "t1", {}, {})
