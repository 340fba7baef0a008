"""One sandbox and what is said to it: a job goes in, its answer and how its process ended come out.

The two ways back are read together: the answer's pipe, which the code could write anything to, and the third,
which it can't reach. What they said decides whether this sandbox may take another job.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from millstream.errors import Unavailable

LENGTH: Final = struct.Struct("<I")
READY, NOT_NESTED = 1_000_000, 1_000_001
START_S: Final = 60.0
SETTLE_S: Final = 2.0
"""How long a process may take to end after its answer."""


class Ended(Struct, frozen=True):
    """How a job ended: the exit code of its process (128 and more: a signal), or None at the deadline; what it
    wrote.
    """

    code: int | None
    answer: bytes


class Cell:
    """A started sandbox. Not thread-safe: one job at a time."""

    def __init__(
        self,
        build: Callable[[int], list[str]],
        config: Mapping[str, object],
        identity: Mapping[str, object],
        environ: Mapping[str, str],
        preload: tuple[str, ...] = (),
    ) -> None:
        """``build`` makes the command line, given the number of the third pipe."""
        self.preload = preload
        self.nested = False
        self.reusable = True
        self._up = self._owed = False
        self._answers, answers = os.pipe()
        self._control, control = os.pipe()
        try:
            self._process = subprocess.Popen(
                build(control),
                stdin=subprocess.PIPE,
                stdout=answers,
                stderr=subprocess.PIPE,
                pass_fds=(control,),
                env=dict(environ),
                start_new_session=True,
                **identity,  # type: ignore[call-overload]
            )
        except OSError as error:
            os.close(self._answers)
            os.close(self._control)
            raise Unavailable(f"the sandbox does not start: {error}") from None
        finally:
            os.close(answers)
            os.close(control)
        os.set_blocking(self._answers, False)
        self._send(msgspec.json.encode({**config, "preload": preload}))

    @property
    def pid(self) -> int:
        """The process id of bubblewrap itself."""
        return int(self._process.pid)

    @property
    def alive(self) -> bool:
        """Whether it stands and takes a job: the last one's process ended as it should, and nothing came after its
        answer.
        """
        if self._owed:
            self._owed = False
            late = bytearray()
            ended = self._said(time.monotonic() + SETTLE_S)
            self._take(late, 1)
            if ended != 0 or late:
                return False
        return self._process.poll() is None and not (self._up and select.select([self._control], [], [], 0)[0])

    @property
    def started(self) -> bool:
        """Whether `ready` would not wait."""
        return self._up or bool(select.select([self._control], [], [], 0)[0])

    def ready(self, timeout_s: float = START_S) -> None:
        """Wait until it takes jobs. Raises `Unavailable` with what bubblewrap said."""
        if self._up:
            return
        said = self._said(time.monotonic() + timeout_s)
        if said not in (READY, NOT_NESTED):
            raise Unavailable(f"the sandbox does not start: {self._complaint()}")
        self._up, self.nested = True, said == READY

    def run(self, job: bytes, timeout_s: float, bound: int) -> Ended:
        """One job. ``bound``: the most bytes an answer may have; more end it, as the deadline does."""
        self.reusable = False
        deadline = time.monotonic() + timeout_s
        answer = bytearray()
        rest = memoryview(LENGTH.pack(len(job)) + job)
        assert self._process.stdin is not None
        writer = self._process.stdin.fileno()
        os.set_blocking(writer, False)
        while (wait := deadline - time.monotonic()) > 0:
            reads, writes, _ = select.select([self._answers, self._control], [writer] if rest else [], [], wait)
            if writes:
                rest = rest[_written(writer, rest) :]
            if self._answers in reads:
                self._take(answer, bound)
            if len(answer) > bound:
                return Ended(-1, bytes(answer))
            if not rest and (frame := _frame(answer)):
                # How its process ends is heard before the next job, not waited for now.
                self._owed, self.reusable = True, self.nested and frame == len(answer)
                return Ended(0, bytes(answer[:frame]))
            if self._control in reads:
                code = self._said(deadline)
                self._take(answer, bound)
                return Ended(-1 if code is None else code, bytes(answer[: _frame(answer) or len(answer)]))
        return Ended(None, bytes(answer))

    def _take(self, answer: bytearray, bound: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(answer) <= bound and (chunk := os.read(self._answers, 1 << 16)):
                answer += chunk

    def _said(self, deadline: float) -> int | None:
        """One word of the third pipe, or None when there is none."""
        if not select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        said = os.read(self._control, LENGTH.size)
        return int(LENGTH.unpack(said)[0]) if len(said) == LENGTH.size else None

    def _send(self, payload: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(LENGTH.pack(len(payload)) + payload)
            self._process.stdin.flush()

    def _complaint(self) -> str:
        """What it wrote before it ended: bubblewrap's own words."""
        self._kill()
        assert self._process.stderr is not None
        said = self._process.stderr.read(4000).decode("utf-8", "replace").strip()
        return said.splitlines()[-1] if said else "it ended without a word"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it and all that is in it (its process namespace ends with bubblewrap)."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        for fd in (self._answers, self._control):
            os.close(fd)


def _frame(answer: bytearray) -> int:
    """How long the first frame is, once it is whole, else 0. What comes after it, at once or late, is no part of
    the answer.
    """
    said = LENGTH.unpack_from(answer)[0] if len(answer) >= LENGTH.size else 0
    return LENGTH.size + said if 0 < said <= len(answer) - LENGTH.size else 0


def _written(fd: int, rest: memoryview) -> int:
    try:
        return os.write(fd, rest[: 1 << 16])
    except BlockingIOError:
        return 0
