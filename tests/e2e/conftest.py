"""The command line as people run it: processes in a folder of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.cli import main

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
PATIENCE_S = 60


class Mill:
    """A folder, its settings, and commands run in it. ``mark`` is in the environment of every process that
    comes of it.
    """

    def __init__(self, folder):
        self.folder = folder
        self.mark = f"mill-{uuid.uuid4()}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.env = {**clean, "MILL_MARK": self.mark, "OMP_NUM_THREADS": "1"}

    @property
    def data(self):
        return self.folder / ".millstream"

    def settings(self, text):
        """Write millstream.toml."""
        (self.folder / "millstream.toml").write_text(text, encoding="utf-8")

    def run(self, *words, env=None, stdin=None, cwd=None):
        """One command, to its end."""
        return subprocess.run(
            [*COMMAND, *map(str, words)],
            cwd=cwd or self.folder,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            text=not isinstance(stdin, bytes),
            timeout=PATIENCE_S,
            check=False,
        )

    def json(self, *words, code=0, **options):
        """The one document of a command with --json."""
        done = self.run(*words, "--json", **options)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def up(self, *words):
        """A running `up`; see `running`."""
        return self.running("up", *words, ready="running ")

    @contextlib.contextmanager
    def running(self, *words, ready, env=None):
        """A command that runs on, ready when it says so on standard error; ended by SIGTERM (and it must end
        well) when the block is left.
        """
        told = self.folder / f"{words[0]}-{uuid.uuid4().hex[:6]}.txt"
        with told.open("w") as errors:
            process = subprocess.Popen(
                [*COMMAND, *map(str, words)],
                cwd=self.folder,
                env={**self.env, **(env or {})},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        process.told = told.read_text
        try:
            until(lambda: process.poll() is not None or ready in told.read_text(), f"{words} did not start")
            assert process.poll() is None, told.read_text()
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE_S)
            assert process.returncode in (0, 130), (process.returncode, told.read_text())
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def processes(self):
        """The command lines of all living processes that came of this mill (Linux)."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (folder / "environ").read_bytes():
                        found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    @contextlib.contextmanager
    def embedded(self):
        """The log and the store, opened beside whatever runs."""
        opened = open_sqlite(self.data / "log.db")
        try:
            yield opened
        finally:
            opened.close()

    def audit(self):
        """The books, once the stages have caught up; they must balance."""
        found = self.json("audit", "--wait", "30")
        assert found["balanced"] is True, found
        return found


def until(condition, told="it did not come about"):
    """Ask until it is so, and return what it said."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, told() if callable(told) else told
        threading.Event().wait(0.05)
    return answer


@pytest.fixture
def mill(tmp_path):
    """A fresh folder; whatever was started in it is gone at the end."""
    made = Mill(tmp_path)
    yield made
    if Path("/proc/self/environ").exists():
        until(lambda: not made.processes(), lambda: f"left behind: {made.processes()}")


@pytest.fixture(scope="session")
def wait_until():
    """`until`, for tests."""
    return until


@pytest.fixture(scope="session")
def examples(root):
    """The small files that ship."""
    return root / "examples" / "data"


@pytest.fixture
def cli(mill, monkeypatch, capfd):
    """A command in this process, in the mill's folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(mill.folder)

    def run(*words):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return ended.value.code, out, err

    return run
