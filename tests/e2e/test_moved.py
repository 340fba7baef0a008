"""A data directory is backed up under a running `up` and put back in another place, by the page's own commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading

import pytest
from trainable import blocks, runs, settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not shutil.which("sqlite3") and "CI" not in os.environ, reason="sqlite3 is not installed"),
]


def send(mill, turn):
    with mill.embedded() as (log, _):
        log.append("telemetry", list(runs(turn)))


def versions(mill):
    return {one["version"]: one for one in mill.json("policies", "list")["items"]}


def test_a_backup_in_another_place_goes_on(mill, root, tmp_path, wait_until):
    """`audit`, `why`, `rebuild --verify` and the next training work there, and nothing looks for the old place."""
    back_up, restore = blocks(root / "docs" / "operations.md", "The data directory")
    mill.folder = old = tmp_path / "here"
    old.mkdir()
    mill.settings(settings(root))
    env = {**mill.env, "BACKUP": str(tmp_path / "backup")}

    def do(block):
        subprocess.run(["sh", "-eu", "-c", block], env={**env, "DATA": str(mill.data)}, check=True)

    with mill.up():
        stop, sent = threading.Event(), []

        def busy():
            while not stop.wait(0.05):
                with mill.embedded() as (log, _):
                    log.append("telemetry", [next(runs(100 + len(sent)))])
                sent.append(1)

        writer = threading.Thread(target=busy)
        send(mill, 0)
        wait_until(lambda: 2 in versions(mill))
        writer.start()
        wait_until(lambda: sent)
        do(back_up)
        stop.set()
        writer.join()
    before = versions(mill)
    assert not before[2]["uri"].startswith("/")

    mill.folder = tmp_path / "elsewhere" / "mill"
    mill.folder.mkdir(parents=True)
    mill.settings(settings(root))
    do(restore)
    old.rename(tmp_path / "out of sight")
    assert f"files: {before[2]['uri']} in the data directory" in mill.run("why", "2").stdout
    assert (mill.data / before[2]["uri"] / "model.safetensors").is_file()
    again = mill.run("rebuild", "2", "--verify")
    assert again.returncode == 0, again.stdout + again.stderr

    send(mill, 1)
    done = mill.run("up", "--until-idle")
    assert done.returncode == 0, done.stderr
    assert mill.audit()["caught_up"]
    newest = versions(mill)[3]
    assert (mill.data / newest["uri"] / "model.safetensors").is_file()
    assert mill.run("rebuild", "3", "--verify").returncode == 0
    assert not old.exists()
