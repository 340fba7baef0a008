"""Counting what stages commit: only what is committed, and once."""

from __future__ import annotations

import threading

import msgspec
import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.prometheus import PrometheusMeter
from millstream.adapters.sqlite import open_sqlite
from millstream.console.gauges import Gauges
from millstream.errors import Unavailable
from millstream.grade import GradeGiven, abstain, fail, score
from millstream.ports import Consumed, Message, Output
from millstream.rollout import RolloutRefused, RolloutsEvicted
from millstream.streams.metering import Metering
from millstream.streams.runner import StageRunner


class Copier:
    """Tells each record again."""

    name, inputs = "assemble", ("telemetry",)

    def feed(self, record):
        return (Output("trajectories", "k", record.value, {"kind": "trajectory"}),)

    def deadline_ms(self):
        return None

    def snapshot(self):
        return b""

    def restore(self, snapshot):
        pass


class FullOnce:
    """A store whose first commits find no room; everything else goes through."""

    def __init__(self, store, times):
        self.store, self.left = store, times

    def __getattr__(self, name):
        return getattr(self.store, name)

    def commit(self, commit):
        if self.left:
            self.left -= 1
            raise Unavailable("disk full")
        return self.store.commit(commit)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def embedded(tmp_path, clock):
    opened = open_sqlite(tmp_path / "log.db", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def meter():
    return PrometheusMeter()


@pytest.fixture
def value(meter):
    """A sample by name and labels; None when it is not told."""
    return lambda name, **labels: meter.registry.get_sample_value(f"millstream_{name}", labels)


def lines(*items):
    return b"\n".join(map(msgspec.json.encode, items))


def given(grade, grader="correct"):
    return GradeGiven(id="i", trajectory_id="t", revision=1, grader=grader, epoch="e", grade=grade)


def test_a_group_that_is_tried_again_counts_once(embedded, meter, value, clock):
    """Two failed tries are two waits; the records count when they are in."""
    log, store = embedded
    log.append("telemetry", [Message("k", b'{"status":"complete"}')] * 3)
    runner = StageRunner(Copier(), log, FullOnce(store, 2), watch=Metering(meter, log.now_ms), stop=threading.Event())
    assert runner.run_once() == 3
    assert value("records_total", stage="assemble", topic="telemetry") == 3
    assert value("outputs_total", stage="assemble", topic="trajectories") == 3
    assert value("trajectories_total", status="complete", reason="complete") == 3
    assert value("waits_total", part="assemble") == 2


def test_grades_count_by_kind(meter, value):
    """Each grade by grader and status, a failed one also by its kind; feedback and ends of grading are no grades."""
    made = lines(
        given(score(1.0)), given(score(0.0)), given(abstain("no reference")), given(fail("slow", "timeout"), "other")
    )
    Metering(meter, lambda: 0).committed("grade", (), [Output("grades", "t", made + b'\n{"kind":"GradingFinished"}')])
    assert value("grades_total", grader="correct", status="scored") == 2
    assert value("grades_total", grader="correct", status="abstained") == 1
    assert value("grades_total", grader="other", status="failed") == 1
    assert value("grade_failures_total", grader="other", kind="timeout") == 1


def test_decisions_count_by_reason(meter, value):
    """Refusals by reason, evictions by rollout."""
    refused = RolloutRefused(
        id="1", namespace="n", trajectory_id="t", trajectory_revision=1, group="g", reason="no_reward"
    )
    evicted = RolloutsEvicted(id="2", namespace="n", rollout_ids=("a", "b"), reason="bytes")
    Metering(meter, lambda: 0).committed("buffer", (), [Output("buffer-events", "n", lines(refused, refused, evicted))])
    assert value("rollouts_refused_total", namespace="n", reason="no_reward") == 2
    assert value("rollouts_evicted_total", namespace="n") == 2


def test_the_time_from_event_to_grade_is_the_logs(meter, value):
    """Now on the log's clock less the log time of the last event; records that say none are left out."""
    outputs = [Output("grades", "t", b"", {"last_ms": "1000"}), Output("grades", "t", b"", {})]
    Metering(meter, lambda: 1400).committed("grade", (Consumed("trajectories", 0, 0, 2),), outputs)
    assert value("event_to_grade_seconds_count") == 1
    assert value("event_to_grade_seconds_sum") == pytest.approx(0.4)


def test_lag_age_and_margin(embedded, meter, value, clock):
    """Records left, how old the oldest of them is, and how far the stage is from what the log drops."""
    log, store = embedded
    place = {"stage": "assemble", "topic": "telemetry", "partition": "0"}
    log.append("telemetry", [Message("k", b"{}")] * 2)
    runner = StageRunner(Copier(), log, store)
    gauges = Gauges(log, meter, lambda: [runner])
    runner.run_once()
    gauges.look()
    assert (value("lag_records", **place), value("delay_seconds", **place)) == (0, 0)
    log.append("telemetry", [Message("k", b"{}")] * 3)
    clock.advance(7000)
    log.append("telemetry", [Message("k", b"{}")])
    gauges.look()
    assert (value("lag_records", **place), value("delay_seconds", **place)) == (4, 7)
    assert value("retention_margin_records", **place) == 2
    log.trim("telemetry", 0, 5)
    gauges.look()
    assert value("retention_margin_records", **place) == 0


def test_calls_of_models_count_by_where_their_cost_is_from(meter, value):
    """Told, priced by a table, or unknown; a response that counted no tokens is none of these."""
    priced = {"table": "t", "since": "2025-01-01", "currency": "USD"}
    usages = [{"output_tokens": 3, "cost": 0.1}, {"output_tokens": 3, "priced": priced}, {"input_tokens": 3}, {}]
    events = [{"kind": "ModelResponded", "usage": usage} for usage in usages] + [{"kind": "ToolReturned"}]
    body = msgspec.json.encode({"status": "complete", "reason": "complete", "events": events})
    Metering(meter, lambda: 0).committed("assemble", (), [Output("trajectories", "t", body, {"kind": "trajectory"})])
    assert [value("model_calls_total", cost=told) for told in ("told", "priced", "unknown", "none")] == [1, 1, 1, None]
