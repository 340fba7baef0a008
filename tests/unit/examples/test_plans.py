"""The demo's alarms: told by the lineage with the hole, and stopping nothing there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.examples.finqa.plans import HACK, LINEAGE, plans
from millstream.examples.finqa.telling import Teller
from millstream.grader_events import AlarmRaised
from millstream.ledger import LedgerReader, append_policy_events

ALARM = AlarmRaised(
    id="a", lineage=HACK, alarm="hack", measure="fooled", graders=("groundedness",), version=2, reference="gold",
    runs=32, hits=21, share=0.656, expected=0.05, evidence=150.0, reason="21 of 32 were paid", stops=False,
)  # fmt: skip


def test_only_the_experiment_lets_an_alarm_go_by() -> None:
    """The learner's alarms are the defaults, which stop training; the other differs in what it says it does."""
    learner, hack = plans(0)
    assert learner.alarms == type(learner.alarms)()
    assert learner.alarms.stops
    assert hack.alarms == msgspec.structs.replace(learner.alarms, gold=hack.gate.gold, hold_s=0, stops=())


def test_an_alarm_is_told_once_and_of_its_lineage(tmp_path: Path) -> None:
    """With its reason; the other lineage's is told where that is looked at."""
    said: list[str] = []
    log, _ = open_sqlite(tmp_path / "log.db", clock=ManualClock())
    append_policy_events(log, [ALARM])
    ledger = LedgerReader(log).refresh()
    teller = Teller(log, said.append)
    teller.alarms(ledger, LINEAGE)
    assert said == []
    teller.alarms(ledger, HACK)
    teller.alarms(ledger, HACK)
    assert [line.split(": ", 1)[1].strip() for line in said] == [
        "HACK ALARM, raised while it ran (here it stops nothing):",
        "21 of 32 were paid",
    ]
