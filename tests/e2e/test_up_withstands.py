"""What `millstream up` withstands: a second runner, a place it can't write, a full disk, a later format,
and company.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys

import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.codec import encode_lines
from millstream.events import MessageReceived, ModelResponded, TrajectoryEnded, TrajectoryStarted
from millstream.ports import Message

CLI = [sys.executable, "-c", "from millstream.cli import main; main()"]
AGENT = """
import sys
import millstream as ms
for number in range(20):
    with ms.record(task="How much?") as run:
        run.model(text=f"{sys.argv[1]} {number}")
        run.end("1")
"""


def run_of(name, size=20):
    common = {"trajectory_id": name, "producer": "sdk"}
    return [
        TrajectoryStarted(id=f"{name}/0", seq=0, **common),
        MessageReceived(id=f"{name}/1", seq=1, content="x" * size, **common),
        ModelResponded(id=f"{name}/2", seq=2, text="1", **common),
        TrajectoryEnded(id=f"{name}/3", seq=3, final_answer="1", last_seq={"sdk": 3}, **common),
    ]


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def log(data):
    embedded = open_sqlite(data / "log.db")
    yield embedded.log
    embedded.close()


@pytest.fixture
def start(data, tmp_path):
    """Start a command line on the data folder; it is killed at the end."""
    started = []

    def go(*words, code=CLI, folder=data, more=None, **options):
        environment = {**os.environ, "MILLSTREAM_STORAGE__DATA": str(folder), **(more or {})}
        started.append(
            subprocess.Popen(
                [*code, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env=environment,
                **options,
            )
        )
        return started[-1]

    yield go
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def done(start):
    """Run one to its end: (exit code, standard output, standard error)."""

    def go(*words, **options):
        process = start(*words, **options)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    return go


def until(process, text):
    """Read standard error up to a line that holds the text."""
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"{text!r} never came")


def test_a_second_runner_is_told_the_pid_of_the_first(start, done):
    """It ends at once with exit 2; the first goes on and ends cleanly when asked to."""
    first = start("up")
    until(first, "running")
    code, _, errors = done("up", "--until-idle")
    assert code == 2
    assert f"pid {first.pid}" in errors
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0


def test_a_place_that_cannot_be_written_names_the_mend(done):
    """Exit 3, one line, no traceback."""
    code, _, errors = done("up", "--until-idle", folder="/proc/nowhere")
    assert code == 3
    assert "/proc/nowhere" in errors
    assert "[storage]" in errors
    assert "Traceback" not in errors


def test_a_later_format_is_refused_with_the_version_it_needs(done, log, data):
    """Exit 3; every command that opens the data says so."""
    connection = sqlite3.connect(data / "log.db", isolation_level=None)
    connection.execute("UPDATE meta SET value = '9.1.0' WHERE key = 'needs'")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for words in (("up", "--until-idle"), ("audit",)):
        code, _, errors = done(*words)
        assert code == 3
        assert "9.1.0" in errors


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit (Linux)")
def test_a_full_disk_is_waited_out(start, done, log, data):
    """The stages say what to do, try again in place, and lose nothing once there is room."""
    for number in range(40):
        log.append("telemetry", [Message("k", encode_lines(run_of(f"run-{number}", 20_000)))])
    limit = (data / "log.db-wal").stat().st_size + 300_000
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    up = start("up", "--until-idle", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard)))
    told = until(up, "free some space")
    assert "log.db" in told
    resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (hard, hard))
    _, errors = up.communicate(timeout=60)
    assert up.returncode == 0, errors
    code, output, _ = done("audit", "--json")
    report = json.loads(output)
    assert code == 0
    assert report["balanced"]
    assert report["caught_up"]
    assert {"section": "trajectories", "name": "graded", "count": 40} in report["lines"]


@pytest.mark.slow
def test_it_has_company(start, done, root):
    """Two agents, an import and `status` beside a running `up`: everything arrives once."""
    up = start("up")
    until(up, "running")
    agents = [start(name, code=[sys.executable, "-c", AGENT]) for name in ("one", "two")]
    imported = done("import", str(root / "examples" / "data" / "chats.jsonl"), "--json")
    status = done("status")
    assert imported[0] == 0, imported
    assert status[0] == 0, status
    for agent in agents:
        assert agent.wait(60) == 0, agent.stderr.read()
    code, output, errors = done("audit", "--json", "--wait", "30")
    report = json.loads(output)
    assert code == 0, errors
    assert report["caught_up"]
    sealed = next(line["count"] for line in report["lines"] if line["name"] == "sealed")
    assert sealed == 2 * 20 + json.loads(imported[1])["trajectories"]
    assert not [line for line in report["lines"] if line["name"] in ("dead letter", "late", "lost")]
    up.send_signal(signal.SIGTERM)
    assert up.wait(30) == 0


def test_idle_is_not_done_while_the_buffer_is_away(log, done):
    """`--until-idle` with a buffer that does not answer ends with exit 3 and says so; later nothing is lacking."""
    log.append("telemetry", [Message("a", encode_lines(run_of("a")))])
    away = {"MILLSTREAM_STORAGE__BUFFER": "redis://127.0.0.1:1/0"}
    code, _, errors = done("up", "--until-idle", "--close-open", more=away)
    assert code == 3
    assert "the buffer waits" in errors
    assert done("up", "--until-idle")[0] == 0
    assert done("audit")[1].splitlines()[-1] == "balanced"
