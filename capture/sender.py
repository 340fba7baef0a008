"""The sender: a bounded queue and one background thread between the agent and the log.

`Sender.put` costs the agent a few microseconds and never waits. The thread gathers events for
``flush_ms``, passes them over the edge, and appends them, many to a record. What the log does not take
goes to the spool; what the spool cannot take stays in memory and is tried again, meanwhile the queue
fills, and what it refuses is counted. After a fork the child has a queue, a thread and a producer id
of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from msgspec import Struct

from millstream import settings
from millstream.capture import lifetime
from millstream.capture.edge import Edge
from millstream.capture.shipping import Line, by_partition, keyed, messages
from millstream.capture.spool import Spool
from millstream.events import AnyEvent, new_id
from millstream.ports import Log
from millstream.topics import TELEMETRY

logger = logging.getLogger("millstream.capture")

_BATCH_EVENTS = 1000
_QUEUE_BYTES = 64_000_000
_BACKOFF_S = (0.1, 5.0)
_LOOK_S = 0.05

_Item: TypeAlias = tuple[AnyEvent, int]


class Counters(Struct, kw_only=True):
    """What became of the events of this process.

    ``recorded`` = ``sent`` + ``spooled`` + ``lost`` + those still on their way; ``refused`` ones never got in.
    ``replayed`` ones left the spool for the log. ``lost``: a full spool, or an event that could not be encoded.
    """

    recorded: int = 0
    sent: int = 0
    spooled: int = 0
    replayed: int = 0
    refused: int = 0
    lost: int = 0
    failures: int = 0

    @property
    def settled(self) -> int:
        """Events whose fate is known."""
        return self.sent + self.spooled + self.lost


class Sender:
    """Takes events from any thread and brings them to the log. ``spool`` None: nothing is kept on disk.

    ``last_words`` is called before it closes, to put what was held back.
    """

    def __init__(
        self,
        log: Log,
        capture: settings.Capture,
        spool: Path | None = None,
        last_words: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._capture, self._folder = log, capture, spool
        self._last_words = last_words
        self.reset()
        lifetime.watch(self)

    def reset(self) -> None:
        """Begin anew, with nothing recorded: at birth and in a forked child."""
        self.producer = new_id()
        self.counters = Counters()
        self.edge = Edge(self._capture)
        self.turn = threading.Lock()
        self.leaving = False
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._news = threading.Condition()
        self._urgent = threading.Event()
        self._thread: threading.Thread | None = None
        self._queued = self._queued_bytes = 0
        self._gathered: list[_Item] = []
        self._held: list[Line] = []
        self._spool: Spool | None = None
        self._looked = self._stopping = False
        self._backoff = self._retry_at = 0.0

    def forked(self) -> None:
        """In the child of a fork: the parent sends what it recorded, the child starts anew."""
        if self._spool is not None:
            self._spool.close(forked=True)
        self.reset()

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
        if self._spool is not None:
            self._spool.close()
            self._spool, self._looked = None, False
        if thread is not None and thread.is_alive():
            self._folder = None  # if it ever comes back, what it held up is somebody else's
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
        while not self._stopping:
            if self._held:
                self._urgent.wait(self._pause())
            elif (item := self._next(self._pause())) is not None:
                self._gathered.append(item)
                self._urgent.wait(self._capture.flush_ms / 1000)
            self._urgent.clear()
            self._drain()

    def _pause(self) -> float | None:
        """Seconds until something that waits is to be tried again; None: nothing waits."""
        return max(0.0, self._retry_at - time.monotonic()) if self._waiting else None

    @property
    def _waiting(self) -> bool:
        return bool(self._held) or (self._spool is not None and not self._spool.empty)

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
        while self.counters.settled < goal or (in_log and self._waiting):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._retry_at = 0.0
            if self._thread is None or not self._thread.is_alive():
                self._drain()
                time.sleep(min(_LOOK_S, left) if self._waiting else 0)
                continue
            self._wake()
            with self._news:
                self._news.wait(min(_LOOK_S, left))
        return True

    def _drain(self) -> None:
        """Bring everything queued as far as it gets. One thread at a time; never raises."""
        with self.turn:
            self._open_spool(only_leftovers=True)
            while lines := self._held or self._batch():
                self._held = lines
                self._held = self._deliver(lines)
                self._tell()
                if self._held:
                    break
            self._replay()
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

    def _deliver(self, lines: list[Line]) -> list[Line]:
        """Lines into the log, or behind those that wait in the spool; those that neither took."""
        unsent = lines
        if self._spool is None or self._spool.empty:
            unsent = self._append(lines)
            self.counters.sent += len(lines) - len(unsent)
        if unsent and self._open_spool():
            unsent = self._set_aside(unsent)
        return unsent

    def _append(self, lines: list[Line]) -> list[Line]:
        """Lines into the log; those that it did not take. After a failure it is left alone for a while."""
        if time.monotonic() < self._retry_at:
            return lines
        left: dict[int, list[Line]] = {-1: lines}
        try:
            left = by_partition(lines, self._log.partitions(TELEMETRY.name))
            for partition in list(left):
                self._log.append(TELEMETRY.name, list(messages(left[partition])), partition)
                del left[partition]
        except Exception as error:  # noqa: BLE001 - whatever the log does, the agent goes on
            self._failed(f"the log took nothing ({error}); events wait for it")
            return [line for part in left.values() for line in part]
        self._backoff = 0.0
        return []

    def _failed(self, what: str) -> None:
        first, most = _BACKOFF_S
        if self._backoff == 0.0:
            logger.warning("%s", what)
        self._backoff = min(max(self._backoff * 2, first), most)
        self._retry_at = time.monotonic() + self._backoff
        self.counters.failures += 1

    def _open_spool(self, *, only_leftovers: bool = False) -> bool:
        """Open the spool where there is one to open; whether it is open."""
        if self._spool is not None or self._folder is None or (only_leftovers and self._looked):
            return self._spool is not None
        self._looked = True
        try:
            if not only_leftovers or any(self._folder.glob("*.ndjson")):
                self._spool = Spool(self._folder, self.producer, self._capture.spool_bytes)
        except OSError as error:
            self._failed(f"the spool {self._folder} can't be opened ({error}); events wait in memory")
        return self._spool is not None

    def _set_aside(self, unsent: list[Line]) -> list[Line]:
        assert self._spool is not None
        try:
            refused = self._spool.write([line for _, line in unsent])
        except OSError as error:
            self._failed(f"the spool {self._folder} can't be written ({error}); events wait in memory")
            return unsent
        if refused:
            logger.error("the spool %s is full; %d events are lost", self._folder, refused)
        self.counters.lost += refused
        self.counters.spooled += len(unsent) - refused
        return []

    def _replay(self) -> None:
        """What waits in the spool into the log, for as long as nothing new waits in the queue."""
        while self._spool is not None and not self._spool.empty and time.monotonic() >= self._retry_at:
            try:
                lines = [keyed(line) for line in self._spool.read()]
                if not lines or self._append(lines):
                    return
                self._spool.taken()
            except OSError as error:
                self._failed(f"the spool {self._folder} can't be read ({error}); its events wait")
                return
            self.counters.replayed += len(lines)
            if not self._queue.empty():
                return

    def _rescue(self) -> None:
        """What a hanging or absent log held up goes to the spool, else it is lost; for leaving."""
        self.edge = Edge(self._capture)
        lines = self._held + self._batch()
        while more := self._batch():
            lines += more
        self._held = []
        if lines and self._open_spool():
            lines = self._set_aside(lines)
        if lines:
            logger.error("%d events never reached the log and are lost: no spool could take them", len(lines))
            self.counters.lost += len(lines)
