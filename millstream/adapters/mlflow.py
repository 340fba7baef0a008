"""The tracker and registry on MLflow: one run a training, plain model folders as versions, aliases by name.

`sqlite:///…` keeps everything in one file beside its artifacts; `http(s)://…` is an MLflow server. MLflow is imported
at the first call (about 3 s), and a new database needs some 3 s more to make its tables: `warm` does both early.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from millstream.adapters.mlflow_moved import ARTIFACTS, here, settle
from millstream.errors import MillstreamError, MissingExtra, SettingsError, Stuck, Unavailable
from millstream.logs import mask
from millstream.optouts import opt_out

MODEL = "model"
_NAME = re.compile(r"[^/:'\"]+")
_BATCH = 500
_FLUSH_S = 2.0
_RETRIES = 5


class MlflowTracker:
    """`ports.Tracker` on MLflow. May be called from several threads.

    `uri`: `sqlite:////absolute/path` or an http(s) URL. `folder`: where artifacts (of a database) and downloaded
    versions (of a server) lie.
    """

    def __init__(self, uri: str, folder: Path, installation: str = "") -> None:
        """``installation`` begins the names of models and experiments, where several share a registry."""
        if not uri.startswith(("sqlite:///", "http://", "https://")):
            raise SettingsError(f"storage.tracking = {uri!r}: write sqlite:///NAME or http://HOST:PORT")
        self.uri = uri
        self.folder = folder.resolve()
        self._installation = installation
        self._lock = threading.RLock()
        self._api: Any = None
        self._experiments: dict[str, str] = {}
        self._pending: dict[str, list[Any]] = {}
        self._flushed: dict[str, float] = {}

    def warm(self, *lineages: str) -> None:
        """Import MLflow, make the tables and the experiments of these lineages now. Raises `Unavailable`."""
        with _answers(self.uri):
            if not lineages:
                self._client.search_experiments(max_results=1)
            for lineage in lineages:
                self._experiment(self._named(lineage))

    def _named(self, lineage: str) -> str:
        return f"{self._installation}.{lineage}" if self._installation else lineage

    def start(self, lineage: str, training_id: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Open a run; one of the same training that never ended is marked KILLED."""
        from mlflow.entities import Param, RunTag

        lineage = self._named(lineage)
        with _answers(self.uri):
            experiment = self._experiment(lineage)
            if self._database is not None:
                settle(self._database, self.folder)
            for stale in self._open_runs(experiment, training_id):
                self._client.set_terminated(stale, "KILLED")
            every = {**tags, "training_id": training_id, "mlflow.source.name": "millstream"}
            run = self._client.create_run(experiment, tags=every, run_name=f"{lineage} {training_id[:8]}")
            found = [Param(key, str(value)[:5000]) for key, value in params.items()]
            self._client.log_batch(run.info.run_id, params=found, tags=[RunTag("lineage", lineage)])
            return str(run.info.run_id)

    def log_metrics(self, run_id: str, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step; written in batches, all of them before the run ends."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        with self._lock:
            pending = self._pending.setdefault(run_id, [])
            pending += [Metric(name, value, now, step) for name, value in metrics.items() if _finite(value)]
            waited = time.monotonic() - self._flushed.setdefault(run_id, time.monotonic())
            due = len(pending) >= _BATCH or waited > _FLUSH_S
        if due:
            self._flush(run_id)

    def _flush(self, run_id: str) -> None:
        with self._lock:
            pending = self._pending.pop(run_id, [])
            self._flushed.pop(run_id, None)
        with _answers(self.uri):
            for first in range(0, len(pending), _BATCH):
                self._client.log_batch(run_id, metrics=pending[first : first + _BATCH])

    def log_dataset(self, run_id: str, name: str, digest: str, rows: int, source: str) -> None:
        """Say which data the run used."""
        import json

        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name,
            digest=digest[:36],
            source_type="local",
            source=json.dumps({"uri": source}),
            profile=json.dumps({"rows": rows}),
        )
        with _answers(self.uri):
            self._client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])

    def log_files(self, run_id: str, folder: Path, name: str) -> str:
        """Store a folder as an artifact of the run; its URI."""
        self._flush(run_id)
        with _answers(self.uri):
            self._client.log_artifacts(run_id, str(folder), name)
            return f"{self._client.get_run(run_id).info.artifact_uri}/{name}"

    def finish(self, run_id: str, status: str) -> None:
        """Close the run: FINISHED, FAILED or KILLED."""
        self._flush(run_id)
        with _answers(self.uri):
            self._client.set_terminated(run_id, status)

    def register(self, lineage: str, run_id: str, folder: Path, tags: Mapping[str, str]) -> int:
        """Copy a model folder to the run's artifacts and register it; the version.

        Two that register at once get two versions: MLflow gives up when it loses the race too often, we try again.
        """
        lineage = self._named(lineage)
        source = self.log_files(run_id, folder, MODEL)
        with _answers(self.uri):
            self._model(lineage)
        for attempt in range(_RETRIES):
            try:
                with _answers(self.uri):
                    made = self._client.create_model_version(
                        lineage, source, run_id=run_id, tags=dict(tags), await_creation_for=0
                    )
                return int(made.version)
            except Unavailable as error:
                if isinstance(error, Stuck) or attempt == _RETRIES - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
        raise AssertionError

    def registered(self, lineage: str, training_id: str) -> int | None:
        """The (lowest) version with this training's tag, or None."""
        lineage = self._named(lineage)
        wanted = f"name = '{_sound(lineage)}' and tags.training_id = '{_sound(training_id)}'"
        with _answers(self.uri):
            found = self._client.search_model_versions(wanted)
        return min((int(version.version) for version in found), default=None)

    def tag(self, lineage: str, version: int, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        lineage = self._named(lineage)
        with _answers(self.uri):
            for key, value in tags.items():
                self._client.set_model_version_tag(lineage, str(version), key, value)

    def files(self, lineage: str, version: int) -> Path:
        """The version's folder: as it lies here, else downloaded once."""
        lineage = self._named(lineage)
        with _answers(self.uri):
            source = str(self._client.get_model_version_download_uri(lineage, str(version)))
            parsed = urlparse(source)
            if parsed.scheme in ("", "file"):
                return here(Path(unquote(parsed.path)), lineage, self.folder)
            return self._download(lineage, version, source)

    def place(self, lineage: str, version: int) -> str:
        """Where `files` lie, relative to the folder that ``folder`` is in."""
        found, data = self.files(lineage, version), self.folder.parent
        return found.relative_to(data).as_posix() if found.is_relative_to(data) else str(found)

    def _download(self, lineage: str, version: int, source: str) -> Path:
        from mlflow.artifacts import download_artifacts

        target = self.folder / "versions" / lineage / str(version)
        if not target.is_dir():
            half = target.with_name(f"{version}.{os.getpid()}.half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            found = Path(download_artifacts(source, dst_path=str(half), tracking_uri=self.uri))
            with contextlib.suppress(FileExistsError, OSError):
                found.rename(target)
            shutil.rmtree(half, ignore_errors=True)
        return target

    def point(self, lineage: str, alias: str, version: int | None) -> None:
        """Make an alias point to a version; None removes it."""
        lineage = self._named(lineage)
        with _answers(self.uri):
            if version is None:
                self._client.delete_registered_model_alias(lineage, alias)
            else:
                self._client.set_registered_model_alias(lineage, alias, str(version))

    def pointed(self, lineage: str, alias: str) -> int | None:
        """Where an alias points, asked by its name: searches do not fill aliases in. None only where there is none."""
        from mlflow.exceptions import MlflowException

        lineage = self._named(lineage)
        with _answers(self.uri):
            try:
                return int(self._client.get_model_version_by_alias(lineage, alias).version)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST" or f"alias {alias} not found" in str(error):
                    return None
                raise

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._api is None:
                self._api = self._connect()
            return self._api

    def _connect(self) -> Any:
        opt_out()
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise MissingExtra("mlflow", "tracking and the registry") from None
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        with self._alone():
            client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
            client.search_experiments(max_results=1)
        return client

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time makes the tables of a database."""
        database = self._database
        if database is None:
            yield
            return
        database.parent.mkdir(parents=True, exist_ok=True)
        with database.with_name(f"{database.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def _database(self) -> Path | None:
        """The file of the database; None: a server."""
        return Path(self.uri.removeprefix("sqlite:///")) if self.uri.startswith("sqlite:///") else None

    def _experiment(self, lineage: str) -> str:
        with self._lock:
            if lineage not in self._experiments:
                self._experiments[lineage] = self._find_experiment(_sound(lineage))
            return self._experiments[lineage]

    def _find_experiment(self, lineage: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(lineage)
        if found is None:
            place = (self.folder / ARTIFACTS / lineage).as_uri() if self._database else None
            try:
                return str(self._client.create_experiment(lineage, artifact_location=place))
            except MlflowException as error:
                found = self._client.get_experiment_by_name(lineage)
                if found is None:
                    raise _told(self.uri, error) from None
        return str(found.experiment_id)

    def _model(self, lineage: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(_sound(lineage))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _open_runs(self, experiment: str, training_id: str) -> list[str]:
        wanted = f"tags.training_id = '{_sound(training_id)}' and attributes.status = 'RUNNING'"
        return [str(run.info.run_id) for run in self._client.search_runs([experiment], wanted)]


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")  # noqa: PLR0124 — NaN alone differs from itself


def _sound(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{name!r} cannot name a lineage or a training in MLflow: no / : ' or quotes, please")
    return name


def _told(uri: str, error: Exception) -> Unavailable:
    """What MLflow raised, as the caller sees it: refused credentials don't heal by waiting, all else may."""
    lines = str(error).splitlines() or [type(error).__name__]
    told = f"MLflow at {mask(uri)}: {_cause(lines[0])[:500]}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or getattr(error, "error_code", "") in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Stuck(
            f"{told}; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) to "
            "credentials that may write"
        )
    return Unavailable(f"{told}; is it running, and is its disk writable?")


def _cause(line: str) -> str:
    """What its HTTP library names as the cause at the end of a long line; else the line."""
    cause = line.rpartition("(Caused by ")[2]
    return cause.removesuffix(")") if cause != line else line


@contextlib.contextmanager
def _answers(uri: str) -> Iterator[None]:
    """What MLflow, its database or its server raise becomes `Unavailable` (`Stuck` for refused credentials); our own
    errors stay what they are.
    """
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        raise _told(uri, error) from error
