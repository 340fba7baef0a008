"""Calls of a model outside of any run: each question is a run of its own.

It begins with the first request, goes on where a request brings the results of its calls, and ends with an answer that
calls no tool. A further question in the same chat is the next run; what came before is its history.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from millstream import values
from millstream.dialects.openai_calls import Asked

if TYPE_CHECKING:
    from millstream.capture.client import Client
    from millstream.capture.recorder import Run

_MOST_OPEN = 1000
"""Runs whose calls wait for results; beyond it the oldest is no longer looked for, and assembly closes it."""


class Loose:
    """Finds the run that a request goes on with, or begins one. Safe to share between threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._open: OrderedDict[str, list[Run]] = OrderedDict()

    def run_of(self, call_ids: Iterable[str], depth: Callable[[Run], int]) -> Run:
        """The run of a request that brings the results of these calls; of several the one that it fits best."""
        with self._lock:
            waiting = [run for call_id in call_ids for run in self._open.get(call_id, ())]
        found = max(waiting, key=depth, default=None) if len(waiting) > 1 else next(iter(waiting), None)
        return self._client.start_run() if found is None else found

    def answered(self, run: Run, call_ids: list[str], answer: str) -> None:
        """A run's model has answered: with calls, or for good."""
        with self._lock:
            for call_id in [call_id for call_id, runs in self._open.items() if run in runs]:
                self._open[call_id].remove(run)
                if not self._open[call_id]:
                    del self._open[call_id]
            for call_id in call_ids:
                self._open.setdefault(call_id, []).append(run)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        if not call_ids:
            run.end(answer)


def answers(asked: Asked) -> Iterator[str]:
    """The ids of the calls that the last messages of a request answer."""
    for message in reversed(asked.messages):
        if message.get("role") == "assistant":
            return
        if message.get("tool_call_id"):
            yield values.word(message["tool_call_id"])
