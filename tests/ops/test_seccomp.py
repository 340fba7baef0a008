"""The system-call profile of the grade service: bubblewrap starts under it, and it is no wider than that takes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from services.fixtures import need

MILLSTREAM = [sys.executable, "-c", "from millstream.cli import main; main()"]
PROGRAM = {"type": "python", "name": "half", "source": "def grade(sample, item):\n    return 0.5\n"}
WRITER = "ops/seccomp/write_profile.py"


def load_writer(root):
    spec = importlib.util.spec_from_file_location("write_profile", root / WRITER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(root, tmp_path):
    """Grade one answer in the sandbox under the profile, less some calls; what the command told."""
    need("" if shutil.which("bwrap") else "bwrap is not installed (Debian: bubblewrap)")
    (tmp_path / "grader.json").write_text(json.dumps(PROGRAM), encoding="utf-8")
    profile = root / "ops" / "seccomp" / "grade.json"

    def graded(*without):
        wrapper = [sys.executable, str(Path(__file__).with_name("under_profile.py")), str(profile), ",".join(without)]
        words = ["graders", "run", "grader.json", "--sample", "x", "--json"]
        return subprocess.run(
            [*wrapper, *MILLSTREAM, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return graded


def test_the_profile_is_what_its_script_writes(root):
    """grade.json is made, not edited (mend: python ops/seccomp/write_profile.py)."""
    writer = load_writer(root)
    assert writer.PROFILE.read_text(encoding="utf-8") == writer.text()


def test_what_would_reach_the_host_is_not_allowed(root):
    """No kernel modules, tracing, keys, other processes' memory, clocks, reboots, or namespaces joined by number."""
    profile = load_writer(root).profile()
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    reaching = "ptrace process_vm_readv process_vm_writev bpf perf_event_open init_module finit_module delete_module "
    reaching += "kexec_load keyctl add_key request_key reboot settimeofday clock_settime setns unshare swapon "
    reaching += "open_by_handle_at io_uring_setup userfaultfd chroot syslog acct quotactl mount_setattr open_tree"
    assert allowed & set(reaching.split()) == set()


@pytest.mark.services
def test_a_hosted_grader_is_graded_under_it(run):
    """Without capabilities and under the profile, the sandbox starts and grades."""
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["reward"] == 0.5


@pytest.mark.services
@pytest.mark.parametrize("call", ["clone", "mount", "umount2", "pivot_root", "sethostname"])
def test_each_call_for_bubblewrap_is_needed(run, call):
    """Without any one of them there is no grade: the profile is as narrow as it can be."""
    done = run(call)
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["reward"] is None
