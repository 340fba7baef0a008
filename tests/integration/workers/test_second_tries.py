"""A judge that goes down and comes back, before grade workers on Kafka: one of them asks again what was missed."""

from __future__ import annotations

import pytest
from integration.workers.test_workers import record_runs

from millstream.console.graded import grade_rows

pytestmark = pytest.mark.services

RUNS = 12
JUDGE = '[helpful]\nkind = "score"\ncriteria = "Is it right?"\n'
SETTINGS = """\
[graders]
enabled = []
files = ["judges.toml"]
retry_s = 2
[judge]
base_url = "{url}"
model = "judge"
retries = 0
[reward]
formula = "helpful"
[alarms]
enabled = false
"""


def test_the_owner_of_the_first_partition_asks_again(works, wait, chat):
    """Two workers share four partitions; what both missed has a grade of a second attempt, given once."""
    chat.script(503)
    mill = works(more=SETTINGS.format(url=chat.url))
    (mill.folder / "judges.toml").write_text(JUDGE, encoding="utf-8")
    record_runs(mill, RUNS)
    started = [mill.start(stage) for stage in ("assemble", "grade", "grade")]

    def grades(status):
        assert all(process.poll() is None for process in started), [process.told() for process in started]
        rows = [row for row in grade_rows(mill.fresh_log()) if row["grader"] == "helpful" and row["status"] == status]
        return rows if len({row["trajectory_id"] for row in rows}) == RUNS else []

    told = lambda: "".join(process.told() for process in started)  # noqa: E731 — one line
    wait(lambda: grades("failed"), told)
    chat.script('{"reason": "fine", "result": 0.5}')
    scored = wait(lambda: grades("scored"), told)
    assert len(scored) == RUNS
    assert {row["counts"] for row in scored} == {True}
    assert min(row["attempt"] for row in scored) > 1
    assert len(chat.asked) == RUNS
    assert mill.end(*started) == [0] * 3
