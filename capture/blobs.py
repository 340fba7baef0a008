"""The blob directory: what is too large for an event, kept whole under the SHA-256 of its bytes.

A blob is written beside its place and moved there, so it is there whole or not at all; the same bytes lie there once.
Its modification time is that of the last event that referred to it: what is older than the log's retention is
referred to by nothing that is left, and may be deleted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.errors import SettingsError

logger = logging.getLogger("millstream.capture")
_NAME = re.compile(r"[0-9a-f]{64}")
_MAKING: Final = ".making-"


class Blobs:
    """A directory of blobs; made when the first one is put. Safe to share between threads and processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Keep bytes; their SHA-256 in hex, or '' when the disk does not take them (the event goes on without)."""
        sha256 = hashlib.sha256(data).hexdigest()
        place = self._place(sha256)
        try:
            if not self._used(place, len(data)):
                self._write(place, data)
        except OSError as error:
            logger.warning("a blob of %d bytes can't be kept in %s (%s)", len(data), self.folder, error)
            return ""
        return sha256

    def get(self, sha256: str) -> bytes:
        """The bytes. Raises `SettingsError` when there are none under that name, or when they have changed."""
        if not _NAME.fullmatch(sha256):
            raise SettingsError(f"{sha256[:80]!r} names no blob: give the 64 hex digits of its sha256")
        try:
            data = self._place(sha256).read_bytes()
        except OSError:
            raise SettingsError(f"no blob {sha256} in {self.folder}: it was not kept, or was pruned") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise SettingsError(f"the blob {sha256} in {self.folder} has changed; delete it")
        return data

    def names(self) -> Iterator[tuple[str, int, float]]:
        """Each blob's name, size in bytes and last use (seconds since 1970), in the order of names."""
        for path in sorted(self.folder.glob("[0-9a-f][0-9a-f]/*")):
            told = _told(path) if _NAME.fullmatch(path.parent.name + path.name) else None
            if told is not None:
                yield path.parent.name + path.name, told.st_size, told.st_mtime

    def prune(self, older_than_s: float) -> tuple[int, int]:
        """Delete what no event has referred to for so many seconds; how many blobs and bytes. Leavings go, too.

        A blob that an event refers to meanwhile stays: it is moved aside, and back if it was used after all.
        """
        before, gone, size = time.time() - older_than_s, 0, 0
        for sha256, bytes_, used in list(self.names()):
            if used < before and self._pruned(self._place(sha256), before):
                gone, size = gone + 1, size + bytes_
        for path in self.folder.glob(f"*/{_MAKING}*"):
            if (told := _told(path)) is not None and told.st_mtime < before:
                path.unlink(missing_ok=True)
        return gone, size

    def _pruned(self, place: Path, before: float) -> bool:
        aside = place.with_name(f"{_MAKING}{os.getpid()}-{place.name}")
        try:
            place.rename(aside)
            if aside.stat().st_mtime < before:
                aside.unlink()
                return True
            aside.replace(place)
        except FileNotFoundError:
            pass
        return False

    def _used(self, place: Path, size: int) -> bool:
        """Touch a blob that lies there whole; whether one does."""
        told = _told(place)
        if told is None or told.st_size != size:
            return False
        try:
            os.utime(place)
        except FileNotFoundError:
            return False
        return place.exists()

    def _place(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256[2:]

    def _write(self, place: Path, data: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, making = tempfile.mkstemp(prefix=_MAKING, dir=place.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(making).replace(place)
            _synced(place.parent)
        except OSError:
            Path(making).unlink(missing_ok=True)
            raise


def _told(path: Path) -> os.stat_result | None:
    """What the disk tells of a file; None: another process has taken it away, or it is no file."""
    try:
        told = path.lstat()
    except FileNotFoundError:
        return None
    return told if stat.S_ISREG(told.st_mode) else None


def _synced(folder: Path) -> None:
    """Have the disk keep the names in a folder: the event that refers to a new one is about to be kept, too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
