"""An MLflow server on SQLite, its artifacts beside; and a server that is in trouble, for those who must cope."""

from __future__ import annotations

import contextlib
import http.server
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Self

from services.processes import Server, free_port


class MlflowServer:
    """One server on a loopback port, its data in ``folder``; started again it has what it had."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        command += ["--artifacts-destination", str(folder / "artifacts")]
        self.server = Server(command, folder / "mlflow.out", self._answers)
        self.start, self.stop, self.kill = self.server.start, self.server.stop, self.server.kill

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=1):
            return True
        return False


class TroubledServer:
    """Answers every request with ``status``, or (0) takes it and never answers. A context manager."""

    def __init__(self, status: int) -> None:
        self.asked = 0
        ended = self._ended = threading.Event()
        troubled = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                troubled.asked += 1
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    ended.wait(60)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 — the library's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
