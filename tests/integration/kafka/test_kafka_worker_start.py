"""A worker's first look at what it needs: what does not heal ends it with one line, what may heal is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from services.mlflow_server import TroubledServer
from services.processes import free_port
from services.redis_server import RedisServer

pytestmark = pytest.mark.services

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
QUICK = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


@pytest.fixture
def begin(tmp_path, kafka_node, prefix):
    """Start a worker of a namespace of this test's own; ``storage`` replaces where things are."""
    started = []

    def go(stage, *, topics=True, more="", **storage):
        places = {"log": kafka_node.url, "state": "sqlite:///state.db", **storage}
        told = "".join(f'{name} = "{place}"\n' for name, place in places.items())
        (tmp_path / "millstream.toml").write_text(
            f'[storage]\n{told}[kafka]\nnamespace = "{prefix}"\npartitions = 1\nreplication = 1\nmin_insync = 1\n'
            f"timeout_s = 1\n{more}"
        )
        if topics:
            subprocess.run([*COMMAND, "topics", "create"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
        options = {"cwd": tmp_path, "env": {**os.environ, **QUICK}, "text": True}
        started.append(
            subprocess.Popen([*COMMAND, "worker", stage], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        )
        return started[-1]

    yield go
    for one in started:
        one.kill()
        one.wait()
        one.stdout.close()
        one.stderr.close()


def refused(process):
    """The one line that a worker ends with."""
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, ""), errors
    assert "Traceback" not in errors
    last = errors.splitlines()[-1]
    assert last.startswith("millstream: ")
    return last


def waiting(process, word, lines):
    """The first so many lines with a word in them, while the worker goes on."""
    found = []
    while len(found) < lines:
        line = process.stderr.readline()
        assert line, f"it ended with {process.wait()}"
        found += [line] if word in line else []
    return found


def ended(process):
    """SIGTERM ends it with 0."""
    rest = threading.Thread(target=process.stderr.read)
    rest.start()
    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    rest.join()
    return code == 0


def test_missing_topics_end_it_with_the_command_that_mends_them(begin, kafka_node, prefix):
    """All of them are named."""
    last = refused(begin("assemble", topics=False))
    assert last.startswith(f"millstream: {kafka_node.url} lacks the topics {prefix}.telemetry, ")
    assert last.endswith("; `millstream topics create` mends it")


def test_a_redis_that_evicts_ends_it(begin, tmp_path):
    """By the address, the policy and the command that mends it."""
    server = RedisServer(tmp_path / "redis", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb")
    server.start()
    try:
        last = refused(begin("assemble", state=server.url))
    finally:
        server.stop()
    assert server.url in last
    assert "maxmemory_policy is allkeys-lru" in last
    assert "CONFIG SET maxmemory-policy noeviction" in last


@pytest.mark.parametrize(("away", "name"), [("kafka", "log"), ("redis", "state")])
def test_what_is_away_is_waited_for_until_sigterm(begin, away, name):
    """One line each time, after a longer pause each time, with the address, the cause and the mend."""
    url = f"{away}://127.0.0.1:{free_port()}" + ("/0" if away == "redis" else "")
    process = begin("grade", topics=away == "redis", **{name: url})
    waits = waiting(process, "trying again", 3)
    says = f"{url} does not answer: Connection refused; is it running, and is [storage] {name} right?; trying again in"
    assert [line.rpartition(" in ")[0] for line in waits] == [says.removesuffix(" in")] * 3
    assert len(set(waits)) > 1
    assert ended(process)


def test_an_mlflow_in_trouble_is_told_in_one_line(begin, root):
    """500: the trainer waits, and says what the server said, without the library's words around it."""
    with TroubledServer(500) as server:
        base = root / "examples" / "finqa" / "base"
        process = begin("train", tracking=server.url, more=f'[policy]\nbase = "{base}"\n')
        (line,) = waiting(process, "MLflow at", 1)
        assert f"MLflow at {server.url}: ResponseError('too many 500 error responses'); is it running" in line
        assert ended(process)
