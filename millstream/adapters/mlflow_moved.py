"""A data directory that was moved or copied: MLflow's database names every artifact by an absolute path.

Reading finds the files where they lie now and changes nothing, so that a look from another mount point of the same
folder is harmless. Who writes corrects the database first: MLflow would put the artifacts of new runs into the old
place, and its own pages find those of the old runs again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

ARTIFACTS: Final = "artifacts"
"""The folder of all artifacts, beside whatever else is kept: ``artifacts/LINEAGE/RUN/artifacts/model``."""

_COLUMNS: Final = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
_BUSY_S: Final = 30.0


def here(recorded: Path, lineage: str, folder: Path) -> Path:
    """A path of an artifact, found in ``folder`` wherever that lay when it was recorded; else as recorded."""
    _, found, rest = str(recorded).rpartition(f"/{ARTIFACTS}/{lineage}/")
    moved = folder / ARTIFACTS / lineage / rest
    return moved if found and moved.exists() else recorded


def settle(database: Path, folder: Path) -> None:
    """Have a database of MLflow's say that its artifacts lie in ``folder``, where they are there."""
    with contextlib.closing(sqlite3.connect(database, timeout=_BUSY_S)) as connection:
        told = connection.execute("SELECT name, artifact_location FROM experiments").fetchall()
        moved = {place for name, location in told if (place := _elsewhere(name, location or "", folder))}
        with connection:
            for place in moved:
                for table, column in _COLUMNS:
                    connection.execute(
                        f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",  # noqa: S608 — constants
                        (folder.as_uri(), len(place) + 1, len(place) + 1, f"{place}/"),
                    )


def _elsewhere(name: str, location: str, folder: Path) -> str:
    """Where an experiment's artifacts lay before they were in ``folder``; empty when that is where they are said to
    be, and for experiments that are not ours.
    """
    tail = f"/{ARTIFACTS}/{quote(name)}"
    there = location.removesuffix(tail)
    ours = location.startswith("file://") and location.endswith(tail) and (folder / ARTIFACTS / name).is_dir()
    return there if ours and there != folder.as_uri() else ""
