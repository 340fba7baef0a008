"""The embedded file's tables, its format number, and how an older format becomes this one.

``PRAGMA application_id`` says that a file is ours, ``PRAGMA user_version`` is the format number, and
``meta.needs`` is the first version of Millstream that reads it. An older format is migrated in one
transaction, after a copy was made and verified beside it; a newer one is refused.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from millstream.errors import SettingsError, Stuck

APPLICATION_ID = 0x4D494C4C
"""``MILL``."""

PAGE_BYTES = 16_384
"""Chunks are large: at 4 KiB pages appends were three times slower (docs/log.md)."""

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topic(name TEXT PRIMARY KEY, id TEXT NOT NULL, partitions INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE head(
  topic TEXT NOT NULL, partition INTEGER NOT NULL,
  first INTEGER NOT NULL, next INTEGER NOT NULL, log_ms INTEGER NOT NULL,
  PRIMARY KEY(topic, partition)) WITHOUT ROWID;
CREATE TABLE chunk(
  topic TEXT NOT NULL, partition INTEGER NOT NULL, base_offset INTEGER NOT NULL, n INTEGER NOT NULL,
  log_time INTEGER NOT NULL, crc INTEGER NOT NULL, codec INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY(topic, partition, base_offset));
CREATE TABLE stage(
  stage TEXT NOT NULL, partition INTEGER NOT NULL, fence INTEGER NOT NULL, outbox INTEGER NOT NULL,
  PRIMARY KEY(stage, partition)) WITHOUT ROWID;
CREATE TABLE snapshot(
  stage TEXT NOT NULL, partition INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(stage, partition));
CREATE TABLE position(
  stage TEXT NOT NULL, partition INTEGER NOT NULL, slot TEXT NOT NULL, topic_id TEXT NOT NULL,
  next INTEGER NOT NULL, PRIMARY KEY(stage, partition, slot)) WITHOUT ROWID;
CREATE TABLE journal(
  stage TEXT NOT NULL, partition INTEGER NOT NULL, n INTEGER NOT NULL,
  topic TEXT NOT NULL, input INTEGER NOT NULL, first INTEGER NOT NULL, end INTEGER NOT NULL,
  PRIMARY KEY(stage, partition, n)) WITHOUT ROWID;
CREATE TABLE high_water(
  stage TEXT NOT NULL, partition INTEGER NOT NULL, source TEXT NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY(stage, partition, source)) WITHOUT ROWID;
CREATE TABLE gap(
  n INTEGER PRIMARY KEY, stage TEXT NOT NULL, stage_partition INTEGER NOT NULL, topic TEXT NOT NULL,
  partition INTEGER NOT NULL, topic_id TEXT NOT NULL, first INTEGER NOT NULL, end INTEGER NOT NULL,
  reason TEXT NOT NULL, log_ms INTEGER NOT NULL);
"""

Step = Callable[[sqlite3.Connection], None]


class Format(Struct, frozen=True, kw_only=True):
    """A format number, the first version of Millstream that reads it, and the step from each earlier
    format to the next (``steps[n]`` turns n into n + 1).
    """

    number: int
    needs: str
    tables: str
    steps: Mapping[int, Step] = field(default_factory=dict)


CURRENT = Format(number=1, needs="0.1.0", tables=TABLES)


def prepare(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    """Make the tables of a new file, migrate an older one, refuse what is foreign (`SettingsError`) or newer
    (`Stuck`).
    """
    found = _number(connection)
    if found == 0:
        found = _create(connection, path, form)
    refuse_newer(connection, path, form)
    if found < form.number:
        _migrate(connection, path, form)


def refuse_newer(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    """Raises `Stuck` for a file of a newer format, also one that became so since it was opened."""
    found = _number(connection)
    if found > form.number:
        raise Stuck(
            f"{path} has data format {found}; this version reads up to {form.number}: "
            f"install millstream {_needs(connection)} or later"
        )


def _number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _needs(connection: sqlite3.Connection) -> str:
    with contextlib.suppress(sqlite3.Error):
        row = connection.execute("SELECT value FROM meta WHERE key = 'needs'").fetchone()
        if row:
            return str(row[0])
    return "of the version that wrote it"


def _create(connection: sqlite3.Connection, path: Path, form: Format) -> int:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _number(connection)
        if found == 0:
            _refuse_foreign(connection, path)
            for statement in form.tables.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES('needs', ?)", (form.needs,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {form.number}")
            found = form.number
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return found


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise SettingsError(f"{path} is a database of something else; choose another [storage] log")


def _migrate(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _number(connection)
        if found < form.number:
            _copy(connection, path, path.with_name(f"{path.name}.format-{found}"))
        for number in range(found, form.number):
            form.steps[number](connection)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'needs'", (form.needs,))
        connection.execute(f"PRAGMA user_version = {form.number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _copy(source: sqlite3.Connection, path: Path, target: Path) -> None:
    """Copy the whole file and check the copy: sound, and as many rows in every table."""
    target.unlink(missing_ok=True)
    with (
        contextlib.closing(sqlite3.connect(path)) as reader,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        reader.backup(copy)
        sound = copy.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        if not sound or _counts(copy) != _counts(source):
            raise SettingsError(
                f"{target}: the copy of {path} made before migrating it is not whole; nothing was changed"
            )


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}  # noqa: S608 — names of our own tables
