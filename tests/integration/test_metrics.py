"""Metrics of the whole pipeline, scraped over HTTP, against what the log says."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from millstream.bootstrap import Runtime
from millstream.console.graded import grade_rows
from millstream.loading import load
from millstream.streams.second_tries import SecondTries


def scraped(text: str) -> dict[str, float]:
    """Every sample of a page, by name and labels as they are written."""
    return {name: float(value) for name, value in re.findall(r"^([^#\s].*) (\S+)$", text, re.MULTILINE)}


@pytest.fixture
def runtime(tmp_path: Path):
    """A runtime with metrics on a free port, and the shipped runs in its log."""
    file = tmp_path / "millstream.toml"
    file.write_text("[metrics]\nenabled = true\nport = 0\nsample_s = 0.001\n", encoding="utf-8")
    with Runtime(load(file)) as made:
        yield made


def test_what_is_scraped_is_what_the_log_says(runtime: Runtime, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Sealed runs, grades by kind, the buffer and no lag: the figures of `status` and `grades list`."""
    runtime.import_files([root / "examples" / "data" / "runs.ndjson"], kind="auto", lineage="", dry_run=False)
    pipeline = runtime.pipeline()
    url = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", capfd.readouterr().err)[1]
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{url}/readyz", timeout=10)
    pipeline.run(threading.Event(), until_idle=True)
    found = scraped(urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode())
    assert urllib.request.urlopen(f"{url}/readyz", timeout=10).read() == b"ok\n"
    assert found['millstream_trajectories_total{reason="complete",status="complete"}'] == 6
    grades = Counter((row["grader"], row["status"]) for row in grade_rows(runtime.log))
    assert grades
    for (grader, status), count in grades.items():
        assert found[f'millstream_grades_total{{grader="{grader}",status="{status}"}}'] == count
    stats = runtime.buffer().stats()
    assert found['millstream_buffer_rollouts{namespace="default"}'] == stats.rollouts == 6
    assert found['millstream_rollouts_admitted_total{namespace="default"}'] == 6
    assert {v for name, v in found.items() if name.startswith("millstream_lag_records{")} == {0}
    assert found["millstream_event_to_grade_seconds_count"] == 6


JUDGE = """
[metrics]
enabled = true
port = 0
sample_s = 0.001
[judge]
base_url = "{url}"
model = "judge"
price_input = 1.0
[graders]
enabled = []
files = ["judges.toml"]
[reward]
formula = "helpful"
"""


def test_the_judge_of_the_stream_is_scraped_too(tmp_path: Path, chat, root: Path, capfd) -> None:
    """Six runs, six questions: what the page says of them is what the judge's server saw and the grades say."""
    (tmp_path / "judges.toml").write_text('[helpful]\nkind = "score"\ncriteria = "Is it right?"\n', encoding="utf-8")
    file = tmp_path / "millstream.toml"
    file.write_text(JUDGE.format(url=chat.url), encoding="utf-8")
    chat.script('{"reason": "fine", "result": 0.5}')
    with Runtime(load(file)) as runtime:
        runtime.import_files([root / "examples" / "data" / "runs.ndjson"], kind="auto", lineage="", dry_run=False)
        pipeline = runtime.pipeline()
        url = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", capfd.readouterr().err)[1]
        pipeline.run(threading.Event(), until_idle=True)
        found = scraped(urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode())
        grades = [row for row in grade_rows(runtime.log) if row["grader"] == "helpful"]
    assert len(chat.asked) == len(grades) == 6
    assert found['millstream_judge_calls_total{model="judge",outcome="answered"}'] == 6
    assert found['millstream_judge_verdicts_total{model="judge",outcome="given"}'] == 6
    assert found["millstream_judge_call_seconds_count"] == 6
    tokens = [found[f'millstream_judge_tokens_total{{direction="{one}",model="judge"}}'] for one in ("input", "output")]
    assert sum(tokens) == 6 * 120
    assert found['millstream_judge_cost_total{model="judge"}'] == pytest.approx(tokens[0] / 1e6)


def test_what_a_judge_that_is_away_did_not_grade_is_counted(tmp_path: Path, chat, root: Path, capfd) -> None:
    """Six runs wait for a second try; when the judge is back none does."""
    (tmp_path / "judges.toml").write_text('[helpful]\nkind = "score"\ncriteria = "Is it right?"\n', encoding="utf-8")
    file = tmp_path / "millstream.toml"
    text = JUDGE.format(url=chat.url).replace("[graders]", "retries = 0\n[graders]\nretry_s = 0.01")
    file.write_text(text, encoding="utf-8")
    chat.script(503)
    with Runtime(load(file)) as runtime:
        runtime.import_files([root / "examples" / "data" / "runs.ndjson"], kind="auto", lineage="", dry_run=False)
        pipeline = runtime.pipeline()
        url = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", capfd.readouterr().err)[1]
        (again,) = [one.worker for one in pipeline.workers if isinstance(one.worker, SecondTries)]

        def missing() -> float:
            pipeline.monitor.gauges.look()
            return scraped(urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode())[
                'millstream_grades_missing{grader="helpful"}'
            ]

        for _ in range(200):
            pipeline.step()
            if again.missing == {"helpful": 6}:
                break
        assert missing() == 6
        chat.script('{"reason": "fine", "result": 0.5}')
        pipeline.run(threading.Event(), until_idle=True)
        for _ in range(2000):
            if again.missing == {"helpful": 0}:
                break
            again.step()
            threading.Event().wait(0.005)
        assert missing() == 0
