"""The child process of ``up``: one process that trains and evaluates, so torch is loaded once."""

from __future__ import annotations

from millstream.deploy import remote
from millstream.trainer import work


def handle(method: str, payload: bytes) -> bytes:
    """Answer one call: ``evaluate`` is the gate's, everything else the trainer's."""
    return remote.handle(method, payload) if method == "evaluate" else work.handle(method, payload)
