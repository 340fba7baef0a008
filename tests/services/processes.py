"""A server as a child process: started and waited for, stopped politely or not, started again on its data."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below the ports that the system gives to clients, so that none is taken while its server restarts."""


class ServiceFailed(Exception):
    """A server that did not come up, with the end of what it said."""


def free_port() -> int:
    """A loopback port that nobody listens on."""
    while True:
        port = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """One server process in a session of its own; ``told`` is the file of all it says."""

    def __init__(self, command: Sequence[str], told: Path, ready: Callable[[], bool]) -> None:
        self.command = list(command)
        self.told = told
        self._ready = ready
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 when it does not run."""
        return self.process.pid if self.process and self.process.poll() is None else 0

    def start(self, patience_s: float = 60.0) -> None:
        """Start it, and wait until it is ready. Raises `ServiceFailed`."""
        with self.told.open("wb") as told:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, start_new_session=True
            )
        deadline = time.monotonic() + patience_s
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                said = self.told.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise ServiceFailed(f"{self.command[0]} did not come up:\n{said}")
            time.sleep(0.02)

    def stop(self, patience_s: float = 20.0) -> None:
        """End it politely, by force when it does not obey."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        self.kill()

    def kill(self) -> None:
        """End it with kill -9; its data stays as it was."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
