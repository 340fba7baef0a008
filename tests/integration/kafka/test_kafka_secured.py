"""An installation that reaches its cluster by SASL over TLS: SDK, commands and a worker, as people run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from millstream.adapters.kafka_log import KafkaLog
from millstream.adapters.kafka_topics import KafkaTopics
from millstream.ports import Message
from millstream.topics import ALL

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]  # a node takes its time on a busy machine
PATIENCE_S = 60

AGENT = """
import millstream
with millstream.record(task="What is 1 plus 1?", policy_version=1) as run:
    run.message("user", "What is 1 plus 1?")
    run.model(text="2")
    run.end(final_answer="2")
"""


class Folder:
    """A folder with the settings, and commands run in it."""

    def __init__(self, path, secure):
        self.path = path
        (path / "secret").write_text(secure.password + "\n")
        (path / "millstream.toml").write_text(
            f'[storage]\nlog = "{secure.url}"\nstate = "sqlite:///state.db"\n'
            f'[kafka]\nnamespace = "{secure.settings.namespace}"\npartitions = 2\nreplication = 1\nmin_insync = 1\n'
            f'security_protocol = "SASL_SSL"\nusername = "millstream"\npassword_file = "secret"\n'
            f'ca_file = "{secure.ca_file}"\n'
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.options = {"cwd": path, "env": clean, "text": True}

    def python(self, code, *args, code_is=0):
        done = subprocess.run(
            [sys.executable, "-c", code, *args], capture_output=True, timeout=PATIENCE_S, check=False, **self.options
        )
        assert done.returncode == code_is, done.stdout + done.stderr
        return done.stdout

    def run(self, *words, code_is=0):
        return self.python("from millstream.cli import main; main()", *words, code_is=code_is)

    def json(self, *words, code_is=0):
        return json.loads(self.run(*words, "--json", code_is=code_is))

    def work_off(self, stage):
        """Run a worker until it has read everything, and end it."""
        command = [sys.executable, "-c", "from millstream.cli import main; main()", "worker", stage]
        with (self.path / "told").open("w") as told:
            worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told, **self.options)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not self.caught_up(stage):
                assert worker.poll() is None, (self.path / "told").read_text()
                assert time.monotonic() < deadline, (self.path / "told").read_text()
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE_S) == 0
        finally:
            worker.kill()
            worker.wait()

    def caught_up(self, stage):
        told = self.json("status")
        places = [p for p in told["stages"] if p["stage"] == stage]
        ends = {t["partition"]: t["end"] for t in told["topics"] if t["topic"] == "telemetry"}
        return all(ends[n] == 0 or any(p["partition"] == n and not p["lag"] for p in places) for n in ends)


@pytest.fixture
def folder(tmp_path, secure):
    """The settings' folder; the topics are removed in the end."""
    yield Folder(tmp_path, secure)
    with closing(KafkaTopics(secure)) as topics:
        topics.delete(*(topic.name for topic in ALL))


def test_the_whole_way_by_sasl_over_tls(folder, secure, root):
    """Topics made, events by SDK and import, a worker, a dead letter found and replayed, the audit behind."""
    assert {item["done"][0] for item in folder.json("topics", "create")["items"]} == {"created"}
    folder.python(AGENT)
    assert folder.json("import", str(root / "examples/data/runs.ndjson"))["trajectories"] == 6
    with closing(KafkaLog(secure)) as log:
        log.append("telemetry", [Message("k", b"{not json}\n")], 1)
        topic_id = log.topic_id("telemetry")
    folder.work_off("assemble")
    assert folder.json("trajectories", "list")["total"] == 7

    (row,) = folder.json("dead-letters", "list")["items"]
    letter = folder.json("dead-letters", "show", row["id"])
    assert (letter["topic_id"], letter["partition"], letter["index"]) == (topic_id, 1, 0)
    assert row["place"] == f"telemetry:1:{letter['offset']}:0"
    assert letter["code_version"]
    assert folder.json("dead-letters", "replay", row["id"])["replayed"] == 1
    assert folder.json("dead-letters", "replay", row["id"])["already"] == 1

    books = folder.json("audit")
    assert (books["balanced"], books["caught_up"], books["lag"]["assemble"]) == (True, False, 1)
    assert "millstream-secret" not in folder.run("settings", "show")


def test_refused_credentials_are_exit_3(folder):
    """A command and a worker end with one line that names the user, the address and the settings."""
    (folder.path / "secret").write_text("wrong")
    for words in (("status",), ("worker", "assemble")):
        folder.run(*words, code_is=3)


def test_the_sdk_keeps_events_while_the_cluster_is_away(folder, secure):
    """What an agent says while nothing listens is in the spool, and goes out with the next process that flushes."""
    folder.run("topics", "create")
    text = (folder.path / "millstream.toml").read_text()
    away = text.replace(secure.url, "kafka://127.0.0.1:1")
    (folder.path / "millstream.toml").write_text(away + "timeout_s = 1\n")
    folder.python(AGENT)
    (folder.path / "millstream.toml").write_text(text)
    folder.python(AGENT + "from millstream.capture.sdk import flush\nassert flush(30)\n")
    with closing(KafkaLog(secure)) as log:
        ends = [log.bounds("telemetry", partition)[1] for partition in range(2)]
        records = [r for p, end in enumerate(ends) if end for r in log.read("telemetry", p, 0, 1 << 30)]
    assert sum(r.value.count(b'"TrajectoryEnded"') for r in records) == 2
