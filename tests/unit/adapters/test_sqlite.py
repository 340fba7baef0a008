"""What only the embedded file can do wrong: damage, formats, full disks, locks."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millstream.adapters import sqlite_schema
from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_log import SqliteLog
from millstream.adapters.sqlite_schema import CURRENT, Format
from millstream.errors import PositionLost, SettingsError, Stuck, Unavailable
from millstream.ports import Consumed, Message, StateCommit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


@contextlib.contextmanager
def opened(path, **options):
    embedded = open_sqlite(path, clock=ManualClock(), **options)
    try:
        yield embedded
    finally:
        embedded.close()


def fill(log, appends=5, size=10, each=2):
    for n in range(appends):
        log.append("telemetry", [Message(f"{n}:{i}", b"x" * size) for i in range(each)])


def raw(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def test_the_file_is_set_up_for_chunks_and_power_cuts(path):
    """16 KiB pages, WAL, and every commit on the disk before it is answered."""
    with opened(path) as (log, _):
        connection = log.file.connection()
        ask = lambda pragma: connection.execute(f"PRAGMA {pragma}").fetchone()[0]  # noqa: E731
        assert (ask("page_size"), ask("journal_mode"), ask("synchronous")) == (16_384, "wal", 2)
        assert (ask("application_id"), ask("user_version")) == (sqlite_schema.APPLICATION_ID, CURRENT.number)


def test_a_chunk_is_one_append(path):
    """The messages of an append share a row, a time and a checksum."""
    with opened(path) as (log, _):
        fill(log, appends=3)
    assert raw(path, "SELECT base_offset, n FROM chunk ORDER BY base_offset") == [(0, 2), (2, 2), (4, 2)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE chunk SET data = CAST(substr(data, 1, 5) || x'00' || substr(data, 7) AS BLOB) WHERE base_offset = 2",
        "UPDATE chunk SET n = 1 WHERE base_offset = 2",
        "UPDATE chunk SET data = 'text' WHERE base_offset = 2",
    ],
)
def test_a_damaged_chunk_is_named_not_returned(path, damage):
    """The checksum covers the bytes and their place."""
    with opened(path) as (log, _):
        fill(log)
        raw(path, damage)
        with pytest.raises(PositionLost, match=r"telemetry:0 at offset 2 .*damaged.*accept-loss"):
            log.read("telemetry", 0, 2)


@pytest.mark.parametrize(("at", "resume"), [(2, 4), (3, 4), (8, 10)])
def test_a_missing_chunk_is_named_not_skipped(path, at, resume):
    """A hole is an error that says where reading can go on; what lies before it is read first."""
    with opened(path) as (log, _):
        fill(log)
        raw(path, "DELETE FROM chunk WHERE base_offset IN (2, 8)")
        with pytest.raises(PositionLost, match=f"has no records {at} to {resume - 1}") as lost:
            log.read("telemetry", 0, at)
        assert lost.value.resume == resume
        assert [r.offset for r in log.read("telemetry", 0, 0)] == [0, 1]
        assert [r.offset for r in log.read("telemetry", 0, 5)] == [5, 6, 7]


def test_an_unknown_codec_asks_for_an_upgrade(path):
    """A chunk in a later codec is not guessed at."""
    with opened(path) as (log, _):
        fill(log)
        raw(path, "UPDATE chunk SET codec = 9")
        with pytest.raises(PositionLost, match="codec 9"):
            log.read("telemetry", 0, 0)


def test_accepting_the_loss_of_a_damaged_chunk_steps_over_it(path):
    """Position and journal skip the chunk; the holes are recorded apart."""
    with opened(path) as (log, store):
        fill(log)
        ids = {"telemetry": log.topic_id("telemetry")}
        for first, end in ((0, 4), (4, 6)):
            held = store.assign("assemble", 0, ids)
            run = (Consumed("telemetry", 0, first, end),)
            store.commit(StateCommit(assignment=held, expected={"telemetry:0": first}, consumed=run, outputs=()))
        raw(path, "UPDATE chunk SET crc = 0 WHERE base_offset IN (2, 6)")
        gaps = store.accept_loss("assemble", 0, "telemetry", 0)
        assert sorted((gap.first, gap.end) for gap in gaps) == [(2, 4), (6, 8)]
        held = store.assign("assemble", 0, ids)
        assert held.positions == {"telemetry:0": 8}
        assert held.journal == (Consumed("telemetry", 0, 0, 2), Consumed("telemetry", 0, 4, 6))


def test_accepting_the_loss_of_a_tail_steps_back(path):
    """A log restored from an older copy ends before the position: what was read stays read."""
    with opened(path) as (log, store):
        fill(log)
        ids = {"telemetry": log.topic_id("telemetry")}
        run = (Consumed("telemetry", 0, 0, 10),)
        held = store.assign("assemble", 0, ids)
        store.commit(StateCommit(assignment=held, expected={"telemetry:0": 0}, consumed=run, outputs=()))
        raw(path, "DELETE FROM chunk WHERE base_offset >= 6")
        raw(path, "UPDATE head SET next = 6 WHERE topic = 'telemetry'")
        gaps = store.accept_loss("assemble", 0, "telemetry", 0)
        assert {(gap.first, gap.end) for gap in gaps} == {(6, 10)}
        held = store.assign("assemble", 0, ids)
        assert (held.positions, held.journal) == ({"telemetry:0": 6}, (Consumed("telemetry", 0, 0, 6),))


def test_a_newer_format_is_refused_with_the_version_it_needs(path):
    """Nothing of it is touched."""
    with opened(path):
        pass
    raw(path, "UPDATE meta SET value = '9.1.0'")
    raw(path, "PRAGMA user_version = 99")
    with pytest.raises(Stuck, match=r"data format 99.*up to 1.*millstream 9\.1\.0 or later"):
        open_sqlite(path)
    assert raw(path, "PRAGMA user_version") == [(99,)]


def test_a_file_that_a_newer_build_migrated_is_left_alone(path):
    """Also by a process that had it open before: nothing is written the old way."""
    log, _ = open_sqlite(path)
    log.append("telemetry", [Message("k", b"before")])
    with sqlite3.connect(path) as newer:
        newer.execute("UPDATE meta SET value = '9.1.0' WHERE key = 'needs'")
        newer.execute(f"PRAGMA user_version = {CURRENT.number + 1}")
    newer.close()
    with pytest.raises(Stuck, match=r"millstream 9\.1\.0 or later"):
        log.append("telemetry", [Message("k", b"after")])
    assert [record.value for record in log.read("telemetry", 0, 0)] == [b"before"]


def test_an_older_format_is_migrated_after_a_verified_copy(path):
    """The records are there afterwards, and the copy holds the old format."""
    with opened(path) as (log, _):
        fill(log)
    step = lambda connection: connection.execute("CREATE TABLE extra(x)")  # noqa: E731
    newer = Format(number=2, needs="0.2.0", tables=CURRENT.tables, steps={1: step})
    for _ in range(2):
        file = SqliteFile(path, form=newer)
        log = SqliteLog(file, ManualClock())
        assert log.bounds("telemetry") == (0, 10)
        file.close()
    copy = path.with_name("log.db.format-1")
    assert raw(path, "PRAGMA user_version") == [(2,)]
    assert raw(path, "SELECT value FROM meta WHERE key = 'needs'") == [("0.2.0",)]
    assert raw(copy, "PRAGMA user_version") == [(1,)]
    assert raw(copy, "SELECT sum(n) FROM chunk") == [(10,)]


def test_a_failing_migration_leaves_the_old_format(path):
    """A step that breaks is taken back whole."""
    with opened(path) as (log, _):
        fill(log)

    def step(connection):
        connection.execute("DELETE FROM chunk")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        SqliteFile(path, form=Format(number=2, needs="0.2.0", tables=CURRENT.tables, steps={1: step}))
    with opened(path) as (log, _):
        assert len(log.read("telemetry", 0, 0)) == 10


def test_the_golden_file_of_format_1_opens(tmp_path, root):
    """A file that an earlier build wrote is read by this one."""
    golden = root / "tests" / "golden" / "data" / "format-1.sql"
    target = tmp_path / "log.db"
    with contextlib.closing(sqlite3.connect(target)) as connection:
        connection.executescript(golden.read_text())
    with opened(target) as (log, store):
        assert [(r.offset, r.key, r.value, r.headers) for r in log.read("telemetry", 0, 0)] == [
            (0, "a", b'{"x":1}', {"dialect": "millstream"}),
            (1, "b", None, {}),
            (2, "c", b"\x00\xff", {}),
        ]
        held = store.assign("assemble", 0, {"telemetry": log.topic_id("telemetry")})
        assert (held.positions, held.snapshot, held.outbox) == ({"telemetry:0": 2}, b"state", 1)
        assert held.journal == ()


def test_a_foreign_database_is_refused(path):
    """A database of something else is not written into."""
    path.parent.mkdir()
    raw(path, "CREATE TABLE songs(title)")
    with pytest.raises(SettingsError, match="something else"):
        open_sqlite(path)


def test_a_file_that_is_no_database_is_refused(path):
    """Text in the file's place is named as such."""
    path.parent.mkdir()
    path.write_text("hello\n" * 1000)
    with pytest.raises(SettingsError, match="no SQLite file"):
        open_sqlite(path)


def test_a_full_disk_loses_nothing_and_says_the_mend(path):
    """At the page limit appends fail whole; what was answered is there; with space it goes on."""
    with opened(path, max_pages=40) as (log, _):
        answered = 0
        message = ""
        while not message:
            try:
                log.append("telemetry", [Message("k", os.urandom(5000))] * 4)
                answered += 4
            except Unavailable as error:
                message = str(error)
        assert "disk is full: free some space" in message
        assert answered > 0
        assert log.bounds("telemetry") == (0, answered)
    with opened(path) as (log, _):
        assert log.append("telemetry", [Message("k", b"x" * 20_000)]) == answered
        assert len(log.read("telemetry", 0, 0, 1 << 30)) == answered + 1


def test_a_file_size_limit_is_survived(path):
    """The operating system refuses a write in the middle of a transaction: nothing of it remains."""
    with opened(path) as (log, _):
        fill(log)
    code = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from millstream.adapters.sqlite import open_sqlite\nfrom millstream.errors import Unavailable\n"
        "from millstream.ports import Message\n"
        "log = open_sqlite(Path(sys.argv[1])).log\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))\n"
        "n = 10\n"
        "try:\n"
        "    for _ in range(100):\n"
        "        log.append('telemetry', [Message('k', b'y' * 20_000)] * 2); n += 2\n"
        "except Unavailable as error:\n"
        "    print(n, error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "print(log.append('telemetry', [Message('after', b'z')]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    told, after = done.stdout.splitlines()
    answered = int(told.split()[0])
    assert "free some space" in told
    assert int(after) == answered
    with opened(path) as (log, _):
        assert len(log.read("telemetry", 0, 0, 1 << 30)) == answered + 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_folder_that_cannot_be_made_names_the_mend():
    """A path where nothing can be created, not even by root."""
    with pytest.raises(Unavailable, match=r"/proc/nowhere.*\[storage\]"):
        open_sqlite(Path("/proc/nowhere/log.db"))


def test_a_read_only_folder_names_the_mend():
    """An ordinary user without the right to write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(Unavailable, match=rf"{folder}.*writable"):
                open_sqlite(Path(folder) / "log.db")
            with pytest.raises(Unavailable, match=rf"{folder}.*writable"):
                open_sqlite(Path(folder) / "deeper" / "log.db")
        finally:
            if root:
                os.seteuid(0)
            Path(folder).chmod(stat.S_IRWXU)


def test_a_locked_file_is_unavailable_until_it_is_free(path):
    """Another writer that does not end is named after the patience, and nothing is lost."""
    with opened(path, busy_s=0.05) as (log, _), contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked: end that process"):
            log.append("telemetry", [Message("k", b"v")])
        assert log.bounds("telemetry") == (0, 0)
        other.rollback()
        assert log.append("telemetry", [Message("k", b"v")]) == 0


def test_a_replaced_file_is_noticed(path):
    """A file removed under a running process is not written into unseen: the new topic has a new id."""
    with opened(path) as (log, store):
        fill(log)
        held = store.assign("assemble", 0, {"telemetry": log.topic_id("telemetry")})
        run = (Consumed("telemetry", 0, 0, 10),)
        store.commit(StateCommit(assignment=held, expected={"telemetry:0": 0}, consumed=run, outputs=()))
        for name in ("log.db", "log.db-wal", "log.db-shm"):
            path.with_name(name).unlink()
        with opened(path):
            pass
        with pytest.raises(PositionLost, match="outside the topic"):
            log.read("telemetry", 0, 10)


def test_readers_do_not_wait_for_a_writer(path):
    """WAL: what is committed is read while another transaction is open."""
    with opened(path) as (log, _), contextlib.closing(sqlite3.connect(path)) as other:
        fill(log)
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM chunk")
        assert len(log.read("telemetry", 0, 0)) == 10
        other.rollback()


def test_the_wal_goes_home(path):
    """Many appends and reads: the WAL stays near its checkpoint size."""
    with opened(path) as (log, _):
        position = 0
        for _ in range(80):
            log.append("telemetry", [Message("k", b"x" * 400_000)])
            position += len(log.read("telemetry", 0, position))
        assert path.with_name("log.db-wal").stat().st_size < 24 << 20
        assert path.stat().st_size > 20 << 20
