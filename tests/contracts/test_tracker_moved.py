"""A data directory is moved or copied: what MLflow's database named by absolute paths is found where it lies now."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from millstream.adapters.mlflow import MlflowTracker

LINEAGES = ("policy", "a lineage with spaces")


def tracker_of(data: Path) -> MlflowTracker:
    return MlflowTracker(f"sqlite:///{data}/mlflow.db", data / "mlflow")


def register(tracker: MlflowTracker, lineage: str, training: str, model: Path) -> int:
    run = tracker.start(lineage, training, {}, {})
    version = tracker.register(lineage, run, model, {"training_id": training})
    tracker.finish(run, "FINISHED")
    return version


def everything(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join(connection.iterdump())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "none"}')
    return made


@pytest.fixture
def data(tmp_path: Path, model: Path) -> Path:
    """A data directory with a version of each lineage."""
    made = tmp_path / "data 1"
    for lineage in LINEAGES:
        assert register(tracker_of(made), lineage, "t1", model) == 1
    return made


@pytest.fixture(params=["moved", "copied"])
def elsewhere(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Path:
    """The same data in another place; copied: what was there is there still."""
    target = tmp_path / "far" / "data-2"
    shutil.copytree(data, target)
    if request.param == "moved":
        shutil.rmtree(data)
    return target


def test_files_are_found_where_they_lie_now(elsewhere: Path) -> None:
    """By whoever reads; the log's form of it is the same as before, and the database is left as it was."""
    before = everything(elsewhere / "mlflow.db")
    tracker = tracker_of(elsewhere)
    for lineage in LINEAGES:
        files = tracker.files(lineage, 1)
        assert files.is_relative_to(elsewhere)
        assert (files / "config.json").is_file()
        assert elsewhere / tracker.place(lineage, 1) == files
    assert everything(elsewhere / "mlflow.db") == before


def test_what_is_trained_then_lies_in_the_new_place(elsewhere: Path, data: Path, model: Path) -> None:
    """The first who writes corrects the database: nothing is put into the old place, and MLflow's own pages and
    client find the old artifacts.
    """
    old = sorted(data.rglob("*")) if data.exists() else []
    for lineage in LINEAGES:
        assert register(tracker_of(elsewhere), lineage, "t2", model) == 2
        assert tracker_of(elsewhere).files(lineage, 2).is_relative_to(elsewhere)
    assert (sorted(data.rglob("*")) if data.exists() else []) == old
    told = everything(elsewhere / "mlflow.db")
    assert data.as_uri() not in told
    client = tracker_of(elsewhere)._client
    for run in client.search_runs([one.experiment_id for one in client.search_experiments()]):
        assert {item.path for item in client.list_artifacts(run.info.run_id)} == {"model"}


def test_two_moves_are_as_good_as_one(elsewhere: Path, model: Path, tmp_path: Path) -> None:
    """A version of each place is found in the third."""
    register(tracker_of(elsewhere), "policy", "t2", model)
    third = tmp_path / "third"
    elsewhere.rename(third)
    assert [tracker_of(third).files("policy", n).is_relative_to(third) for n in (1, 2)] == [True, True]
    register(tracker_of(third), "policy", "t3", model)
    assert str(elsewhere) not in everything(third / "mlflow.db")


def test_files_that_are_nowhere_keep_the_name_they_had(data: Path) -> None:
    """So that the error of whoever opens them names a place that somebody knows."""
    recorded = tracker_of(data).files("policy", 1)
    shutil.rmtree(data / "mlflow")
    assert tracker_of(data).files("policy", 1) == recorded
