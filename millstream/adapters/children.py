"""Child processes that answer calls: one mechanism for graders in files and for work that needs torch.

A child is ``python -m millstream.adapters.child_serving MODULE`` where MODULE has ``handle(method, payload)
-> payload`` (bytes in, bytes out: msgpack or JSON, never pickle). Frames on its standard input and a
private pipe: 4-byte length, 1-byte status, method, payload. A call has a deadline; a child that hangs
or dies is killed with its process group and replaced at the next call. `Bounds` limit what a child may take.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping

from msgspec import Struct

from millstream.errors import GraderError, Overrun, Unavailable

HEAD = struct.Struct("<IB")
OK, ERROR, OVERRUN = 0, 1, 2
LAST_WORDS = 2000
"""How much of what a child printed last is kept for whoever asks why it died."""


class Bounds(Struct, frozen=True, kw_only=True):
    """What a child may take: private memory (`RLIMIT_DATA`; where the system has none, no bound), bytes printed
    during one call, and bytes of an answer. What it prints is not shown.
    """

    memory_bytes: int = 4_000_000_000
    output_bytes: int = 1_000_000
    answer_bytes: int = 256_000_000


class ChildTimeout(Unavailable, TimeoutError):
    """The child did not answer by the deadline and was killed."""


class ChildDied(Unavailable):
    """The child ended without an answer."""


class ChildError(GraderError):
    """The child's handler raised; the message carries its text."""


class Child:
    """A long-lived child process. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        module: str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """``bounds`` None: it may take what it can, and its standard error is this process's."""
        self.module = module
        self.env = dict(env or {})
        self.cwd = cwd
        self.bounds = bounds
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._printed = 0
        self._words = b""

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
        memory = self.bounds.memory_bytes if self.bounds else 0
        options = ["-X", "faulthandler"] if self.bounds else []
        command = [*options, "-m", "millstream.adapters.child_serving", self.module, str(write), str(memory)]
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if self.bounds else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if self.bounds else None,
            pass_fds=(write,),
            env={**os.environ, **self.env},
            cwd=self.cwd,
            start_new_session=True,
        )
        os.close(write)
        self._answers = read
        self.starts += 1
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        for pipe in (self._process.stdin.fileno(), read):
            _widen(pipe)

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call. Raises `ChildTimeout`, `ChildDied`, `Overrun` or `ChildError`; after the first three the child
        is gone and the next call starts a new one.
        """
        self.start()
        name = method.encode()
        work = HEAD.pack(len(name) + 1 + len(payload), len(name)) + name + b"\0" + payload
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            status, answer = self._exchange(work, deadline)
        except TimeoutError:
            self.close()
            raise ChildTimeout(f"{self.module}: no answer to {method!r} within {timeout_s} s") from None
        except Overrun:
            self.close()
            raise
        except (BrokenPipeError, EOFError, ConnectionError, OSError) as error:
            told = self._last_words()
            self.close()
            died = f"{self.module}: the process ended during {method!r} ({type(error).__name__})"
            raise ChildDied(died + told) from None
        if status == OVERRUN:
            self.close()
            raise Overrun(answer.decode("utf-8", "replace"))
        if status == ERROR:
            raise ChildError(answer.decode("utf-8", "replace"))
        return answer

    def _exchange(self, work: bytes, deadline: float | None) -> tuple[int, bytes]:
        """Write a call and read its answer, both before the deadline."""
        self._printed = 0
        rest, answer = memoryview(work), bytearray()
        size = HEAD.size
        while len(answer) < size or rest:
            readable, writable = self._ready(deadline, writing=bool(rest))
            if writable:
                rest = rest[self._write(rest) :]
            if self._output in readable:
                self._drain()
            if self._answers in readable:
                chunk = os.read(self._answers, min(size - len(answer), 1 << 20))
                if not chunk:
                    raise EOFError
                answer += chunk
                if len(answer) == HEAD.size == size:
                    size += self._size(HEAD.unpack_from(answer)[0])
        return HEAD.unpack_from(answer)[1], bytes(answer[HEAD.size :])

    def _size(self, length: int) -> int:
        if self.bounds and length > self.bounds.answer_bytes:
            raise Overrun(f"it answered {length:,} bytes; {self.bounds.answer_bytes:,} are allowed")
        return length

    @property
    def _output(self) -> int:
        """Where what it prints comes from, or -1."""
        assert self._process is not None
        return self._process.stdout.fileno() if self._process.stdout else -1

    def _ready(self, deadline: float | None, *, writing: bool) -> tuple[list[int], bool]:
        """What can be read, and whether more can be written. Raises TimeoutError at the deadline."""
        assert self._process is not None
        assert self._process.stdin is not None
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        reads = [fd for fd in (self._answers, self._output) if fd >= 0]
        readable, writable, _ = select.select(reads, [self._process.stdin] if writing else [], [], wait)
        if not (readable or writable):
            raise TimeoutError
        return readable, bool(writable)

    def _write(self, rest: memoryview) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            return os.write(self._process.stdin.fileno(), rest)
        except BlockingIOError:
            return 0

    def _drain(self) -> None:
        """Take what it printed; raise `Overrun` when that is more than it may."""
        chunk = os.read(self._output, 1 << 16)
        if not chunk:
            assert self._process is not None
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process.stdout = None
            return
        self._printed += len(chunk)
        self._words = (self._words + chunk)[-LAST_WORDS:]
        if self.bounds and self._printed > self.bounds.output_bytes:
            raise Overrun(f"it printed more than {self.bounds.output_bytes:,} bytes")

    def _last_words(self) -> str:
        """What it printed before it died, such as where a crash was."""
        with contextlib.suppress(OSError, Overrun):
            while self._output >= 0 and select.select([self._output], [], [], 0.0)[0]:
                self._drain()
        words = self._words.decode("utf-8", "replace").strip()
        return f"; its last words: {words}" if words else ""

    def close(self) -> None:
        """End the child and everything it started."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.wait()
        self._words = b""
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1


def _widen(pipe: int) -> None:
    """Let a pipe hold as much as a batch, so that neither side waits for the other to make room (Linux)."""
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
