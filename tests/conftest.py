"""What all tests share: hypothesis profiles, the folder of real data, and a closed network."""

from __future__ import annotations

import gc
import ipaddress
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from services.chat import Chat
from services.fixtures import kafka_node, mlflow_server, prefix, redis_server

__all__ = ["kafka_node", "mlflow_server", "prefix", "redis_server"]

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "dev", max_examples=30, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci", max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def cpu_s() -> Callable[..., float]:
    """What a piece of work takes, in CPU seconds: the least of up to three tries, ending at one below ``enough``. The
    collector is held off: a pause of it, in a process that has run thousands of tests, is not the work's.
    """

    def least(work: Callable[[], object], enough: float = 0.0) -> float:
        best = math.inf
        gc.disable()
        try:
            for _ in range(3):
                began = time.process_time()
                work()
                best = min(best, time.process_time() - began)
                if best < enough:
                    break
        finally:
            gc.enable()
        return best

    return least


@pytest.fixture(scope="session")
def _chat_server() -> Iterator[Chat]:
    server = Chat()
    yield server
    server.close()


@pytest.fixture
def chat(_chat_server: Chat) -> Chat:
    """A scripted OpenAI-compatible chat server, its script empty."""
    return _chat_server.fresh()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real files; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("MILLSTREAM_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder} (MILLSTREAM_DATA names the folder)")
    return folder


@pytest.fixture(autouse=True)
def _closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every socket that is neither loopback nor local."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0])  # type: ignore[index]
            if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
                raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
