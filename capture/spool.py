"""The spool: where events wait on disk while the log is away.

A folder of segment files of NDJSON, one event a line, each written by one process (which holds a lock
on ``<owner>.lock``), fsynced after each batch, all of them together at most ``max_bytes``. Back come the
events in the order they were written; a segment goes when the log has taken it. What a process left
behind when it died is taken over by the next one that opens the folder. What the full spool refused is
counted in ``<owner>.lost``, for `audit` to list as lost before the log.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from millstream.ndjson import filled

_SEGMENT_BYTES = 8_000_000
_READ_BYTES = 1 << 20


class Lost(Struct, frozen=True, kw_only=True):
    """Events that never reached the log, and their bytes."""

    events: int = 0
    bytes: int = 0

    def __add__(self, other: Lost) -> Lost:
        return Lost(events=self.events + other.events, bytes=self.bytes + other.bytes)


class Spool:
    """One process's hold on the folder. Every method may raise `OSError`; not thread-safe."""

    def __init__(self, folder: Path, owner: str, max_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.lost = Lost()
        self._folder, self._owner, self._max_bytes = folder, owner, max_bytes
        self._locks: dict[str, int] = {}
        self._segment = 0
        self._written = 0
        self._start = 0
        self._end = 0
        self.torn = 0
        self._take(owner)
        self._waiting = self._adopted()

    def _take(self, owner: str) -> bool:
        handle = os.open(self._folder / f"{owner}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._locks[owner] = handle
        return True

    def _adopted(self) -> list[Path]:
        """Segments whose writer is gone: those whose lock is free, oldest first."""
        found = sorted(self._folder.glob("*.ndjson"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        owners = {path.name.rsplit("-", 1)[0] for path in found}
        ours = {owner for owner in owners if owner in self._locks or self._take(owner)}
        return [path for path in found if path.name.rsplit("-", 1)[0] in ours]

    @property
    def empty(self) -> bool:
        """Whether nothing of ours waits."""
        return not self._waiting

    def size(self) -> int:
        """Bytes of all segments in the folder, other processes' too."""
        return sum(path.stat().st_size for path in self._folder.glob("*.ndjson"))

    def write(self, lines: Sequence[bytes]) -> int:
        """Append lines durably; how many found no room, which are counted on disk as `lost`."""
        room = self._max_bytes - self.size()
        kept: list[bytes] = []
        refused: list[bytes] = []
        for line in lines:
            room -= len(line) + 1
            (kept if room >= 0 else refused).append(line)
        if kept:
            self._append(b"".join(line + b"\n" for line in kept))
        if refused:
            self._refuse(Lost(events=len(refused), bytes=sum(map(len, refused))))
        return len(refused)

    def _append(self, data: bytes) -> None:
        if not self._waiting or self._written >= _SEGMENT_BYTES or self._waiting[-1] != self._path():
            self._segment += 1
            self._written = 0
            self._waiting.append(self._path())
        with self._path().open("ab", buffering=0) as file:
            try:
                left = memoryview(data)
                while left:  # a disk that fills takes a part, and says so only the next time
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._written)
                raise
        self._written += len(data)

    def _path(self) -> Path:
        return self._folder / f"{self._owner}-{self._segment:08d}.ndjson"

    def _refuse(self, lost: Lost) -> None:
        self.lost += lost
        path = self._folder / f"{self._owner}.lost"
        temporary = path.with_suffix(".lost.tmp")
        temporary.write_bytes(msgspec.json.encode(self.lost))
        temporary.replace(path)

    def read(self) -> list[bytes]:
        """The next lines that wait, about 1 MiB of them; the same ones until `taken` is called."""
        while self._waiting:
            path = self._waiting[0]
            lines = _whole_lines(path, self._start)
            if lines:
                self._end = self._start + sum(map(len, lines))
                return [line[:-1] for line in lines]
            self._drop(path)
        return []

    def taken(self) -> None:
        """The log has what `read` gave last."""
        self._start = self._end

    def _drop(self, path: Path) -> None:
        if path.exists():
            self.torn += path.stat().st_size > self._start
            path.unlink()
        self._waiting.pop(0)
        self._start = self._end = 0

    def close(self, *, forked: bool = False) -> None:
        """Let go of the locks; in a forked child without touching the parent's files."""
        for owner, handle in self._locks.items():
            os.close(handle)
            if not forked and not any(path.name.startswith(f"{owner}-") for path in self._waiting):
                (self._folder / f"{owner}.lock").unlink(missing_ok=True)
        self._locks = {}


def _whole_lines(path: Path, start: int) -> list[bytes]:
    """Lines from a place on; the last one is left out when a crash cut its writing short."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = file.readlines(_READ_BYTES)
    except FileNotFoundError:
        return []
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def lost(folder: Path) -> Lost:
    """What full spools of this folder refused, all processes together."""
    total = Lost()
    for path in folder.glob("*.lost") if folder.is_dir() else ():
        total += msgspec.json.decode(path.read_bytes(), type=Lost)
    return total


def waiting(folder: Path) -> Iterator[bytes]:
    """Every line that waits in the folder, for people to look at."""
    for path in sorted(folder.glob("*.ndjson")) if folder.is_dir() else ():
        yield from filled(path.read_bytes())
