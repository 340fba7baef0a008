"""Child processes that answer calls: one mechanism for graders in files and for work that needs torch.

A child is ``python -m millstream.adapters.children MODULE`` where MODULE has ``handle(method, payload)
-> payload`` (bytes in, bytes out: msgpack or JSON, never pickle). Frames on its standard input and a
private pipe: 4-byte length, 1-byte status, method, payload. A call has a deadline; a child that hangs
or dies is killed with its process group and replaced at the next call.
"""

from __future__ import annotations

import contextlib
import heapq
import importlib
import itertools
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Protocol

from millstream.errors import GraderError, Unavailable

_HEAD = struct.Struct("<IB")
_OK, _ERROR = 0, 1
ORPHAN_S = 0.5
"""How soon a child notices that its parent was killed."""


class ChildTimeout(Unavailable, TimeoutError):
    """The child did not answer by the deadline and was killed."""


class ChildDied(Unavailable):
    """The child ended without an answer."""


class ChildError(GraderError):
    """The child's handler raised; the message carries its text."""


class Handler(Protocol):
    """What a child's module offers."""

    def handle(self, method: str, payload: bytes) -> bytes:
        """Answer one call."""
        ...


class Child:
    """A long-lived child process. Not thread-safe: one caller at a time."""

    def __init__(self, module: str, *, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        self.module = module
        self.env = dict(env or {})
        self.cwd = cwd
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1

    @property
    def pid(self) -> int | None:
        """The running child's process id."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the child now rather than at the first call."""
        if self.pid is not None:
            return
        self.close()
        read, write = os.pipe()
        command = [sys.executable, "-m", "millstream.adapters.children", self.module, str(write)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(write,),
            env={**os.environ, **self.env},
            cwd=self.cwd,
            start_new_session=True,
        )
        os.close(write)
        self._answers = read
        self.starts += 1

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call. Raises `ChildTimeout`, `ChildDied` or `ChildError`; after the first two the child
        is gone and the next call starts a new one.
        """
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        name = method.encode()
        try:
            self._process.stdin.write(_HEAD.pack(len(name) + 1 + len(payload), len(name)) + name + b"\0" + payload)
            self._process.stdin.flush()
            length, status = _HEAD.unpack(self._read(_HEAD.size, deadline))
            answer = self._read(length, deadline)
        except TimeoutError:
            self.close()
            raise ChildTimeout(f"{self.module}: no answer to {method!r} within {timeout_s} s") from None
        except (BrokenPipeError, EOFError, ConnectionError, OSError) as error:
            self.close()
            raise ChildDied(f"{self.module}: the process ended during {method!r} ({type(error).__name__})") from None
        if status == _ERROR:
            raise ChildError(answer.decode("utf-8", "replace"))
        return answer

    def _read(self, size: int, deadline: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._answers], [], [], wait)[0]:
                raise TimeoutError
            chunk = os.read(self._answers, min(size - len(parts), 1 << 20))
            if not chunk:
                raise EOFError
            parts += chunk
        return bytes(parts)

    def close(self) -> None:
        """End the child and everything it started."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdin:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            process.wait()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1


class ChildPool:
    """Some children of one module; a call takes whichever is free. Safe to call from many threads.

    Calls that wait are served by priority (lower first), then in the order in which they came.
    """

    def __init__(self, module: str, size: int, *, env: Mapping[str, str] | None = None) -> None:
        """``size`` children, started at their first call or by `warm`."""
        self.size = size
        self._children = [Child(module, env=env) for _ in range(size)]
        self._free = list(self._children)
        self._waiting: list[tuple[int, int]] = []
        self._tickets = itertools.count()
        self._turn = threading.Condition()

    def call(self, method: str, payload: bytes, timeout_s: float | None = None, *, priority: int = 0) -> bytes:
        """One call to a free child, waiting for one if need be. Raises as `Child.call` does."""
        child = self._take(priority)
        try:
            return child.call(method, payload, timeout_s)
        finally:
            with self._turn:
                self._free.append(child)
                self._turn.notify_all()

    def at(self, priority: int) -> PoolView:
        """The same pool for a caller of another priority."""
        return PoolView(self, priority)

    def _take(self, priority: int) -> Child:
        with self._turn:
            ticket = (priority, next(self._tickets))
            heapq.heappush(self._waiting, ticket)
            while not self._free or self._waiting[0] != ticket:
                self._turn.wait()
            heapq.heappop(self._waiting)
            child = self._free.pop()
            self._turn.notify_all()
            return child

    def warm(self) -> None:
        """Start every child now, so that they load while other things are done."""
        for child in self._children:
            child.start()

    def close(self) -> None:
        """End every child."""
        for child in self._children:
            child.close()


class PoolView:
    """A pool as a caller of one priority sees it."""

    def __init__(self, pool: ChildPool, priority: int) -> None:
        self._pool = pool
        self._priority = priority

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call; see `ChildPool.call`."""
        return self._pool.call(method, payload, timeout_s, priority=self._priority)


def _serve(module: str, answers: int) -> None:
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    me = os.getpid()
    os.set_inheritable(answers, False)
    with os.fdopen(_private_input(), "rb") as source, os.fdopen(answers, "wb") as sink:
        handler = importlib.import_module(module)
        while len(head := source.read(_HEAD.size)) == _HEAD.size:
            length, name_length = _HEAD.unpack(head)
            body = source.read(length)
            method, payload = body[:name_length].decode(), body[name_length + 1 :]
            try:
                status, answer = _OK, handler.handle(method, payload)
            except (Exception, SystemExit) as error:  # noqa: BLE001 — whatever a handler raises goes back as text
                text = "".join(traceback.format_exception_only(error)).strip()
                status, answer = _ERROR, text.encode("utf-8", "replace")
            if os.getpid() != me:
                os._exit(0)  # a fork that the handler made and let run on: the answer is its parent's to give
            sink.write(_HEAD.pack(len(answer), status) + answer)
            sink.flush()


def _private_input() -> int:
    """Where calls come from; what a handler or a process it starts reads as standard input is empty."""
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return source


def _leave_with(parent: int) -> None:
    """End when the parent is gone, also in the middle of a call: nobody would read the answer."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(sys.argv[1], int(sys.argv[2]))
