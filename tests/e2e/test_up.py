"""`millstream up` as it runs in production: beside agents, imports and people, with bad input and bad luck."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from millstream.adapters.sqlite_schema import CURRENT
from millstream.events import TrajectoryStarted
from millstream.ledger import LedgerReader, append_policy_events, read_all
from millstream.policy import PolicyPromoted, PolicyRegistered
from millstream.ports import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("up")]

AGENT = """
import sys, millstream
name, runs = sys.argv[1], int(sys.argv[2])
for number in range(runs):
    with millstream.record(task={"id": f"{name}-{number}", "question": "6 * 7?", "reference": 42.0},
                           agent=name, trajectory_id=f"{name}-{number}", split="train") as run:
        run.message("user", "6 * 7?")
        run.model(tool_calls=[{"id": "c", "name": "calculator", "arguments": {"expression": "6*7"}}])
        run.tool(call_id="c", name="calculator", output="42")
        run.model(text="42")
        run.end(final_answer="42")
    millstream.feedback(run.id, value=1.0, source="user")
"""

FOLLOWER = """
import sys, threading
from pathlib import Path
import millstream
from millstream.bootstrap import Runtime
from millstream.ledger import LedgerReader
from millstream.loading import load
runtime = Runtime(load())
client, ledger = runtime.client(), LedgerReader(runtime.log)
number = 0
while not Path("stop").exists():
    champion = ledger.refresh().champion("policy")
    run = client.start_run("q", policy_version=champion.version, lineage="policy", trajectory_id=f"run-{number}")
    run.message("user", "q")
    run.model(text="a")
    run.end(final_answer="a")
    number += 1
    threading.Event().wait(0.03)
runtime.close()
"""


def agent(mill, code, *words):
    """A process that uses the SDK in the mill's folder."""
    return subprocess.Popen([sys.executable, "-c", code, *words], cwd=mill.folder, env=mill.env)


def registered(version, parent=None):
    """A version whose files nobody opens."""
    return PolicyRegistered(id=f"v{version}", lineage="policy", version=version, uri="made up", parent=parent)


def starts(log):
    """(log time, policy version) of every run that began, in order."""
    decoder = msgspec.json.Decoder(TrajectoryStarted)
    return [
        (record.log_ms, decoder.decode(line).policy_version)
        for record in read_all(log, "telemetry")
        for line in (record.value or b"").split(b"\n")
        if b'"kind":"TrajectoryStarted"' in line
    ]


def test_new_runs_get_the_restored_version_within_a_second(mill, wait_until):
    """Promotions and rollbacks by hand beside a running `up`: the next run of a living agent is served so."""
    with mill.up(), mill.embedded() as (log, _):
        first = PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap")
        append_policy_events(log, [registered(1), first, registered(2, 1)])
        follower = agent(mill, FOLLOWER)
        wait_until(lambda: starts(log), "the agent began no run")
        told = mill.run("promote", "2", "--reason", "try it")
        assert "version 2 of policy is the champion now" in told.stdout
        wait_until(lambda: starts(log)[-1][1] == 2, "no run got version 2")
        told = mill.run("rollback", "--reason", "it was worse")
        assert "version 1 of policy is the champion again" in told.stdout
        wait_until(lambda: starts(log)[-1][1] == 1, "no run got version 1 again")
        (mill.folder / "stop").touch()
        assert follower.wait(30) == 0
        ledger = LedgerReader(log).refresh()
        history = ledger.lineages["policy"].history
        assert [version for _, version in history] == [1, 2, 1]
        for at, version in history[1:]:
            seen = next(ms for ms, got in starts(log) if ms >= at and got == version)
            assert seen - at < 1000, f"version {version} took {seen - at} ms"
        last = history[-1][0]
        assert {got for ms, got in starts(log) if ms >= last + 1000} <= {1}
        mill.audit()
        runs = mill.json("trajectories", "list")["items"]
        assert {row["policy_version"] for row in runs} == {1, 2}
        live = mill.json("who-was-live", "--at", "2100-01-01")["items"]
        assert [(row["lineage"], row["version"]) for row in live] == [("policy", 1)]


def test_agents_an_import_and_status_beside_a_running_up(mill, examples, wait_until):
    """Two agents, an import and readers at once: every run arrives once, and the books balance."""
    with mill.up():
        agents = [agent(mill, AGENT, name, "15") for name in ("left", "right")]
        imported = mill.json("import", examples / "runs.ndjson", examples / "chats.jsonl")
        while any(process.poll() is None for process in agents):
            assert mill.json("status")["schema"] == "millstream.status/1"
        assert [process.returncode for process in agents] == [0, 0]
        wanted = 30 + imported["trajectories"]
        wait_until(lambda: mill.json("trajectories", "list")["total"] == wanted, "not every run arrived")
        books = mill.audit()
        lines = {line["name"]: line["count"] for line in books["lines"] if line["section"] == "events"}
        assert set(lines) <= {"in a trajectory", "feedback", "tick"}, lines
        rows = mill.json("trajectories", "list")["items"]
        assert {row["status"] for row in rows} == {"complete"}
        assert len({row["id"] for row in rows}) == wanted


def test_a_second_up_is_refused_with_the_pid_of_the_first(mill):
    """Exit 2, before anything is touched; the first goes on."""
    with mill.up() as first:
        second = mill.run("up", "--until-idle")
        assert second.returncode == 2
        assert f"pid {first.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        assert first.poll() is None
    assert mill.run("up", "--until-idle").returncode == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_ends_cleanly(mill, how, examples, wait_until):
    """Ctrl-C (to the whole process group) and SIGTERM: exit 0 or 130, no word of alarm, and neither the
    grader's child nor the buffer's server is left.
    """
    mill.run("init")
    mill.settings('[graders]\nfiles = ["graders.py"]\n')
    with mill.up() as process:
        mill.run("import", examples / "runs.ndjson")
        wait_until(lambda: mill.json("rollouts", "list")["total"] == 6)
        if Path("/proc/self/environ").exists():
            assert len(mill.processes()) >= 3  # up, the grader's child, the buffer's server and its guard
        if how == signal.SIGINT:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        assert process.wait(30) in (0, 130)
        assert "Traceback" not in process.told()
        assert "rror" not in process.told()
    wait_until(lambda: not mill.processes(), "children were left")
    assert mill.run("up", "--until-idle").returncode == 0
    mill.audit()


def test_a_valkey_that_is_killed_loses_nothing(mill, examples, wait_until):
    """The projection waits, a new server is started, and the buffer is what the log decided."""
    with mill.up():
        mill.run("import", examples / "runs.ndjson")
        wait_until(lambda: mill.json("buffer", "stats")["buffer"]["rollouts"] == 6)
        pid_file = mill.data / "valkey" / "valkey.pid"
        pid = pid_file.read_text()
        os.kill(int(pid), signal.SIGKILL)
        mill.run("import", examples / "chats.jsonl")
        wait_until(lambda: pid_file.exists() and pid_file.read_text() not in ("", pid), "no new server was started")
        admitted = wait_until(
            lambda: (
                (d := mill.json("buffer", "stats")["decisions"].get("admitted", 0)) > 6
                and mill.json("buffer", "stats")["buffer"]["rollouts"] == d
                and d
            ),
            "the buffer did not catch up",
        )
        mill.audit()
    assert mill.json("buffer", "stats")["buffer"]["rollouts"] == admitted


def line(kind, identity, **fields):
    """One event as JSON."""
    return json.dumps(
        {"kind": kind, "id": identity, "trajectory_id": "bad", "producer": "p", "seq": 0, **fields}
    ).encode()


def bad_records():
    """(reason or None for one that is kept, value) of what producers may send, each on a run of its own."""
    great = "x" * 3_000_000
    started = line("TrajectoryStarted", "s")
    return [
        ("undecodable", b"\xff\xfe\x00 no json"),
        ("undecodable", line("MessageReceived", "b1") + b"\n{broken\n" + line("MessageReceived", "b2", seq=1)),
        ("unknown_schema", line("SomethingElse", "k")),
        ("unknown_schema", line("MessageReceived", "n", schema=99)),
        ("undecodable", line("MessageReceived", "w", seq="three")),
        (None, started[:-1] + b', "propensity": NaN}'),
        (None, line("ToolReturned", "t", call_id="c", output=great)),
        (None, line("MessageReceived", "l")[:-1] + b', "content": "half \\ud83d an emoji"}'),
        (None, line("ModelResponded", "a", tool_calls=[{"id": "c", "name": "f", "arguments": "{not json"}])),
        (None, line("MessageReceived", "c", content=None)),
        (None, None),
    ]


def test_bad_events_stop_nothing_and_are_found_again(mill, examples, wait_until):
    """Each bad record becomes a dead letter or is repaired; good runs before and after them are whole."""
    with mill.up() as process, mill.embedded() as (log, _):
        mill.run("import", examples / "runs.ndjson")
        for reason, value in bad_records():
            unique = value and value.replace(b'"bad"', f'"bad-{reason}-{len(value)}"'.encode())
            log.append("telemetry", [Message("bad", unique, {"dialect": "millstream"})])
        mill.run("import", examples / "chats.jsonl")
        letters = wait_until(
            lambda: (rows := mill.json("dead-letters", "list")["items"]) and len(rows) >= 5 and rows,
            "the dead letters did not come",
        )
        mill.audit()
        assert process.poll() is None
        reasons = [row["reason"] for row in letters]
        assert sorted(reasons) == sorted(reason for reason, _ in bad_records() if reason)
        for row in letters:
            whole = mill.json("dead-letters", "show", row["id"])
            assert whole["schema"] == "millstream.dead-letter/1"
            assert whole["topic"] == "telemetry"
            assert whole["original"]
        books = mill.audit()
        events = {item["name"]: item["count"] for item in books["lines"] if item["section"] == "events"}
        assert sum(count for name, count in events.items() if "dead letter" in name) == 5
        assert sum(count for name, count in events.items() if "null" in name) == 1
    closed = mill.json("up", "--until-idle", "--close-open")
    assert closed["records"]["assemble"] >= 1
    rows = {row["id"]: row for row in mill.json("trajectories", "list")["items"]}
    bad = [name for name in rows if name.startswith("bad-")]
    assert len(bad) == 6  # five that are repaired, and the neighbours of the broken line
    assert {rows[name]["status"] for name in rows if name not in bad} == {"complete"}
    mill.audit()


def test_a_newer_data_format_is_refused_with_the_version_it_needs(mill):
    """Exit 3 for every command: a person must act; the file is left as it is."""
    assert mill.run("status").returncode == 0
    path = mill.data / "log.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {CURRENT.number + 1}")
    before = path.read_bytes()
    for words in (("up", "--until-idle"), ("status",), ("audit",)):
        done = mill.run(*words)
        assert done.returncode == 3, (words, done.stderr)
        assert f"format {CURRENT.number + 1}" in done.stderr
        assert "Traceback" not in done.stderr
    assert path.read_bytes() == before
    assert mill.run("doctor").returncode == 1


def test_a_folder_that_cannot_be_written_says_so(mill, examples):
    """The data directory below a file, for whoever asks: exit 3, one line, the mend in it."""
    (mill.folder / "file").write_text("in the way", encoding="utf-8")
    mill.settings('[storage]\ndata = "file/data"\n')
    for words in (("up", "--until-idle"), ("status",), ("import", examples / "runs.ndjson")):
        done = mill.run(*words)
        assert done.returncode == 3, (words, done.stderr)
        assert "choose another [storage] data" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    recorded = subprocess.run(
        [sys.executable, "-c", AGENT, "lost", "1"], cwd=mill.folder, env=mill.env, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert recorded.returncode == 0, "an agent must not break because the log is away"


def test_a_full_disk_waits_and_can_be_stopped(mill, examples, wait_until):
    """The stages say what is missing and try again; SIGTERM still ends them; with room they go on, nothing lost."""
    assert mill.run("import", examples / "runs.ndjson", examples / "chats.jsonl").returncode == 0
    size = (mill.data / "log.db").stat().st_size
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2); "
    told = mill.folder / "told"
    with told.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", limited + "from millstream.cli import main; main()", str(size - 8192), "up"],
            cwd=mill.folder, env=mill.env, stderr=errors,
        )  # fmt: skip
        wait_until(lambda: "trying again" in told.read_text() or process.poll() is not None)
        assert process.poll() is None, told.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3
    assert "free some space" in told.read_text()
    assert "Traceback" not in told.read_text()
    assert mill.run("up", "--until-idle").returncode == 0
    assert mill.json("trajectories", "list")["total"] == 12
    mill.audit()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_says_so(mill):
    """The same by permission."""
    mill.folder.chmod(0o500)
    try:
        done = mill.run("up", "--until-idle")
    finally:
        mill.folder.chmod(0o700)
    assert done.returncode == 3
    assert "writable" in done.stderr
