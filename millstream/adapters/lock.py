"""One runner a data directory: a lock file that names its owner.

The lock is ``flock``: the kernel drops it when its owner dies, so a stale file never blocks; the pid in
the file is for people.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.errors import SettingsError, Unavailable

_TRIES, _PAUSE_S = 20, 0.01
"""`holder` takes the lock for microseconds; a runner that starts in that moment tries again."""


class RunnerLock:
    """Held from `acquire` to `release` (or the death of the process)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def acquire(self) -> Self:
        """Take the lock and write our pid. Raises `SettingsError` naming the pid that has it, and
        `Unavailable` when the file can't be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unavailable(
                f"{self.path}: {error.strerror}; make its folder writable or choose another [storage] data"
            ) from None
        if not _lock(file):
            owner = _pid(file)
            os.close(file)
            raise SettingsError(
                f"{self.path}: another runner (pid {owner or 'unknown'}) works on this data; "
                "stop it first, or choose another [storage] data"
            )
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(file)
            raise Unavailable(f"{self.path}: {error.strerror}; free some space or mend the disk") from None
        self._file = file
        return self

    def release(self) -> None:
        """Give the lock up; the file stays, empty."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder(path: Path) -> int | None:
    """The pid of the living runner that has the lock, or None."""
    with contextlib.suppress(FileNotFoundError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _pid(file)
        finally:
            os.close(file)
    return None


def _lock(file: int) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _pid(file: int) -> int | None:
    text = os.pread(file, 32, 0).split()
    return int(text[0]) if text and text[0].isdigit() else None
