"""What running code promises, on bubblewrap and on the adapter that stands in where a setting allows it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
from services.fixtures import need

from millstream.adapters import sandbox_command
from millstream.adapters.sandbox import BubblewrapSandbox, NoSandbox
from millstream.sandboxing import Code, Sandbox
from millstream.settings import SandboxSettings

LIMITS = SandboxSettings(timeout_s=20, memory_bytes=1 << 30, disk_bytes=16 << 20, output_bytes=10_000)
ADAPTERS = [
    NoSandbox,
    pytest.param(BubblewrapSandbox, marks=pytest.mark.services),
]


@pytest.fixture(params=ADAPTERS, scope="module")
def sandbox(request) -> Iterator[Sandbox]:
    """One adapter."""
    if request.param is BubblewrapSandbox:
        need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")
    made = request.param(LIMITS)
    yield made
    made.close()


def call(source: str, *arguments: object, **more) -> Code:
    return Code(sources=(("code.py", source),), function="f", arguments=arguments, **more)


@pytest.mark.parametrize(
    ("source", "arguments", "value"),
    [
        ("def f(a, b): return {'sum': a['x'] + b}", ({"x": 1}, 2), {"sum": 3}),
        ("def f(): return (1, 2.5, None, True, 'é\\u0000')", (), [1, 2.5, None, True, "é\u0000"]),
        ("import numpy\ndef f(): return [numpy.float32(0.5), numpy.int64(3), numpy.bool_(True)]", (), [0.5, 3, True]),
        ("def f(x): return x", (10**30,), 10**30),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\ndef f(): return P(3).x", (), 3),
        ("def f(): return 0.1 + 0.2", (), 0.1 + 0.2),
    ],
)
def test_values_go_in_and_come_out_as_json(sandbox, source, arguments, value):
    """What JSON can say arrives unchanged, both ways; numbers of NumPy are numbers."""
    ran = sandbox.run(call(source, *arguments))
    assert (ran.status, ran.value) == ("ok", value), ran


@pytest.mark.services
def test_packages_are_seen_wherever_the_environment_lies(tmp_path, monkeypatch):
    """Also in the folder for temporary files, of which the sandbox has one of its own."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")
    (tmp_path / "elsewhere.py").write_text("VALUE = 7\n")
    monkeypatch.setattr(sandbox_command, "packages", lambda: (str(tmp_path),))
    made = BubblewrapSandbox(LIMITS)
    try:
        ran = made.run(call("import elsewhere\ndef f(): return elsewhere.VALUE"))
    finally:
        made.close()
    assert (ran.status, ran.value) == ("ok", 7), ran


def test_sources_share_a_namespace_and_a_program_has_input_and_output(sandbox):
    """Without a function the sources are a program: what they print is what comes out."""
    code = Code(sources=(("a", "def twice(x):\n    return 2 * int(x)"), ("b", "print(twice(input()))")), stdin="21\n")
    ran = sandbox.run(code)
    assert (ran.status, ran.stdout, ran.cut) == ("ok", "42\n", False)


def test_a_program_may_end_itself(sandbox):
    """`sys.exit()` is an end like any other, an exit code is a failure."""
    assert sandbox.run(Code(sources=(("a", "import sys; print(1); sys.exit()"),))).stdout == "1\n"
    assert sandbox.run(Code(sources=(("a", "import sys; sys.exit(2)"),))).status == "error"


def test_a_traceback_is_the_code_s_own(sandbox):
    """File, line and text of the code; nothing of the machinery around it."""
    ran = sandbox.run(call("def f(x):\n    return 1 / x", 0))
    assert ran.status == "error"
    assert "sandbox" not in ran.detail
    assert 'File "code.py", line 2, in f' in ran.detail
    assert "return 1 / x" in ran.detail
    assert ran.detail.endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("source", "word"),
    [("def f(:", "SyntaxError"), ("def g(): pass", "AttributeError"), ("import no_such_thing", "ModuleNotFoundError")],
)
def test_code_that_is_none_is_an_error(sandbox, source, word):
    """What can't be compiled, lacks the function or a package says so."""
    ran = sandbox.run(call(source))
    assert ran.status == "error"
    assert word in ran.detail


def test_a_deadline_of_one_s_own_is_kept(sandbox):
    """Soon after it the answer is "timeout", and the next job has another process."""
    begun = time.monotonic()
    ran = sandbox.run(call("def f():\n    import time\n    time.sleep(60)"), timeout_s=0.5)
    assert (ran.status, "0.5 s" in ran.detail) == ("timeout", True)
    assert time.monotonic() - begun < 10
    assert sandbox.run(call("def f(): return 1")).value == 1


def test_memory_and_output_have_bounds(sandbox):
    """What does not fit is a failure with its name, or is cut and says so."""
    assert sandbox.run(call("def f():\n    return len(bytearray(3 << 30))")).status == "memory"
    printed = sandbox.run(Code(sources=(("a", "print('x' * 1_000_000)"),)))
    assert (len(printed.stdout), printed.cut) == (10_000, True)
    assert sandbox.run(call("def f():\n    return 'x' * 1_000_000")).status == "unparsable"


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "{1, 2}", "object()", "{(1, 2): 3}", "b'x'"])
def test_what_is_no_json_is_unparsable(sandbox, value):
    """Never a number, never a text that looks like one."""
    ran = sandbox.run(call(f"def f(): return {value}"))
    assert (ran.status, ran.value) == ("unparsable", None)


def test_a_long_argument_arrives_whole(sandbox):
    """More than a pipe holds."""
    assert sandbox.run(call("def f(x): return len(x)", "x" * 3_000_000)).value == 3_000_000


def test_what_is_preloaded_is_there(sandbox):
    """And a module that can't be loaded is the code's own affair."""
    assert sandbox.run(call("import sys\ndef f(): return 'numpy' in sys.modules", preload=("numpy",))).value is True
    assert sandbox.run(call("def f(): return 1", preload=("no_such_thing",))).value == 1


def test_what_is_missing_is_known_without_importing(sandbox):
    """Python's own modules and installed packages are there."""
    assert sandbox.missing(["json", "numpy", "sys", "no_such_thing"]) == ("no_such_thing",)
