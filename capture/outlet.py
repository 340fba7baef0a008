"""The outlet: encoded events into the log; what it does not take waits in the spool, else in memory.

Synchronous and single-threaded; `millstream.capture.sender` drives it from its thread. Nothing here
raises: an outage is logged once, counted, and tried again after a growing pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from millstream.capture.shipping import Line, by_partition, keyed, messages
from millstream.capture.spool import Spool
from millstream.ports import LogWriter
from millstream.topics import TELEMETRY

logger = logging.getLogger("millstream.capture")

_BACKOFF_S = (0.1, 5.0)


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


class Outlet:
    """``log`` may be a function that opens it, called again while it fails; ``folder`` None: no spool.
    ``owner`` names the spool's segments.
    """

    def __init__(
        self, log: LogWriter | Callable[[], LogWriter], folder: Path | None, owner: str, spool_bytes: int
    ) -> None:
        self.counters = Counters()
        self.held: list[Line] = []
        self.retry_at = 0.0
        self._log, self._folder, self._owner, self._spool_bytes = log, folder, owner, spool_bytes
        self._spool: Spool | None = None
        self._looked = False
        self._backoff = 0.0

    @property
    def waiting(self) -> bool:
        """Whether anything waits for the log to come back."""
        return bool(self.held) or (self._spool is not None and not self._spool.empty)

    def pause(self) -> float | None:
        """Seconds until what waits is to be tried again; None: nothing waits."""
        return max(0.0, self.retry_at - time.monotonic()) if self.waiting else None

    def send(self, lines: list[Line]) -> bool:
        """Lines into the log, or behind those that wait in the spool; False: neither took them, they are ``held``."""
        self.held = lines
        self._open_spool(only_leftovers=True)
        unsent = lines
        if self._spool is None or self._spool.empty:
            unsent = self._append(lines)
            self.counters.sent += len(lines) - len(unsent)
        if unsent and self._open_spool():
            unsent = self._set_aside(unsent)
        self.held = unsent
        return not unsent

    def replay(self, *, until: Callable[[], bool]) -> None:
        """What waits in the spool into the log, for as long as it takes it and nothing else is to be done."""
        self._open_spool(only_leftovers=True)
        while self._spool is not None and not self._spool.empty and time.monotonic() >= self.retry_at:
            try:
                lines = [keyed(line) for line in self._spool.read()]
                if not lines or self._append(lines):
                    return
                self._spool.taken()
            except OSError as error:
                self._failed(f"the spool {self._folder} can't be read ({error}); its events wait")
                return
            self.counters.replayed += len(lines)
            if until():
                return

    def rescue(self, lines: list[Line]) -> None:
        """For leaving while the log is away or hangs: ``held`` and further lines are spooled or lost."""
        lines, self.held = self.held + lines, []
        if lines and self._open_spool():
            lines = self._set_aside(lines)
        if lines:
            logger.error("%d events never reached the log and are lost: no spool could take them", len(lines))
            self.counters.lost += len(lines)

    def close(self, *, hanging: bool = False, forked: bool = False) -> None:
        """Let go of the spool. ``hanging``: an append may come back some day; it must not spool anything then."""
        if self._spool is not None:
            self._spool.close(forked=forked)
            self._spool, self._looked = None, False
        if hanging:
            self._folder = None

    def _append(self, lines: list[Line]) -> list[Line]:
        """Lines into the log; those that it did not take. After a failure it is left alone for a while."""
        if time.monotonic() < self.retry_at:
            return lines
        left: dict[int, list[Line]] = {-1: lines}
        try:
            log = self._log = self._log() if callable(self._log) else self._log
            left = by_partition(lines, log.partitions(TELEMETRY.name))
            for partition in list(left):
                log.append(TELEMETRY.name, list(messages(left[partition])), partition)
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
        self.retry_at = time.monotonic() + self._backoff
        self.counters.failures += 1

    def _open_spool(self, *, only_leftovers: bool = False) -> bool:
        """Open the spool where there is one to open; whether it is open."""
        if self._spool is not None or self._folder is None or (only_leftovers and self._looked):
            return self._spool is not None
        self._looked = True
        try:
            if not only_leftovers or any(self._folder.glob("*.ndjson")):
                self._spool = Spool(self._folder, self._owner, self._spool_bytes)
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
