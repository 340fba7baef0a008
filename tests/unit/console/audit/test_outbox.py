"""What a stage has committed and not yet published is not lost: the books wait for it."""

from __future__ import annotations

import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_store import SqliteStore
from millstream.console.audit_reading import lag
from millstream.ports import Consumed, Message, Output, StateCommit


@pytest.fixture
def beside(tmp_path):
    """A log, and a store of its own."""
    embedded = open_sqlite(tmp_path / "log.db")
    file = SqliteFile(tmp_path / "state.db")
    yield embedded.log, SqliteStore(embedded.log, file)
    file.close()
    embedded.close()


def test_unpublished_outputs_are_lag(beside):
    """A stage that has read everything is behind until its outputs are known to be in the log."""
    log, store = beside
    log.append("telemetry", [Message("k", b"{}")])
    held = store.assign("assemble", 0, {"telemetry": log.topic_id("telemetry")})
    run = (Consumed("telemetry", 0, 0, 1),)
    store.commit(StateCommit(assignment=held, expected={}, consumed=run, outputs=(Output("trajectories", "k", b"a"),)))
    assert lag(log, store, 0) == {"assemble": 1}
    store.commit(StateCommit(assignment=held, expected={}, consumed=(), outputs=(), published=1))
    assert lag(log, store, 0) == {}
