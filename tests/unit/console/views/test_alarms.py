"""Alarms as people and scrapers see them: what stands, what was cleared, and by whom."""

from __future__ import annotations

import pytest

from millstream import metrics
from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.console.alarms import alarms, notes, whole_alarms
from millstream.console.gauges import _policies
from millstream.grader_events import AlarmCleared, AlarmRaised
from millstream.ledger import LedgerReader, append_policy_events


def raised(name, alarm="hack", **more):
    return AlarmRaised(
        id=name, lineage="policy", alarm=alarm, measure="fooled", graders=("judge",), version=2, reference="gold",
        runs=100, hits=30, share=0.3, expected=0.05, evidence=150.0, reason="30 of 100 were fooled",
        trajectory_ids=("a", "b"), **more,
    )  # fmt: skip


@pytest.fixture
def log(tmp_path):
    found = open_sqlite(tmp_path / "log.db", clock=ManualClock())
    yield found.log
    found.close()


def test_what_stands_and_what_was_cleared(log):
    """Lists, notes and the gauge agree; an alarm is raised and cleared once, whatever is said again."""
    append_policy_events(log, [raised("one"), raised("two", "drift", stops=False), raised("one")])
    append_policy_events(log, [AlarmCleared(id="c", lineage="policy", alarm_id="one", reason="mended", by="hand")])
    append_policy_events(log, [AlarmCleared(id="d", lineage="policy", alarm_id="none", reason="no such")])
    assert [(row.id, row.state) for row in alarms(log)] == [("one", "cleared"), ("two", "standing")]
    shown = {row["id"]: row for row in whole_alarms(log)}
    assert shown["one"]["cleared"]["reason"] == "mended"
    assert (shown["two"]["cleared"], shown["two"]["stops"], shown["two"]["trajectory_ids"]) == (None, False, ["a", "b"])
    ledger = LedgerReader(log).refresh()
    (note,) = notes(ledger.graders)
    assert note.startswith("drift alarm two (policy): 30 of 100")
    assert "stopped" not in note
    assert _policies(ledger)[metrics.ALARMS] == {("policy", "hack"): 0.0, ("policy", "drift"): 1.0}
    assert ledger.graders.stopping("policy", ["judge"]) is None
