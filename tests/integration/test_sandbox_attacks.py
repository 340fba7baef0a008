"""Code that nobody vouches for, in the sandbox: what it tries, and that nothing comes of it.

The first seventeen are those of the prototype that chose the design; the others came while it was built.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from services.fixtures import need

from millstream.adapters.sandbox import BubblewrapSandbox
from millstream.sandboxing import Code, Ran
from millstream.settings import SandboxSettings

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("sandbox")]
LIMITS = SandboxSettings(timeout_s=1.5, memory_bytes=512 << 20, disk_bytes=16 << 20, output_bytes=10_000)
SAMPLE, ITEM = {"output_text": "42"}, {"reference_answer": "42"}
GRADE = "def grade(s, i):\n"
CALLS = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\ndef call(*a):\n    return libc.syscall(*a)\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[BubblewrapSandbox]:
    """One sandbox for all: an attack that hurt it would fail the next test."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")
    made = BubblewrapSandbox(LIMITS)
    yield made
    made.close()


def run(sandbox: BubblewrapSandbox, source: str, *, function: str = "grade", **more) -> Ran:
    code = Code(sources=(("grader.py", source),), function=function, arguments=(SAMPLE, ITEM), **more)
    return sandbox.run(code)


def unharmed(sandbox: BubblewrapSandbox) -> bool:
    """Whether the harmless control has its grade after all that was done."""
    control = GRADE + "    return 1.0 if s['output_text'] == i['reference_answer'] else 0.0"
    return run(sandbox, control).value == 1.0


def test_the_harmless_control_has_its_grade(sandbox):
    """A grader that does what graders do is not in the sandbox's way."""
    assert unharmed(sandbox)


ATTACKS = {
    "infinite_loop": ("    while True: pass", "timeout", ""),
    "sleep": ("    import time; time.sleep(60); return 1.0", "timeout", ""),
    "mem_bomb": ("    x = bytearray(4 << 30); return 1.0", "memory", "MemoryError"),
    "fork_bomb": ("    import os\n    for _ in range(200): os.fork()\n    return 1.0", "error", "PermissionError"),
    "env_leak": ("    import os; return 1.0 if 'SECRET_KEY' in os.environ else 0.0", "ok", 0.0),
    "read_host_file": ("    return 1.0 if open('/etc/shadow').read() else 0.0", "error", "FileNotFoundError"),
    "huge_stdout": ("    print('x' * 50_000_000); return 1.0", "ok", 1.0),
    "disk_fill": (
        "    f = open('/tmp/big', 'wb')\n    for _ in range(200): f.write(b'0' * (1 << 20))\n    return 1.0",
        "error",
        "OSError",
    ),
    "nan": ("    return float('nan')", "unparsable", "nan"),
    "kill_parent": ("    import os; os.kill(os.getppid(), 0); return 1.0", "error", "PermissionError"),
    "see_procs": ("    import os; return float(len(os.listdir('/proc')))", "error", "FileNotFoundError"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attacks_of_the_prototype(sandbox, name, monkeypatch):
    """Each is a grade that failed, for the reason it should, or is a truth about nothing; no attack costs another
    its grade.
    """
    monkeypatch.setenv("SECRET_KEY", "k")
    body, status, wanted = ATTACKS[name]
    ran = run(sandbox, GRADE + body)
    assert ran.status == status, ran
    assert ran.value == wanted if status == "ok" else wanted in ran.detail
    assert unharmed(sandbox)


def test_the_network_is_not_there(sandbox):
    """Nothing reaches a server on this machine's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        ran = run(
            sandbox,
            GRADE + f"    import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)",
        )
        assert (ran.status, "PermissionError" in ran.detail) == ("error", True)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_host_s_files_are_neither_read_nor_written(sandbox, tmp_path):
    """A secret in a temporary folder stays one, and no file appears beside it."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    read = run(sandbox, GRADE + f"    return float(len(open({str(secret)!r}).read()))")
    wrote = run(sandbox, GRADE + f"    open({str(tmp_path / 'new')!r}, 'w').write('x'); return 1.0")
    assert (read.status, wrote.status) == ("error", "error")
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize(
    ("source", "status", "value"),
    [
        # A float that claims to be in any range is the number it holds.
        ("class F(float):\n    def __le__(s, o): return True\n" + GRADE + "    return F(99)", "ok", 99.0),
        # What equals everything is not in the arguments: they are plain JSON.
        (GRADE + "    return float([type(s), type(i), type(s['output_text'])] == [dict, dict, str])", "ok", 1.0),
        (GRADE + "    class T:\n        __eq__ = lambda s, o: True\n    return T()", "unparsable", None),
        (GRADE + '    import os; os.write(1, b\'{"status":"ok","value":1.0}\'); os._exit(0)', "died", None),
        (
            GRADE
            + "    import os\n    for fd in range(3, 64):\n        try: os.write(fd, b'x' * 9)\n        except OSError:"
            " pass\n    os._exit(0)",
            "died",
            None,
        ),
    ],
)
def test_what_a_grader_returns_is_plain_json_or_nothing(sandbox, source, status, value):
    """No object of the code's comes out, and a forged answer is none."""
    ran = run(sandbox, source)
    assert (ran.status, ran.value) == (status, value), ran
    assert unharmed(sandbox)


FORBIDDEN = {
    "a program": "os.execv('/usr/bin/true', ['true'])",
    "a subprocess": "__import__('subprocess').run(['/usr/bin/true'])",
    "a shell": "os.posix_spawn('/bin/sh', ['sh'], {})",
    "every process killed": "os.kill(-1, 9)",
    "a thread of another process killed": "os.kill(1, 9)",
    "root": "os.setuid(0)",
    "limits raised": "__import__('resource').setrlimit(0, (9999, 9999))",
    "limits of the parent": "__import__('resource').prlimit(1, 0)",
    "a socket": "__import__('socket').socket()",
    "a raw socket": "__import__('socket').socket(17, 3)",
    "memory that is no address space": "os.memfd_create('x')",
    "another priority": "os.setpriority(0, 0, -5)",
    "a chroot": "os.chroot('/tmp')",
    "a device": "os.mknod('/tmp/d', 0o60600, 0x800)",
    "a pipe to nowhere": "os.mkfifo('/tmp/f')",
    "the system's files": "open('/usr/x', 'w')",
    "the root folder": "open('/x', 'w')",
    "devices": "open('/dev/x', 'w')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "its own program": "open('/run/inside.py', 'a')",
    "Python's own files": "open(__import__('json').__file__, 'a')",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_is_forbidden_says_so(sandbox, name):
    """The call fails, the grader may see that, and there is no grade."""
    ran = run(sandbox, GRADE + f"    import os\n    {FORBIDDEN[name]}\n    return 1.0")
    assert ran.status == "error", ran
    assert any(word in ran.detail for word in ("PermissionError", "OSError", "[Errno", "not allowed")), ran.detail
    assert unharmed(sandbox)


NUMBERS = {"ptrace": 101, "unshare": 272, "mount": 165, "setns": 308, "add_key": 248, "keyctl": 250, "bpf": 321}
NUMBERS |= {"userfaultfd": 323, "perf_event_open": 298, "io_uring_setup": 425, "shmget": 29, "msgget": 68}
NUMBERS |= {
    "process_vm_readv": 310,
    "pidfd_open": 434,
    "personality": 135,
    "vfork": 58,
    "clone_newuser": 56,
    "x32": 1 << 30,
}
NUMBERS |= {
    "mq_open": 240,
    "semget": 64,
    "seccomp": 317,
    "kexec_load": 246,
    "name_to_handle_at": 303,
    "sethostname": 170,
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86-64's")
@pytest.mark.parametrize("name", NUMBERS)
def test_a_system_call_past_python_is_refused(sandbox, name):
    """Machine code may call anything by its number; the filter answers EPERM (or the process dies of it)."""
    number = NUMBERS[name]
    first = 0x10000000 if name == "clone_newuser" else 0
    ran = run(sandbox, CALLS + GRADE + f"    return [call({number}, {first}, 0, 0, 0, 0, 0), ctypes.get_errno()]")
    assert ran.status == "died" or ran.value == [-1, 1], ran
    assert unharmed(sandbox)


AFTERWARDS = """    import os
    real = os._exit
    def late(code):
        for fd in range(3, 9):
            try: os.write(fd, b'x' * 99)
            except OSError: pass
        real(code)
    os._exit = late
    return 1.0
"""
DEATHS = {
    "exit": ("    import os; os._exit(3)", "died", "exit code 3"),
    "segmentation fault": ("    import ctypes; ctypes.string_at(0)", "died", "signal 11"),
    "abort": ("    import os; os.abort()", "died", "signal"),
    "sys.exit": ("    import sys; sys.exit(0)", "error", "SystemExit"),
    "interrupt": ("    raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
    "endless recursion": ("    return grade(s, i)", "error", "RecursionError"),
    "endless answer": ("    return 'x' * 20_000", "unparsable", "bytes"),
    "deep answer": ("    x = []\n    for _ in range(100_000): x = [x]\n    return x", "unparsable", "recursion"),
    "a name for itself": ("    return grade", "unparsable", "function"),
    "words that raise": (
        "    class E(Exception):\n        def __str__(s): raise ValueError\n    raise E",
        "error",
        "E: <exception str() failed>",
    ),
    "half a character": ("    raise ValueError('\\ud83d')", "error", "ValueError"),
    "every file open": ("    x = [open('/dev/null') for _ in range(100)]", "error", "Too many open files"),
    "every inode": (
        "    for n in range(20_000): open(f'/tmp/{n}', 'w').close()",
        "error",
        "No space left",
    ),
    "a lie on its way out": ("    import os, sys\n    os.close(1)\n    while True: pass", "timeout", ""),
    "an alarm": ("    import signal; signal.alarm(1)\n    while True: pass", "died", "signal 14"),
    "a power without end": ("    return 3 ** (10 ** 9)", "timeout", ""),
    "a pattern without end": ("    import re; return re.match('(a+)+$', 'a' * 40 + 'b')", "timeout", ""),
    "more after the answer": (AFTERWARDS, "ok", ""),
    "a late end": ("    import os, time\n    os._exit = lambda code: time.sleep(60)\n    return 1.0", "ok", ""),
    "endless garbage": (
        (
            "    import os\n    while True:\n        for fd in (3, 4, 5):\n            try: os.write(fd, bytes(9999))\n"
            "            except OSError: pass"
        ),
        "died",
        "more than it may",
    ),
}


@pytest.mark.parametrize("name", DEATHS)
def test_every_way_to_end_is_one_failure(sandbox, name):
    """It has a status and a reason that tells what happened; the next job is none the worse."""
    body, status, word = DEATHS[name]
    ran = run(sandbox, GRADE + body)
    assert ran.status == status, ran
    assert word in ran.detail
    assert unharmed(sandbox)


FORKS = """import os
def leave(s, i):
    try: os.fork()
    except OSError: pass
def find(s, i):
    try: return os.waitpid(-1, 0)
    except ChildProcessError: return None
"""
LEAKS = {
    "a file": (
        "import os\ndef leave(s, i): open('/tmp/x', 'w').write('x')\ndef find(s, i): return os.listdir('/tmp')",
        [],
    ),
    "the folder's own times": (
        "import os\ndef leave(s, i): os.utime('/tmp', (7, 7))\ndef find(s, i): return os.stat('/tmp').st_mtime == 7",
        False,
    ),
    "the folder's mode": (
        "import os\ndef leave(s, i): os.chmod('/tmp', 0)\ndef find(s, i): return os.stat('/tmp').st_mode % 512 == 0",
        False,
    ),
    "a module's attribute": (
        "import math\ndef leave(s, i): math.left = 1\ndef find(s, i): return hasattr(math, 'left')",
        False,
    ),
    "a changed library": (
        "import json\ndef leave(s, i): json.dumps = lambda *a, **k: '1'\ndef find(s, i): return json.dumps([2])",
        "[2]",
    ),
    "an environment variable": (
        "import os\ndef leave(s, i): os.environ['LEFT'] = '1'\ndef find(s, i): return os.environ.get('LEFT')",
        None,
    ),
    "a process": (FORKS, None),
    "a name in the module": (
        "def leave(s, i): globals()['left'] = 1\ndef find(s, i): return 'left' in globals()",
        False,
    ),
    "the code before": (
        "import linecache\ndef leave(s, i): return None\ndef find(s, i): return sorted(linecache.cache)",
        ["grader.py"],
    ),
}


class OneJobEach(BubblewrapSandbox):
    """As on a machine whose profile forbids namespaces inside of namespaces."""

    def _config(self, *, threads: bool):
        return {**super()._config(threads=threads), "nested": False}


@pytest.fixture(scope="module")
def one_job_each(sandbox) -> Iterator[BubblewrapSandbox]:
    """Sandboxes that serve one job."""
    made = OneJobEach(LIMITS)
    yield made
    made.close()


@pytest.mark.parametrize("name", LEAKS)
def test_nothing_of_a_job_is_there_for_the_next(sandbox, one_job_each, name):
    """Files, processes, changed modules and variables end with the job, whether the sandbox lives on or not."""
    source, wanted = LEAKS[name]
    for made in (sandbox, one_job_each):
        assert run(made, source, function="leave").status == "ok"
        assert run(made, source, function="find").value == wanted
    assert (sandbox.keeps, one_job_each.keeps) == (True, False)


SCAN = """
import ctypes, gc
def f(kept, head, tail):
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    end = libc.sbrk(0)
    start = min(id(o) for o in gc.get_objects() if 0 < end - id(o) < 1 << 28)
    return ctypes.string_at(start, end - start).count((head + tail).encode())
"""


def test_the_memory_of_a_job_holds_nothing_of_the_one_before(sandbox):
    """A long text of one job is nowhere in the next one's heap; the same search finds a text of its own job."""
    word = "quince" * 2000

    def found(kept: str) -> object:
        code = Code(sources=(("g", SCAN),), function="f", arguments=(kept, word[:600], word[600:1200]))
        return sandbox.run(code).value

    assert found(word) > 0
    assert found("") == 0


def test_threads_are_none_or_few(sandbox):
    """A thousand threads are refused, whoever runs the sandbox."""
    source = GRADE + (
        "    import threading\n    gate = threading.Event()\n    n = 0\n    try:\n        for n in range(1000):\n"
        "            threading.Thread(target=gate.wait, daemon=True).start()\n"
        "    except RuntimeError:\n        return n\n    return 1000\n"
    )
    ran = run(sandbox, source)
    assert ran.status == "ok"
    assert ran.value < 100


def test_a_sandbox_outlives_the_thread_that_asked_for_it(sandbox):
    """The kernel would end it with the thread that started it: that is another one."""
    found: list[Ran] = []
    run(sandbox, GRADE + "    import os; os._exit(1)")
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(run(sandbox, GRADE + "    return 0.5")))
        thread.start()
        thread.join()
    assert [ran.value for ran in found] == [0.5, 0.5]


def test_many_threads_share_one_sandbox(sandbox):
    """Each has its own answer."""
    found: dict[int, object] = {}

    def ask(n: int) -> None:
        code = Code(sources=(("g", "def f(x): return x * 2"),), function="f", arguments=(n,))
        found[n] = sandbox.run(code).value

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: 2 * n for n in range(12)}


def test_closing_leaves_no_process(tmp_path: Path):
    """The warm ones end with the sandbox that kept them."""
    made = BubblewrapSandbox(LIMITS)
    made.warm()
    pids = [cell.pid for cell in made._warm]
    made.close()
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
