"""``import millstream; with millstream.record(…)``: what a user's script does, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millstream.adapters.sqlite import open_sqlite
from millstream.codec import decode_lines
from millstream.events import FeedbackGiven, ModelResponded, TrajectoryEnded, TrajectoryStarted

SCRIPT = """
import sys
import millstream

with millstream.record("2+2?", agent="demo", split="train") as run:
    run.message("user", "2+2?")
    run.model(text="4")
millstream.feedback(run.id, value=1.0)
print(run.id)
heavy = {"torch", "transformers", "mlflow", "redis", "faust", "kafka"} & sys.modules.keys()
assert not heavy, heavy
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)


def test_a_plain_script_records_into_the_folder_it_runs_in(tmp_path):
    """No settings, no setup: the run is in ./.millstream when the script has ended, and nothing heavy was loaded."""
    done = run(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    embedded = open_sqlite(tmp_path / ".millstream/log.db")
    records = embedded.log.read("telemetry", 0, 0)
    embedded.close()
    events = [event for record in records for event, _ in decode_lines(record.value or b"")]
    assert {type(event) for event in events} >= {TrajectoryStarted, ModelResponded, TrajectoryEnded, FeedbackGiven}
    assert {event.trajectory_id for event in events} == {done.stdout.strip()}


def test_bad_settings_do_not_stop_the_agent(tmp_path):
    """The agent's script ends well; the log line says what is wrong."""
    (tmp_path / "millstream.toml").write_text("[captur]\nflush_ms = 3\n")
    done = run(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "did you mean 'capture'" in done.stderr
    assert len(done.stdout.strip()) == 36
