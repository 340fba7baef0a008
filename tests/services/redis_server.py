"""A Redis server of the operating system: append-only, evicting nothing."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from services.processes import Server, free_port


def missing_for_redis() -> str:
    """What the machine lacks to run it; empty when nothing."""
    return "" if shutil.which("redis-server") else "redis-server is not installed (Debian: redis-server)"


class RedisServer:
    """One server on a loopback port, its data in ``folder``; started again it has what it had.

    ``options`` go to the command line: ``("--maxmemory", "64mb")``, say.
    """

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        command += ["--maxmemory-policy", "noeviction", *options]
        self.server = Server(command, folder / "redis.out", self._answers)
        self.start, self.stop, self.kill = self.server.start, self.server.stop, self.server.kill

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False
