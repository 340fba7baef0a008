"""The program inside a sandbox: it waits with its modules loaded and forks a fresh process for each piece of code.

It is run as a file, by the sandbox's own Python, and imports nothing of Millstream. The waiting process never
sees a job: its child reads it, so that nothing of one job can be in the memory of the next. Where namespaces allow
it the child takes new mount and IPC namespaces, so each job has an empty ``/tmp``. Where they don't, a sandbox serves
one job and is thrown away. No job can start, see or signal a process: the filter of system calls has none of it.

Standard input brings the configuration, then jobs; standard output takes answers; a third pipe, which no job
can reach, says how a job's process ended. Frames are a 4-byte length and JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import linecache
import os
import resource
import signal
import struct
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

LENGTH = struct.Struct("<I")
READY, NOT_NESTED = 1_000_000, 1_000_001
"""What the third pipe says first: jobs can be kept apart in here, or one job is all."""
CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CAPABILITY_VERSION_3 = 0x20080522
EXIT_SETUP, EXIT_NO_JOB = 97, 98
DETAIL = 4000
COMMON = "base64 collections copy csv datetime decimal difflib fractions functools hashlib itertools math random re"
COMMON += " statistics string textwrap typing unicodedata"

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_: ClassVar = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main() -> None:
    """Get ready, say so, then one child a job until no more come."""
    control = int(sys.argv[1])
    config = json.loads(read_frame(0) or b"{}")
    sys.path.extend(config["paths"])
    for name in [*COMMON.split(), *config["preload"]]:
        with contextlib.suppress(BaseException):  # the code that needs it says so itself
            importlib.import_module(name)
    rehearse(config)
    nested = config["nested"] and can_nest()
    os.write(control, LENGTH.pack(READY if nested else NOT_NESTED))
    while True:
        child = os.fork()
        if child == 0:
            become(apart if nested else serve, config, control)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == EXIT_NO_JOB:
            return
        os.write(control, LENGTH.pack(code if code >= 0 else 128 - code))


def rehearse(config: dict[str, Any]) -> None:
    """Run one harmless job here, so that what every job needs is loaded before the first, and take what is
    loaded out of the collector's sight: a child then copies fewer pages.
    """
    kept = sys.stdin, sys.stdout, sys.stderr
    source = "def f(x):\n    print(x)\n    raise ValueError(x)"
    job = {"sources": [["f", source]], "function": "f", "arguments": [1], "stdin": "", "module": "rehearsal"}
    json.loads(json.dumps(run(job, config)))
    sys.stdin, sys.stdout, sys.stderr = kept
    del sys.modules["rehearsal"]
    linecache.clearcache()
    gc.collect()
    gc.freeze()


def become(role: Callable[[dict[str, Any]], None], config: dict[str, Any], control: int) -> NoReturn:
    """Leave the waiting loop for good, whatever happens."""
    try:
        os.close(control)
        role(config)
    except BaseException:  # noqa: BLE001 — whatever it was, this process must not go on
        traceback.print_exc()
    os._exit(EXIT_SETUP)


def can_nest() -> bool:
    """Whether a process in here may have namespaces of its own (it may not where a profile forbids it)."""
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def apart(config: dict[str, Any]) -> NoReturn:
    """Serve a job from new namespaces: an empty ``/tmp`` that ends with the process."""
    called(libc.unshare(CLONE_NEWNS | CLONE_NEWIPC), "unshare")
    options = f"size={config['disk_bytes']},nr_inodes=10000,mode=1777".encode()
    called(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options), "mount")
    serve(config)


def called(answer: int, name: str) -> None:
    """Raise what a call of the C library failed with."""
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def serve(config: dict[str, Any]) -> NoReturn:
    """Give up what can be given up, read one job, run it, answer, end."""
    os.chdir("/tmp")  # noqa: S108 — its own
    limits(config)
    drop_capabilities()
    filter_calls(bytes.fromhex(config["filter"]))
    job = read_frame(0)
    if job is None:
        os._exit(EXIT_NO_JOB)
    answers = os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    answer = json.dumps(run(json.loads(job), config)).encode()
    write_all(answers, LENGTH.pack(len(answer)) + answer)
    os._exit(0)


def limits(config: dict[str, Any]) -> None:
    """Bounds that nothing after this can raise."""
    for name, value in (
        ("CPU", config["cpu_s"]),
        ("AS", config["memory_bytes"]),
        ("FSIZE", config["disk_bytes"]),
        ("NOFILE", 64),
        ("NPROC", 64),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        kind = getattr(resource, f"RLIMIT_{name}", -1)
        if sys.platform == "linux":
            bound(kind, value)
        else:
            with contextlib.suppress(ValueError, OSError):  # it has no such limit
                bound(kind, value)


def bound(kind: int, value: int) -> None:
    """A limit, for good; a lower one that is there already stays."""
    hard = resource.getrlimit(kind)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (most, most))


def drop_capabilities() -> None:
    """None is left, and none can come back: no program is ever started again."""
    if sys.platform != "linux":
        return  # only where a setting allows code without a sandbox
    header = struct.pack("<Ii", CAPABILITY_VERSION_3, 0)
    called(libc.capset(header, struct.pack("<6I", *[0] * 6)), "capset")
    called(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def filter_calls(program: bytes) -> None:
    """Load the filter of system calls (an array of `struct sock_filter`); none when it is empty."""
    if program:
        made = Program(len(program) // 8, program)
        called(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(made), 0, 0), "seccomp")


def read_frame(fd: int) -> bytes | None:
    """One frame, or None at the end."""
    head = read_exactly(fd, LENGTH.size)
    return None if head is None else read_exactly(fd, LENGTH.unpack(head)[0])


def read_exactly(fd: int, size: int) -> bytes | None:
    """That many bytes, or None when there are fewer."""
    parts = bytearray()
    while len(parts) < size:
        chunk = os.read(fd, min(size - len(parts), 1 << 20))
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)


def write_all(fd: int, data: bytes) -> None:
    """All of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Kept(io.TextIOBase):
    """What is printed, up to a bound; the rest is dropped and said to be."""

    def __init__(self, bound: int) -> None:
        self.parts: list[str] = []
        self.left, self.cut = bound, False

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text and self.left > 0:
            self.parts.append(text[: self.left])
        self.cut = self.cut or len(text) > self.left
        self.left = max(0, self.left - len(text))
        return len(text)

    def text(self) -> str:
        """What was kept, as text that can be written down."""
        return "".join(self.parts).encode("utf-8", "replace").decode()


def run(job: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The answer to a job: never raises for what the code did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = sys.stdout = Kept(config["output_bytes"])
    sys.stderr = Kept(0)
    sys.stdin = io.StringIO(job["stdin"])
    status, value, detail = "ok", None, ""
    try:
        value = plain(execute(job), config["output_bytes"])
    except Unfit as error:
        status, detail = "unparsable", str(error)
    except MemoryError:
        status, detail = "memory", "MemoryError: the code needs more memory than it may have"
    except SystemExit as error:
        if job["function"] or not (error.code is None or error.code == 0):
            status, detail = "error", told(error)
    except BaseException as error:  # noqa: BLE001 — the code may raise anything
        status, detail = "error", told(error)
    return {"status": status, "value": value, "detail": detail, "stdout": out.text(), "cut": out.cut}


def execute(job: dict[str, Any]) -> Any:
    """Run the sources in one namespace and call the function, if one is named."""
    module = types.ModuleType(job["module"])
    sys.modules[job["module"]] = module
    for name, text in job["sources"]:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 — what this file is for
    return getattr(module, job["function"])(*job["arguments"]) if job["function"] else None


class Unfit(Exception):
    """What the function returned can't be said in JSON."""


def plain(value: Any, bound: int) -> Any:
    """The value as JSON would give it back; numbers of NumPy and the like are numbers."""
    try:
        text = json.dumps(value, allow_nan=False, default=number)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unfit(f"it returned {type(value).__name__} {short(value)}: {error}"[:DETAIL]) from None
    if len(text) > bound:
        raise Unfit(f"it returned {len(text):,} bytes; {bound:,} are allowed")
    return json.loads(text)


def number(value: Any) -> float:
    """A number that JSON does not know, as one that it does."""
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if hasattr(value, "__index__"):
        return int(value)
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def short(value: Any) -> str:
    """A value for a message; what can't be told is left out."""
    try:
        return repr(value)[:80]
    except Exception:  # noqa: BLE001 — its own words may raise
        return ""


def told(error: BaseException) -> str:
    """The code's own traceback: its frames only, the last lines if it is long."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames)).strip()
    return (text if len(text) <= DETAIL else "…" + text[-DETAIL:]).encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
