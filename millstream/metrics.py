"""Metrics: a closed, typed list. Exporters make nothing that is not here; the Grafana board, the alarms and
docs/operations.md are held to it by a test.

Counts start at 0 with the process (a scraper takes rates of them); gauges are what stands in the log and the
stores at the last look. Where several processes share a stage each tells its own partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
"""Values, in the order of the metric's label names."""


class Metric(Struct, frozen=True):
    """One figure: its name as it is scraped, its kind, its label names and what it means. ``buckets``: the
    upper bounds of a histogram, in the metric's unit.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    means: str
    buckets: tuple[float, ...] = ()


_PLACE = ("stage", "topic", "partition")
_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

INFO = Metric("millstream_info", "gauge", ("version",), "always 1; the version that runs")
RECORDS = Metric("millstream_records_total", "counter", ("stage", "topic"), "records read and committed")
OUTPUTS = Metric("millstream_outputs_total", "counter", ("stage", "topic"), "records written")
TRAJECTORIES = Metric(
    "millstream_trajectories_total", "counter", ("status", "reason"), "runs sealed, by status and why they were sealed"
)
MODEL_CALLS = Metric(
    "millstream_model_calls_total",
    "counter",
    ("cost",),
    "calls of models in sealed runs: their cost was told, priced by the table, or is unknown",
)
DEAD_LETTERS = Metric(
    "millstream_dead_letters_total", "counter", ("stage", "reason"), "things that could not be used, by reason"
)
GRADES = Metric(
    "millstream_grades_total", "counter", ("grader", "status"), "grades: scored, failed, abstained or censored"
)
GRADE_FAILURES = Metric(
    "millstream_grade_failures_total", "counter", ("grader", "kind"), "failed grades by kind; none became a reward"
)
EVENT_TO_GRADE = Metric(
    "millstream_event_to_grade_seconds",
    "histogram",
    (),
    "from the log time of a complete run's last event to its committed grades",
    _LATENCIES,
)
JUDGE_CALLS = Metric(
    "millstream_judge_calls_total",
    "counter",
    ("model", "outcome"),
    "calls of a judge's endpoint: answered, busy, slow (no answer in time) or rejected",
)
JUDGE_VERDICTS = Metric(
    "millstream_judge_verdicts_total",
    "counter",
    ("model", "outcome"),
    "questions to a judge: given, cached, or failed as unparsable, timeout, infrastructure",
)
JUDGE_TOKENS = Metric(
    "millstream_judge_tokens_total",
    "counter",
    ("model", "direction"),
    "tokens of a judge, input and output (guessed where the endpoint counts none)",
)
JUDGE_COST = Metric(
    "millstream_judge_cost_total", "counter", ("model",), "what a judge cost, in the currency of [judge] prices"
)
JUDGE_SECONDS = Metric(
    "millstream_judge_call_seconds", "histogram", (), "one call of a judge's endpoint, however it ended", _LATENCIES
)
MISSING = Metric(
    "millstream_grades_missing",
    "gauge",
    ("grader",),
    "runs that a judge or an endpoint that was away did not grade, and that wait for a second try",
)
ADMITTED = Metric("millstream_rollouts_admitted_total", "counter", ("namespace",), "rollouts the buffer took")
REFUSED = Metric(
    "millstream_rollouts_refused_total", "counter", ("namespace", "reason"), "rollouts the buffer refused, by reason"
)
EVICTED = Metric("millstream_rollouts_evicted_total", "counter", ("namespace",), "rollouts that made room")
WAITS = Metric(
    "millstream_waits_total", "counter", ("part",), "how often a stage or worker found something outside unavailable"
)
WAITING = Metric("millstream_waiting", "gauge", ("part",), "1 while a stage or worker waits for something outside")
LAG = Metric("millstream_lag_records", "gauge", _PLACE, "records written and not yet read")
DELAY = Metric("millstream_delay_seconds", "gauge", _PLACE, "age of the oldest unread record, by log time; 0: none")
MARGIN = Metric(
    "millstream_retention_margin_records",
    "gauge",
    _PLACE,
    "records between the oldest kept and the next to read; at 0 under lag the topic is losing what was not read",
)
OPEN = Metric("millstream_open_trajectories", "gauge", ("partition",), "runs that wait for more events")
BUFFER_ROLLOUTS = Metric("millstream_buffer_rollouts", "gauge", ("namespace",), "rollouts in the buffer")
BUFFER_GROUPS = Metric("millstream_buffer_groups", "gauge", ("namespace",), "groups in the buffer")
BUFFER_BYTES = Metric("millstream_buffer_bytes", "gauge", ("namespace",), "bytes of payload in the buffer")
BUFFER_LEASED = Metric("millstream_buffer_leased", "gauge", ("namespace",), "rollouts that a training holds")
BUFFER_LAG = Metric(
    "millstream_buffer_lag_records", "gauge", ("namespace",), "decisions that the buffer has not applied yet"
)
TRAININGS = Metric(
    "millstream_trainings", "gauge", ("lineage", "state"), "trainings: requested, claimed, finished or failed"
)
VERDICTS = Metric(
    "millstream_gate_verdicts", "gauge", ("lineage", "verdict"), "gate decisions: promote, refuse or inconclusive"
)
ALARMS = Metric(
    "millstream_reward_alarms",
    "gauge",
    ("lineage", "alarm"),
    "alarms about a reward that stand: hack, avoidance, drift …",
)
CHAMPION = Metric("millstream_champion_version", "gauge", ("lineage",), "the version that serves")
PROXY_CALLS = Metric(
    "millstream_proxy_calls_total",
    "counter",
    ("api", "outcome"),
    "calls that the proxy recorded, by what became of them",
)
PROXY_UNRECORDED = Metric(
    "millstream_proxy_unrecorded_total", "counter", ("why",), "calls that passed unrecorded: no_room, too_large, …"
)
PROXY_OPEN = Metric("millstream_proxy_open_runs", "gauge", (), "conversations that the proxy would go on with")
CAPTURE_EVENTS = Metric(
    "millstream_capture_events",
    "gauge",
    ("fate",),
    "events since the process began: recorded, sent, spooled, replayed, refused, lost; failures of the log",
)
GATEWAY_REQUESTS = Metric(
    "millstream_gateway_requests_total", "counter", ("path", "status"), "requests that the gateway answered"
)
GATEWAY_ITEMS = Metric(
    "millstream_gateway_items_total", "counter", ("path", "fate"), "spans, log records and events: accepted or rejected"
)
GATEWAY_SECONDS = Metric(
    "millstream_gateway_seconds", "histogram", (), "from a whole request to its answer", _LATENCIES
)
REDACTED = Metric(
    "millstream_redacted_total", "counter", ("kind",), "values that the edge of a server took out, by what they were"
)

ALL: tuple[Metric, ...] = (
    INFO,
    RECORDS,
    OUTPUTS,
    TRAJECTORIES,
    MODEL_CALLS,
    DEAD_LETTERS,
    GRADES,
    GRADE_FAILURES,
    EVENT_TO_GRADE,
    JUDGE_CALLS,
    JUDGE_VERDICTS,
    JUDGE_TOKENS,
    JUDGE_COST,
    JUDGE_SECONDS,
    MISSING,
    ADMITTED,
    REFUSED,
    EVICTED,
    WAITS,
    WAITING,
    LAG,
    DELAY,
    MARGIN,
    OPEN,
    BUFFER_ROLLOUTS,
    BUFFER_GROUPS,
    BUFFER_BYTES,
    BUFFER_LEASED,
    BUFFER_LAG,
    TRAININGS,
    VERDICTS,
    ALARMS,
    CHAMPION,
    PROXY_CALLS,
    PROXY_UNRECORDED,
    PROXY_OPEN,
    CAPTURE_EVENTS,
    GATEWAY_REQUESTS,
    GATEWAY_ITEMS,
    GATEWAY_SECONDS,
    REDACTED,
)

CAPTURED: tuple[Metric, ...] = ALL[ALL.index(PROXY_CALLS) :]
"""Those of what serves capture over HTTP."""


class Meter(Protocol):
    """Takes figures, from any thread, and waits for nothing."""

    def add(self, metric: Metric, labels: Labels = (), amount: float = 1.0) -> None:
        """Raise a counter."""
        ...

    def observe(self, metric: Metric, values: Sequence[float]) -> None:
        """Values of a histogram."""
        ...

    def show(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """What a gauge is now, every series of it; those that are not named are gone."""
        ...


class Unmetered:
    """A `Meter` that nobody reads: where metrics are off."""

    def add(self, metric: Metric, labels: Labels = (), amount: float = 1.0) -> None:
        """Nothing."""

    def observe(self, metric: Metric, values: Sequence[float]) -> None:
        """Nothing."""

    def show(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Nothing."""
