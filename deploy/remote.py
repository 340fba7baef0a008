"""Evaluations in child processes: torch and the operator's code stay out of the loop's process.

The same module is both ends: `ChildEvaluator` asks, and in the child `handle` answers (see
`millstream.adapters.children`). On the wire: msgpack, which keeps a NaN a NaN for the gate to refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec
from msgspec import Struct

from millstream.deploy.evaluation import EvaluationRequest, Outcomes, TaskOutcome, named_function
from millstream.errors import SettingsError

MODULE = "millstream.deploy.remote"
"""What a child is started with."""


class Caller(Protocol):
    """A child process, as bootstrap makes it; one caller at a time."""

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call. Raises `Unavailable` when the child hangs or dies."""
        ...


class Errand(Struct, frozen=True):
    """What is asked of a child: which function, on what."""

    function: str
    request: EvaluationRequest


def handle(method: str, payload: bytes) -> bytes:
    """Answer in the child: ``evaluate`` runs the named function."""
    if method != "evaluate":
        raise SettingsError(f"{MODULE} answers 'evaluate', not {method!r}")
    errand = msgspec.msgpack.decode(payload, type=Errand)
    return msgspec.msgpack.encode(list(named_function(errand.function)(errand.request)))


class ChildEvaluator:
    """Runs requests in children, each child its share, side by side."""

    def __init__(self, children: Sequence[Caller], function: str, timeout_s: float | None = None) -> None:
        if not children:
            raise SettingsError("an evaluation needs at least one child process")
        self.children = children
        self.function = function
        self.timeout_s = timeout_s

    def evaluate_many(self, requests: Sequence[EvaluationRequest]) -> list[Outcomes]:
        """The outcomes of each request, in order. Raises `Unavailable` or `GraderError`."""
        width = len(self.children)
        shares = [range(start, len(requests), width) for start in range(width)]
        with ThreadPoolExecutor(max_workers=width) as pool:
            done = list(pool.map(lambda n: [(i, self._ask(n, requests[i])) for i in shares[n]], range(width)))
        found = dict(pair for share in done for pair in share)
        return [found[index] for index in range(len(requests))]

    def _ask(self, child: int, request: EvaluationRequest) -> Outcomes:
        payload = msgspec.msgpack.encode(Errand(self.function, request))
        answer = self.children[child].call("evaluate", payload, self.timeout_s)
        return msgspec.msgpack.decode(answer, type=list[TaskOutcome])
