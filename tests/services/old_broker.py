"""A broker of long ago: it tells what it speaks (Kafka 0.10), and where it is; a context manager."""

from __future__ import annotations

import socketserver
import struct
import threading
from typing import Self

METADATA, API_VERSIONS = 3, 18
SPOKEN = ((0, 0, 2), (1, 0, 2), (2, 0, 0), (METADATA, 0, 1), (10, 0, 0), (API_VERSIONS, 0, 0))
"""Kind of request, oldest and newest version."""
UNSUPPORTED = 35


class OldBroker:
    """Listens on loopback, at ``address``."""

    def __init__(self) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while size := self.rfile.read(4):
                    request = self.rfile.read(*struct.unpack(">i", size))
                    kind, version, correlation = struct.unpack(">hhi", request[:8])
                    told = struct.pack(">i", correlation) + answer(kind, version, self.server.server_address[1])
                    self.wfile.write(struct.pack(">i", len(told)) + told)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def answer(kind: int, version: int, port: int) -> bytes:
    """The body of an answer, in the oldest version of its kind that says it."""
    if kind == API_VERSIONS:
        spoken = b"".join(struct.pack(">hhh", *one) for one in SPOKEN)
        return struct.pack(">hi", UNSUPPORTED if version else 0, len(SPOKEN)) + spoken
    if kind == METADATA:
        host = b"127.0.0.1"
        broker = struct.pack(">iih", 1, 1, len(host)) + host + struct.pack(">i", port)
        rack_controller = struct.pack(">h", -1) + struct.pack(">i", 1) if version else b""
        return broker + rack_controller + struct.pack(">i", 0)
    return b""
