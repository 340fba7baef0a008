"""A rolling upgrade: workers of two builds on one Kafka and one Redis, then one build, then its format."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from integration.workers.builds import MARK, VERSION, next_build
from integration.workers.flow import SETTINGS, send

from millstream.formats import NEWEST
from millstream.ledger import read_all
from millstream.version import __version__

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
OUTCOME = """
import json, sys
from millstream.bootstrap.runtime import Runtime
from millstream.loading import load
from integration.workers.flow import outcome
with Runtime(load()) as runtime:
    print(json.dumps(outcome(runtime.log)))
"""
"""In a process of the new build, which can read what it wrote."""


@pytest.fixture
def builds(root, tmp_path):
    """What PYTHONPATH is for this version and for the next."""
    return {"PYTHONPATH": str(root)}, {"PYTHONPATH": str(next_build(root, tmp_path / "next"))}


def call(mill, build, *words, code=0):
    """A command of a build, to its end."""
    options = {"cwd": mill.folder, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run([*COMMAND, *words], env={**mill.env, **build}, check=False, **options)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def shown(mill, build):
    """The format, and which version had each stage last."""
    told = json.loads(call(mill, build, "format", "show", "--json"))
    return told["format"], {(one["stage"], one["version"]) for one in told["stages"]}


def test_two_builds_work_side_by_side_until_the_format_is_raised(works, wait, root, builds, stream, embedded_outcome):
    """Worker after worker is exchanged under load, then the format is raised: the results are those of one build.

    The raise is refused while a build that can't read it has a stage; forced, that build stops with exit 3 and
    writes nothing more, and can't come back.
    """
    before, after = builds
    mill = works(more=SETTINGS)
    parts = [stream[n::4] for n in range(4)]
    expected = embedded_outcome(lambda log: [send(log, part) for part in parts])

    def start(name, build):
        return mill.start(name.partition("-")[0], "--instance", name, env=build)

    running = {name: start(name, before) for name in ("assemble-0", "assemble-1", "grade-0", "buffer-0")}
    told = lambda: "".join(one.told() for one in running.values())  # noqa: E731
    send(mill.log, parts[0])
    wait(mill.settled, told)

    for name in ("buffer-0", "assemble-0", "assemble-1"):  # the grader stays what it was
        assert mill.end(running[name]) == [0]
        running[name] = start(name, after)
        if name == "assemble-0":
            send(mill.log, parts[1])  # while both builds assemble
    wanted = {("assemble", VERSION), ("grade", __version__), ("buffer", VERSION)}
    wait(lambda: mill.settled() and shown(mill, after) == (NEWEST.number, wanted), told)
    refused = call(mill, after, "format", "raise", code=2)
    assert f"grade:0 (millstream {__version__})" in refused
    assert "--force" in refused

    call(mill, after, "format", "raise", "--force")
    assert shown(mill, after)[0] == NEWEST.number + 1
    send(mill.log, parts[2])
    for old in (running["grade-0"], start("grade-0", before)):
        wait(lambda old=old: old.poll() is not None, old.told)
        assert old.returncode == 3
        assert old.told().splitlines()[-1].endswith(f"install millstream {VERSION} or later")
    assert f"install millstream {VERSION}" in call(mill, before, "status", code=3)

    running["grade-0"] = start("grade-0", after)
    send(mill.log, parts[3])
    wait(mill.settled, told)
    tests = {"PYTHONPATH": f"{after['PYTHONPATH']}:{root / 'tests'}"}
    found = subprocess.run(
        [sys.executable, "-c", OUTCOME], cwd=mill.folder, env={**mill.env, **tests}, check=True, capture_output=True
    )
    assert json.loads(found.stdout) == json.loads(json.dumps(expected))
    assert "balanced" in call(mill, after, "audit")
    for topic in ("trajectories", "grades"):
        partitions = range(mill.log.partitions(topic))
        marks = [[MARK in r.headers for r in read_all(mill.log, topic, partition)] for partition in partitions]
        assert all(sorted(one) == one for one in marks), "after the raise nothing is written the old way"
        assert {mark for one in marks for mark in one} == {False, True}
    assert mill.end(*running.values()) == [0] * len(running)
