"""The sandbox on Linux: bubblewrap, limits and a filter of system calls, kept warm (ADR 7).

A sandbox stands ready with its modules loaded and forks for each job. It takes another job only when the last
one ended as it should; after a hang, a death or a word too many it is thrown away with all that is in it.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import PathFinder
from typing import Final

import msgspec
from msgspec import Struct, structs

from millstream.adapters import sandbox_command as on_linux
from millstream.adapters.sandbox_cell import LENGTH, Cell, Ended
from millstream.adapters.sandbox_filter import seccomp_filter
from millstream.errors import Unavailable
from millstream.sandboxing import Code, Ran, RanStatus
from millstream.settings import SandboxSettings

SIGKILL, SIGXCPU = 128 + 9, 128 + 24
ROOM: Final = 100_000
"""What an answer may have beside its value and its output: the traceback, the marks of JSON."""


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the program inside says. It comes from where the code ran, so it is checked like any input."""

    status: RanStatus
    value: object = None
    detail: str = ""
    stdout: str = ""
    cut: bool = False


class BubblewrapSandbox:
    """Sandboxes of one set of limits, at most ``settings.workers`` at work, and a few kept warm."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Nothing is started before the first job or `warm`."""
        self._settings = settings
        self._identities = on_linux.identities()
        self._warm: list[Cell] = []
        self._guard = threading.Lock()
        self._turns = threading.BoundedSemaphore(settings.workers)
        # Sandboxes die with the *thread* that started them (PR_SET_PDEATHSIG): one that lives as long as this.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")
        self._closed = False
        self._most = 2 * (settings.workers + 1)

    def run(self, code: Code, timeout_s: float | None = None) -> Ran:
        """See `millstream.sandboxing.Sandbox.run`."""
        limit = min(self._settings.timeout_s, timeout_s or self._settings.timeout_s)
        job = msgspec.json.encode(code)
        bound = self._settings.output_bytes
        with self._turns:
            cell = self._take(code.preload)
            begun = time.perf_counter()
            try:
                ended = cell.run(job, limit, 2 * 6 * bound + ROOM)
            finally:
                self._give_back(cell)
        return structs.replace(told(ended, limit), seconds=time.perf_counter() - begun)

    def warm(self, preload: tuple[str, ...] = ()) -> None:
        """Start as many as may work side by side, and wait until they take jobs. Raises `Unavailable`."""
        cells = [self._take(preload) for _ in range(self._settings.workers)]
        with self._guard:
            self._warm += cells

    def check(self) -> None:
        """See `millstream.sandboxing.Sandbox.check`."""
        if not self._warm:
            self.warm()

    @property
    def keeps(self) -> bool:
        """Whether the warm ones take one job after another (they can't where a profile forbids namespaces
        inside of namespaces: each then serves one job). Known once one was started.
        """
        return any(cell.nested for cell in self._warm)

    def missing(self, modules: Sequence[str]) -> tuple[str, ...]:
        """See `millstream.sandboxing.Sandbox.missing`."""
        return tuple(name for name in dict.fromkeys(modules) if not _importable(name))

    def close(self) -> None:
        """End them all."""
        with self._guard:
            self._closed = True
            cells, self._warm = self._warm, []
        for cell in cells:
            cell.close()
        self._starter.shutdown(wait=True)

    def _take(self, preload: tuple[str, ...]) -> Cell:
        """A sandbox that takes a job now: one that stands ready, else a new one."""
        while True:
            with self._guard:
                fitting = [one for one in self._warm if one.preload == preload]
                cell = next((one for one in fitting if one.started), fitting[0] if fitting else None)
                if cell:
                    self._warm.remove(cell)
            if cell is None:
                return self._fresh(preload)
            if cell.alive:
                with contextlib.suppress(Unavailable):
                    cell.ready()
                    return cell
            cell.close()

    def _fresh(self, preload: tuple[str, ...]) -> Cell:
        """A new one that takes jobs, started in the first of the possible ways that works."""
        while True:
            try:
                cell = self._begun(preload)
                try:
                    cell.ready()
                except BaseException:
                    cell.close()
                    raise
            except Unavailable as error:
                with self._guard:
                    if len(self._identities) == 1:
                        raise Unavailable(f"{error}{'' if '; ' in str(error) else f'; {on_linux.mend()}'}") from None
                    self._identities = self._identities[1:]
            else:
                return cell

    def _begun(self, preload: tuple[str, ...]) -> Cell:
        """A sandbox that begins to start; `Cell.ready` waits for it."""
        return self._starter.submit(self._start, preload).result()

    def _start(self, preload: tuple[str, ...]) -> Cell:
        identity = self._identities[0]
        bounded = bool(identity) or os.getuid() != 0
        return Cell(self._command, self._config(threads=bounded), identity, on_linux.ENVIRONMENT, preload)

    def _command(self, control: int) -> list[str]:
        return on_linux.command(self._settings.disk_bytes, control)

    def _config(self, *, threads: bool) -> Mapping[str, object]:
        """What the program inside is told once. ``threads``: the system bounds their number (it does not for
        processes that are root's).
        """
        settings = self._settings
        return {
            "paths": on_linux.package_places(),
            "nested": True,
            "filter": self._filter(threads=threads).hex(),
            "cpu_s": math.ceil(settings.timeout_s) + 1,
            "memory_bytes": settings.memory_bytes,
            "disk_bytes": settings.disk_bytes,
            "output_bytes": settings.output_bytes,
        }

    def _filter(self, *, threads: bool) -> bytes:
        return seccomp_filter(threads=threads)

    def _give_back(self, cell: Cell) -> None:
        """Keep it for the next job, or throw it away. One more than may work stands ready: the next job need not
        wait for the last one's process to end and for a fresh one to come.
        """
        keep = cell.reusable and not self._closed
        with self._guard:
            if keep:
                self._warm.append(cell)
            over, self._warm = self._warm[: -self._most], self._warm[-self._most :]
            alike = [one for one in self._warm if one.preload == cell.preload]
        for one in over if keep else [*over, cell]:
            one.close()
        if len(alike) <= self._settings.workers and not self._closed:
            with contextlib.suppress(Unavailable, OSError):  # the next job says it
                fresh = self._begun(cell.preload)
                with self._guard:
                    self._warm.append(fresh)


def told(ended: Ended, limit: float) -> Ran:
    """What became of a job, from how its process ended and what it wrote."""
    if ended.code is None:
        return Ran(status="timeout", detail=f"no answer within {limit:g} s")
    if ended.code == 0:
        return _answered(ended.answer)
    if ended.code in (SIGKILL, SIGXCPU):
        return Ran(status="died", detail="its process was killed: out of processor time, or of memory")
    if ended.code < 0:
        return Ran(status="died", detail="its process wrote more than it may, or took the sandbox down")
    way = f"by signal {ended.code - 128}" if ended.code > 128 else f"with exit code {ended.code}"
    return Ran(status="died", detail=f"its process ended {way} and gave no answer")


def _answered(frame: bytes) -> Ran:
    """The answer in a frame, if that is what the process wrote."""
    try:
        if len(frame) < LENGTH.size or LENGTH.unpack_from(frame)[0] != len(frame) - LENGTH.size:
            raise ValueError("not one whole answer")  # noqa: TRY301 — one door for all that is no answer
        answer = msgspec.json.decode(frame[LENGTH.size :], type=Answer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        detail = f"its process ended and left no answer that can be read ({error})"
        return Ran(status="died", detail=detail)
    return Ran(
        status=answer.status,
        value=answer.value if answer.status == "ok" else None,
        stdout=answer.stdout,
        cut=answer.cut,
        detail=answer.detail[:ROOM],
    )


def _importable(name: str) -> bool:
    """Whether a top-level module is there: part of Python, or installed. Nothing is imported."""
    if name in sys.stdlib_module_names:
        return True
    return PathFinder.find_spec(name, on_linux.packages()) is not None


class NoSandbox(BubblewrapSandbox):
    """The same with nothing around it but limits and, where libseccomp is, the filter: the code can read what
    this user can read. Only for `[sandbox] run_untrusted_code_without_a_sandbox`. One process a job.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        super().__init__(settings)
        self._identities = [{}]

    def _command(self, control: int) -> list[str]:
        return on_linux.inside(str(control), str(on_linux.INSIDE))

    def _config(self, *, threads: bool) -> Mapping[str, object]:
        return {**super()._config(threads=threads), "nested": False, "paths": on_linux.packages()}

    def _filter(self, *, threads: bool) -> bytes:
        """None where there is no libseccomp."""
        try:
            return super()._filter(threads=threads)
        except Unavailable:
            return b""
