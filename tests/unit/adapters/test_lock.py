"""The lock of the one runner."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.adapters.lock import RunnerLock, holder
from millstream.errors import SettingsError, Unavailable

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom millstream.adapters.lock import RunnerLock\n"
    "RunnerLock(Path(sys.argv[1])).acquire()\nprint('held', flush=True)\nsys.stdin.read()\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runner.lock"


@pytest.fixture
def other(path):
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_file_names_its_owner(path):
    """While it is held the pid can be asked for; afterwards nobody has it."""
    assert holder(path) is None
    with RunnerLock(path):
        assert holder(path) == os.getpid()
    assert holder(path) is None


def test_a_second_runner_is_told_the_pid_of_the_first(path, other):
    """It does not wait and it does not start."""
    with pytest.raises(SettingsError, match=rf"another runner \(pid {other.pid}\)"):
        RunnerLock(path).acquire()
    assert holder(path) == other.pid


def test_the_lock_of_a_dead_process_is_taken_over(path, other):
    """kill -9 leaves the file but not the lock."""
    other.kill()
    other.wait()
    assert path.read_text().strip() == str(other.pid)
    with RunnerLock(path):
        assert holder(path) == os.getpid()


def test_two_locks_of_one_process_exclude_each_other(path):
    """The lock belongs to its holder, not to the process."""
    with RunnerLock(path), pytest.raises(SettingsError, match="another runner"):
        RunnerLock(path).acquire()


def test_a_folder_that_cannot_be_made_names_the_mend():
    """Not a traceback."""
    with pytest.raises(Unavailable, match=r"runner\.lock.*\[storage\] data"):
        RunnerLock(Path("/proc/nowhere/runner.lock")).acquire()


def test_a_full_disk_is_told_and_leaves_the_lock_free(path):
    """The pid finds no room: an error that names the file and the mend, and the next runner is not shut out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(Unavailable, match=r"runner\.lock: .*free some space"):
            RunnerLock(path).acquire()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with RunnerLock(path):
        assert holder(path) == os.getpid()
