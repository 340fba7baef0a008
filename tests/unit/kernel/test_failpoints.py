"""Failpoints: a process dies at the place that is named, the time that is named, and nowhere without."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys

import pytest

from millstream import failpoints


def ran(code, **env):
    """Run code in a process of its own; its exit code."""
    clean = {name: value for name, value in os.environ.items() if name != "MILLSTREAM_FAILPOINT"}
    return subprocess.run([sys.executable, "-c", code], env={**clean, **env}, check=False).returncode


CODE = "from millstream import failpoints as f\nfor n in range(3): f.reach(f.BEFORE_COMMIT)\nraise SystemExit(7)"


@pytest.mark.parametrize(
    ("told", "code"),
    [("", 7), ("in-commit:1", 7), ("before-commit:4", 7), ("before-commit:3", -signal.SIGKILL),
     ("before-commit", -signal.SIGKILL)],
)  # fmt: skip
def test_it_dies_where_and_when_it_is_told(told, code):
    """By SIGKILL, at the N-th time; without the variable, elsewhere or later it goes on."""
    assert ran(CODE, MILLSTREAM_FAILPOINT=told) == code


def test_every_failpoint_is_somewhere(root):
    """Each name of the list is reached in the code, once, and nobody else reads the variable."""
    reached, readers = [], []
    for room in ("millstream", "streams", "trainer", "deploy", "graders", "capture", "console"):
        for file in sorted((root / room).glob("**/*.py")):
            text = file.read_text(encoding="utf-8")
            readers += [file.name] if "MILLSTREAM_FAILPOINT" in text else []
            calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)] if "failpoints" in text else []
            places = [n.args[0] for n in calls if getattr(n.func, "id", "") == "reach"]
            reached += [getattr(place, "attr", getattr(place, "id", "")) for place in places]
    assert set(readers) == {"failpoints.py"}
    assert sorted(getattr(failpoints, name) for name in set(reached) - {"name"}) == sorted(failpoints.ALL)
