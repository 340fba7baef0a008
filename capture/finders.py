"""Redactors of the operator: files with ``find_…`` functions, asked in a child process with a deadline.

They find, and the edge takes out; so what holds for our own detectors (JSON stays JSON, pseudonyms, counts) holds for
theirs. A child that raises, hangs or dies has found nothing out, so the texts that it was asked about go whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from millstream.capture.detectors.base import Found
from millstream.errors import GraderError, MillstreamError, SettingsError

logger = logging.getLogger("millstream.capture")

HANDLER: Final = "millstream.capture.finding_child"
LOAD_TIMEOUT_S: Final = 60.0
_encode = msgspec.msgpack.Encoder().encode
_kinds = msgspec.msgpack.Decoder(list[str]).decode
_places = msgspec.msgpack.Decoder(list[list[tuple[int, int, str]]]).decode


class Caller(Protocol):
    """A child process."""

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call; raises a `MillstreamError` when there is no answer."""
        ...

    def close(self) -> None:
        """End it."""
        ...


Spawn: TypeAlias = Callable[[str], Caller]


class Finders:
    """The functions of some files. The child starts with the first text. Safe to share between threads."""

    def __init__(self, spawn: Spawn, files: Sequence[str], timeout_s: float) -> None:
        self._spawn, self._files, self._timeout_s = spawn, list(files), timeout_s
        self._lock = threading.Lock()
        self._child: Caller | None = None

    def renewed(self) -> Finders:
        """The same, with a child of its own: for the child of a fork."""
        return Finders(self._spawn, self._files, self._timeout_s)

    def checked(self) -> list[str]:
        """The kinds that they find. Raises `SettingsError` when a file can't be loaded or has no function."""
        try:
            with self._lock:
                return self._load()
        except MillstreamError as error:
            raise SettingsError(f"[capture] redactors: {error}") from None

    def find(self, texts: Sequence[str]) -> list[list[Found]] | None:
        """The places in each text; None when they could not be asked."""
        if not texts:
            return []
        try:
            with self._lock:
                if self._child is None:
                    self._load()
                assert self._child is not None
                answer = self._child.call("find", _encode((self._files, texts)), self._timeout_s)
            return [[Found(*place) for place in places] for places in _places(answer)]
        except (MillstreamError, msgspec.MsgspecError) as error:
            # What a function raised may quote the text, so only the kind of it is told.
            why = str(error).partition(":")[0] if isinstance(error, GraderError) else str(error)
            logger.warning("redactors could not look into %d texts, which go whole: %s", len(texts), why[:200])
            return None

    def close(self) -> None:
        """End the child."""
        with self._lock:
            if self._child is not None:
                self._child.close()
                self._child = None

    def _load(self) -> list[str]:
        if self._child is None:
            self._child = self._spawn(HANDLER)
        return _kinds(self._child.call("load", _encode(self._files), LOAD_TIMEOUT_S))
