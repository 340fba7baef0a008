"""Writes board.json, the Grafana board: `python ops/grafana/write_board.py`.

A panel is a line here. A test holds the written file to this script, and every name in it to the list of metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

BOARD = Path(__file__).with_name("board.json")
WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 24, 8, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
RATE = "$__rate_interval"


class Panel(NamedTuple):
    """A title, what to look for, queries with their legends, a unit, and a row title that begins before it."""

    title: str
    look_for: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    row: str = ""
    kind: str = "timeseries"


PANELS = (
    Panel(
        "Processes",
        "Each worker and its version; one that is missing is down.",
        (("millstream_info", "{{instance}} {{version}}"),),
        row="Is it running?",
    ),
    Panel(
        "Waits for something outside",
        "Not 0: a broker, Redis or MLflow is away; nothing is lost.",
        (
            ("sum by (part) (millstream_waiting)", "{{part}}"),
            (f"sum by (part) (rate(millstream_waits_total[{RATE}]))", "{{part}} tries/s"),
        ),
    ),
    Panel(
        "Dead letters",
        "Things that could not be used, a second, by stage and reason.",
        ((f"sum by (stage, reason) (rate(millstream_dead_letters_total[{RATE}]))", "{{stage}} {{reason}}"),),
    ),
    Panel(
        "Gateway: requests",
        "By status a second; 429 and 503 for long: the log is slow or away. Rejected things can become nothing.",
        (
            (f"sum by (path, status) (rate(millstream_gateway_requests_total[{RATE}]))", "{{path}} {{status}}"),
            (f"sum by (path, fate) (rate(millstream_gateway_items_total[{RATE}]))", "{{path}} {{fate}}"),
        ),
        row="What comes in?",
    ),
    Panel(
        "Gateway: time to answer",
        "Half, and 99 of 100 requests are in the log within this time.",
        (
            (f"histogram_quantile(0.5, sum by (le) (rate(millstream_gateway_seconds_bucket[{RATE}])))", "p50"),
            (f"histogram_quantile(0.99, sum by (le) (rate(millstream_gateway_seconds_bucket[{RATE}])))", "p99"),
        ),
        unit="s",
    ),
    Panel(
        "Taken out at the edge",
        "Secrets and personal data by kind; failed: a redactor of yours could not look, the texts went whole.",
        ((f"sum by (kind) (rate(millstream_redacted_total[{RATE}]))", "{{kind}}"),),
    ),
    Panel(
        "Proxy: calls",
        "By outcome a second; unrecorded ones went on all the same. Spooled events wait for the log.",
        (
            (f"sum by (api, outcome) (rate(millstream_proxy_calls_total[{RATE}]))", "{{api}} {{outcome}}"),
            (f"sum by (why) (rate(millstream_proxy_unrecorded_total[{RATE}]))", "unrecorded {{why}}"),
            ("sum by (fate) (millstream_capture_events)", "events {{fate}}"),
            ("sum (millstream_proxy_open_runs)", "open runs"),
        ),
    ),
    Panel(
        "Records behind",
        "Must come back to 0 after a peak; rising for long: add workers.",
        (("sum by (stage, topic) (millstream_lag_records)", "{{stage}} {{topic}}"),),
        row="Does it keep up?",
    ),
    Panel(
        "Age of the oldest unread record",
        "Alarms well before the retention of the topic.",
        (("max by (stage, topic) (millstream_delay_seconds)", "{{stage}} {{topic}}"),),
        unit="s",
    ),
    Panel(
        "Retention margin",
        "Records between what the log drops next and what a stage reads next.",
        (("min by (stage, topic) (millstream_retention_margin_records)", "{{stage}} {{topic}}"),),
    ),
    Panel(
        "Records a second",
        "What each stage reads and writes.",
        (
            (f"sum by (stage) (rate(millstream_records_total[{RATE}]))", "{{stage}} reads"),
            (f"sum by (stage) (rate(millstream_outputs_total[{RATE}]))", "{{stage}} writes"),
        ),
    ),
    Panel(
        "Last event to grade",
        "Half, and 99 of 100 complete runs are graded within this time.",
        (
            (f"histogram_quantile(0.5, sum by (le) (rate(millstream_event_to_grade_seconds_bucket[{RATE}])))", "p50"),
            (f"histogram_quantile(0.99, sum by (le) (rate(millstream_event_to_grade_seconds_bucket[{RATE}])))", "p99"),
        ),
        unit="s",
    ),
    Panel(
        "Open runs",
        "Runs that wait for more events; a steady rise: agents do not end their runs.",
        (("sum by (partition) (millstream_open_trajectories)", "partition {{partition}}"),),
    ),
    Panel(
        "Runs sealed",
        "By status; many timed out or interrupted: telemetry is lost on its way.",
        ((f"sum by (status, reason) (rate(millstream_trajectories_total[{RATE}]))", "{{status}} {{reason}}"),),
        row="Is the evidence sound?",
    ),
    Panel(
        "Calls of models",
        "By where their cost is from; unknown ones have no price in the table.",
        ((f"sum by (cost) (rate(millstream_model_calls_total[{RATE}]))", "{{cost}}"),),
    ),
    Panel(
        "Grades",
        "By grader and kind; only scored ones can become a reward.",
        ((f"sum by (grader, status) (rate(millstream_grades_total[{RATE}]))", "{{grader}} {{status}}"),),
    ),
    Panel(
        "Share of failed grades",
        "By grader; above a few per cent the grader is broken.",
        (
            (
                (
                    f'sum by (grader) (rate(millstream_grades_total{{status="failed"}}[{RATE}])) / '
                    f"sum by (grader) (rate(millstream_grades_total[{RATE}]))"
                ),
                "{{grader}}",
            ),
            (f"sum by (grader, kind) (rate(millstream_grade_failures_total[{RATE}]))", "{{grader}} {{kind}} /s"),
        ),
    ),
    Panel(
        "Judges: questions",
        "How each ended; cached ones cost nothing. Missing: not 0 while the judge is away; graded when it is back.",
        (
            (f"sum by (model, outcome) (rate(millstream_judge_verdicts_total[{RATE}]))", "{{model}} {{outcome}}"),
            (f"sum by (model, outcome) (rate(millstream_judge_calls_total[{RATE}]))", "{{model}} calls {{outcome}}"),
            ("sum by (grader) (millstream_grades_missing)", "{{grader}} missing"),
        ),
    ),
    Panel(
        "Judges: time of a call",
        "Half, and 99 of 100 calls of the endpoint end within this time.",
        (
            (f"histogram_quantile(0.5, sum by (le) (rate(millstream_judge_call_seconds_bucket[{RATE}])))", "p50"),
            (f"histogram_quantile(0.99, sum by (le) (rate(millstream_judge_call_seconds_bucket[{RATE}])))", "p99"),
        ),
        unit="s",
    ),
    Panel(
        "Judges: tokens and cost",
        "Tokens a second by direction; cost an hour, in the currency of [judge] prices.",
        (
            (f"sum by (model, direction) (rate(millstream_judge_tokens_total[{RATE}]))", "{{model}} {{direction}}"),
            (f"3600 * sum by (model) (rate(millstream_judge_cost_total[{RATE}]))", "{{model}} cost/h"),
        ),
    ),
    Panel(
        "Buffer: admitted, refused, evicted",
        "Refusals by reason; a jump of one reason is worth a look.",
        (
            (f"sum by (namespace) (rate(millstream_rollouts_admitted_total[{RATE}]))", "{{namespace}} admitted"),
            (
                f"sum by (namespace, reason) (rate(millstream_rollouts_refused_total[{RATE}]))",
                "{{namespace}} {{reason}}",
            ),
            (f"sum by (namespace) (rate(millstream_rollouts_evicted_total[{RATE}]))", "{{namespace}} evicted"),
        ),
        row="Does it learn?",
    ),
    Panel(
        "Buffer: size",
        "Rollouts, groups, and those a training holds.",
        (
            ("millstream_buffer_rollouts", "{{namespace}} rollouts"),
            ("millstream_buffer_groups", "{{namespace}} groups"),
            ("millstream_buffer_leased", "{{namespace}} leased"),
        ),
    ),
    Panel(
        "Buffer: bytes",
        "Against [buffer] max_bytes and Redis's maxmemory.",
        (("millstream_buffer_bytes", "{{namespace}}"),),
        unit="bytes",
    ),
    Panel(
        "Buffer: decisions not applied",
        "Not 0 for long: Redis is full or away; the log keeps the decisions.",
        (("millstream_buffer_lag_records", "{{namespace}}"),),
    ),
    Panel(
        "Trainings",
        "By state. Claimed for hours, or failed: `millstream trainings list`.",
        (("millstream_trainings", "{{lineage}} {{state}}"),),
    ),
    Panel(
        "Verdicts of the gate",
        "Promote, refuse, inconclusive.",
        (("millstream_gate_verdicts", "{{lineage}} {{verdict}}"),),
    ),
    Panel(
        "Alarms about rewards",
        "Not 0: a reward is being fooled; training on it is stopped. `millstream alarms list`.",
        (("millstream_reward_alarms", "{{lineage}} {{alarm}}"),),
    ),
    Panel(
        "Champion",
        "The version that serves.",
        (("millstream_champion_version", "{{lineage}}"),),
        kind="stat",
    ),
)


def panels() -> Iterator[dict[str, Any]]:
    """The panels of the board, three in a line, a row title where a new part begins."""
    x = y = number = 0
    for panel in PANELS:
        if panel.row:
            y += PANEL_HEIGHT if x else 0
            number += 1
            yield {"id": number, "type": "row", "title": panel.row, "collapsed": False, "panels": [],
                   "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}  # fmt: skip
            x, y = 0, y + 1
        number += 1
        yield drawn(panel, number, {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT})
        x += PANEL_WIDTH
        if x == WIDTH:
            x, y = 0, y + PANEL_HEIGHT


def drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """One panel as Grafana keeps it."""
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": SOURCE}
        for index, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.look_for,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def board() -> dict[str, Any]:
    """The whole board."""
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0}
    return {
        "uid": "millstream",
        "title": "Millstream",
        "description": "Is it running, does it keep up, is the evidence sound, does it learn?",
        "tags": ["millstream"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "annotations": {"list": []},
        "panels": list(panels()),
    }


def text() -> str:
    """The file."""
    return json.dumps(board(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    BOARD.write_text(text(), encoding="utf-8")
