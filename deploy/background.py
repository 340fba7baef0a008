"""One piece of long work beside the loop, so that no poll ever waits for an evaluation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs one function in a thread at once. A daemon: it never keeps the process from ending."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work = work
        self._values: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._values.append(self._work())
        except Exception as error:  # noqa: BLE001 — whatever it was, it is raised where the result is asked for
            self._error = error

    @property
    def running(self) -> bool:
        """Whether the work still goes on."""
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end, or so long."""
        self._thread.join(timeout_s)

    def result(self) -> T:
        """The value; raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._values[0]
