"""Machines on which code that arrived as data can't be held: it is not run, and the mend is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from services.fixtures import need

PYTHON = {"type": "python", "name": "p", "source": "def grade(sample, item):\n    return 1.0"}
ALLOWED = {"MILLSTREAM_SANDBOX__RUN_UNTRUSTED_CODE_WITHOUT_A_SANDBOX": "true"}


@pytest.fixture
def bwrap():
    """Bubblewrap is here."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")


@pytest.fixture
def mill(tmp_path, root):
    """The command line in an empty folder, with a grader that arrived as data."""
    (tmp_path / "p.json").write_text(json.dumps(PYTHON))
    (tmp_path / "millstream.toml").write_text('[graders]\nfiles = ["p.json"]\n')

    def run(*arguments: str, before: tuple[str, ...] = (), **environ: str) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-c", "from millstream.cli import main; main()", *arguments]
        whole = {**os.environ, "PYTHONPATH": str(root), **environ}
        return subprocess.run(command, cwd=tmp_path, env=whole, capture_output=True, text=True, timeout=60, check=False)

    return run


def line_of(told: str, name: str) -> str:
    return next(line for line in told.splitlines() if line.split(" ", 1)[1].strip().startswith(f"{name}:"))


@pytest.fixture
def no_bwrap(tmp_path: Path) -> dict[str, str]:
    """A search path without bubblewrap."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin")}


def test_without_bubblewrap_code_is_refused_and_doctor_says_how_to_mend_it(mill, no_bwrap):
    """Nothing is run: the flag is set, the stream does not start, each with what to install."""
    ran = mill("graders", "run", "p.json", "--sample", "x", **no_bwrap)
    assert ran.returncode == 1
    assert "python_grader_server_error: code that arrived as data runs in a sandbox only" in ran.stdout
    told = line_of(mill("doctor", **no_bwrap).stdout, "sandbox")
    assert told.startswith("fail")
    assert "→ install bubblewrap" in told
    started = mill("up", "--until-idle", **no_bwrap)
    assert started.returncode == 2
    assert "install bubblewrap" in started.stderr


def test_a_setting_with_a_frightening_name_allows_it(mill, no_bwrap):
    """And doctor warns of it."""
    ran = mill("graders", "run", "p.json", "--sample", "x", **no_bwrap, **ALLOWED)
    assert (ran.returncode, "reward = 1" in ran.stdout) == (0, True)
    told = line_of(mill("doctor", **no_bwrap, **ALLOWED).stdout, "sandbox")
    assert told.startswith("warn")
    assert "can read what this user can" in told


def test_a_machine_that_needs_no_sandbox_is_well_without(mill, no_bwrap, tmp_path):
    """No grader arrived as data: the check is no failure."""
    (tmp_path / "millstream.toml").write_text("")
    told = line_of(mill("doctor", **no_bwrap).stdout, "sandbox")
    assert told.startswith("ok")
    assert "these settings do not need it" in told


@pytest.mark.services
@pytest.mark.usefixtures("bwrap")
def test_where_namespaces_are_forbidden_doctor_names_the_switch(mill):
    """A real refusal: this test runs where no user may make a namespace."""
    forbid = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh")
    told = line_of(mill("doctor", before=forbid).stdout, "sandbox")
    assert told.startswith("fail")
    assert "→ sysctl user.max_user_namespaces=15000" in told
    ran = mill("graders", "run", "p.json", "--sample", "x", before=forbid)
    assert ran.returncode == 1
    assert "the sandbox does not start: bwrap:" in ran.stdout


@pytest.mark.services
@pytest.mark.usefixtures("bwrap")
def test_where_it_holds_doctor_says_so(mill):
    """The probe is a real job in a real sandbox."""
    told = line_of(mill("doctor").stdout, "sandbox")
    assert told.startswith("ok")
    assert "bubblewrap holds a probe" in told
