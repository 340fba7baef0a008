"""The sender: a bounded queue and one background thread between the agent and the log.

`Sender.put` costs the agent a few microseconds and never waits. The thread gathers events for
``flush_ms``, passes them over the edge, and appends them, many to a record. While neither the log nor
the spool takes them the queue fills, and what it refuses is counted. After a fork the child has a
queue, a thread and a producer id of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from millstream import settings
from millstream.capture import lifetime
from millstream.capture.edge import Edge
from millstream.capture.outlet import Counters, Outlet
from millstream.capture.shared import Shared
from millstream.capture.shipping import Line
from millstream.events import AnyEvent, new_id
from millstream.ports import LogWriter

logger = logging.getLogger("millstream.capture")

_BATCH_EVENTS = 1000
_QUEUE_BYTES = 64_000_000
_LOOK_S = 0.05

_Item: TypeAlias = tuple[AnyEvent, int]


class Sender:
    """Takes events from any thread and brings them to the log.

    ``log`` may be a function that opens it: called in the background, again while it fails. ``spool``
    None: nothing is kept on disk. ``last_words`` is called before it closes, to put what was held back.
    ``producer``: this process's id in events, made when not given.
    """

    def __init__(
        self,
        log: LogWriter | Callable[[], LogWriter],
        capture: settings.Capture,
        spool: Path | None = None,
        last_words: Callable[[], None] = lambda: None,
        producer: str = "",
        shared: Shared | None = None,
    ) -> None:
        self._log, self._capture, self._folder, self._shared = log, capture, spool, shared or Shared()
        self._last_words = last_words
        self._reset(producer)
        lifetime.watch(self)

    def _reset(self, producer: str = "") -> None:
        self.producer = producer or new_id()
        self.edge = Edge(self._capture, self._shared)
        self.turn = threading.Lock()
        self.leaving = False
        self._outlet = Outlet(self._log, self._folder, self.producer, self._capture.spool_bytes)
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._news = threading.Condition()
        self._urgent = threading.Event()
        self._thread: threading.Thread | None = None
        self._queued = self._queued_bytes = 0
        self._gathered: list[_Item] = []
        self._stopping = False

    @property
    def counters(self) -> Counters:
        """What became of the events of this process."""
        return self._outlet.counters

    def forked(self) -> None:
        """In the child of a fork: the parent sends what it recorded, the child starts anew."""
        self._outlet.close(forked=True)
        self._shared = self._shared.renewed()
        self._reset()

    def put(self, event: AnyEvent, size: int) -> bool:
        """Queue an event of about ``size`` bytes; False (and counted) when there is no room."""
        with self._lock:
            if self._queued >= self._capture.queue_events or self._queued_bytes + size > _QUEUE_BYTES:
                self.counters.refused += 1
                return False
            self.counters.recorded += 1
            self._queued += 1
            self._queued_bytes += size
        self._queue.put((event, size))
        if self.leaving:
            self._drain()
        elif self._thread is None:
            self._start()
        return True

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until the log has everything recorded so far, spooled events too; whether it has."""
        self._last_words()
        return self._wait(timeout, in_log=True)

    def close(self, timeout: float = 5.0) -> bool:
        """Bring everything to the log or the spool and end the thread; whether nothing was left behind.

        A log that hangs past ``timeout`` (seconds) is left hanging; what it held up is spooled.
        """
        self._last_words()
        done = self._wait(timeout, in_log=False)
        self._stopping = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._wake()
            thread.join(min(timeout, 1.0))
        if not done:
            self._rescue()
        self._outlet.close(hanging=thread is not None and thread.is_alive())
        return done

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="millstream-capture", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is going down
                self.leaving, self._thread = True, None
        lifetime.watch_child(self)
        if self.leaving:
            self._drain()

    def _run(self) -> None:
        outlet = self._outlet
        while not self._stopping:
            if outlet.held:
                self._urgent.wait(outlet.pause())
            elif (item := self._next(outlet.pause())) is not None:
                self._gathered.append(item)
                self._urgent.wait(self._capture.flush_ms / 1000)
            self._urgent.clear()
            self._drain()

    def _next(self, timeout: float | None = 0) -> _Item | None:
        try:
            return self._queue.get(block=timeout != 0, timeout=timeout)
        except Empty:
            return None

    def _wake(self) -> None:
        self._urgent.set()
        self._queue.put(None)

    def _wait(self, timeout: float, *, in_log: bool) -> bool:
        goal, deadline = self.counters.recorded, time.monotonic() + timeout
        while self.counters.settled < goal or (in_log and self._outlet.waiting):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._outlet.retry_at = 0.0
            if self._thread is None or not self._thread.is_alive():
                self._drain()
                time.sleep(min(_LOOK_S, left) if self._outlet.waiting else 0)
                continue
            self._wake()
            with self._news:
                self._news.wait(min(_LOOK_S, left))
        return True

    def _drain(self) -> None:
        """Bring everything queued as far as it gets. One thread at a time; never raises."""
        with self.turn:
            while lines := self._outlet.held or self._batch():
                went = self._outlet.send(lines)
                self._tell()
                if not went:
                    break
            self._outlet.replay(until=lambda: not self._queue.empty())
            self._tell()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def _batch(self) -> list[Line]:
        """The next events, encoded."""
        lines: list[Line] = []
        items, self._gathered = self._gathered, []
        while len(items) < _BATCH_EVENTS and not self._queue.empty():
            if (item := self._next()) is not None:
                items.append(item)
        for event, _ in items:
            try:
                lines.append((event.trajectory_id, self.edge.encode(event)))
            except Exception:
                self.counters.lost += 1
                logger.exception("an event of %s could not be encoded and is lost", event.trajectory_id)
        with self._lock:
            self._queued -= len(items)
            self._queued_bytes -= sum(size for _, size in items)
        return lines

    def _rescue(self) -> None:
        """What a hanging or absent log held up goes to the spool, else it is lost; for leaving."""
        self.edge = Edge(self._capture)
        lines: list[Line] = []
        while more := self._batch():
            lines += more
        self._outlet.rescue(lines)
