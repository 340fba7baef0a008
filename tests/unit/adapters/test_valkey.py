import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import redis

from millstream.adapters.valkey import LONGEST_SOCKET, Valkey
from millstream.errors import SettingsError, Unavailable

USER = """
import sys, time
from pathlib import Path
from millstream.adapters.valkey import Valkey
server = Valkey(Path(sys.argv[1]))
print(server.start(), flush=True)
sys.stdin.read()
server.close()
"""


@pytest.fixture
def folder():
    """A short path, so that the socket fits; what still runs there is ended."""
    made = Path(tempfile.mkdtemp(prefix="ms-v-"))
    yield made / "valkey"
    stop(made / "valkey")
    shutil.rmtree(made)


def pid_of(folder):
    try:
        return int((folder / "valkey.pid").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def alive(pid):
    return pid > 0 and Path(f"/proc/{pid}").exists()


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def stop(folder):
    pid = pid_of(folder)
    if alive(pid):
        os.kill(pid, signal.SIGTERM)
        until(lambda: not alive(pid))


def user(folder):
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_it_starts_answers_and_ends_with_its_only_user(folder):
    """No TCP port, a socket for us alone, and nothing left running."""
    server = Valkey(folder)
    with redis.Redis.from_url(server.start()) as client:
        assert client.ping()
        assert client.config_get("port")["port"] == "0"
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert (server.socket.stat().st_mode & 0o777) == 0o700
    pid = pid_of(folder)
    server.close()
    until(lambda: not alive(pid))


def test_others_attach_and_the_last_one_ends_it(folder):
    """The starter may leave first; even a user that is killed counts as gone."""
    starter = Valkey(folder)
    starter.start()
    pid = pid_of(folder)
    other = user(folder)
    assert other.stdout.readline().strip() == starter.url
    starter.close()
    with redis.Redis.from_url(starter.url) as client:
        assert client.ping()
    assert pid_of(folder) == pid
    other.kill()
    other.communicate()
    until(lambda: not alive(pid))


def test_processes_that_start_together_share_one(folder):
    """Four at once: one server, found by all."""
    users = [user(folder) for _ in range(4)]
    urls = {one.stdout.readline().strip() for one in users}
    assert urls == {Valkey(folder).url}
    pid = pid_of(folder)
    assert alive(pid)
    for one in users:
        one.communicate()
    until(lambda: not alive(pid))


def test_after_a_kill_the_next_start_brings_it_back_with_its_data(folder):
    """The append-only file has everything that was answered."""
    server = Valkey(folder)
    with redis.Redis.from_url(server.start()) as client:
        client.set("key", "value")
    os.kill(pid_of(folder), signal.SIGKILL)
    with redis.Redis.from_url(server.start()) as client:
        assert client.get("key") == b"value"
    server.close()


def test_starting_again_right_after_the_end_waits_for_the_old_one(folder):
    """Ten times off and on: never two servers on one file, nothing lost."""
    for number in range(10):
        server = Valkey(folder)
        with redis.Redis.from_url(server.start()) as client:
            assert client.incr("count") == number + 1
        server.close()


def test_a_deep_folder_gets_a_short_private_socket(folder, monkeypatch):
    """A path over the limit of sockets is replaced by one in the temporary folder, which is written down."""
    short = Path(tempfile.mkdtemp(prefix="ms-t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    deep = folder.parent / ("d" * 60) / ("e" * 60) / "valkey"
    server = Valkey(deep)
    with redis.Redis.from_url(server.start()) as client:
        assert client.ping()
    assert len(os.fsencode(server.socket)) <= LONGEST_SOCKET
    assert (server.socket.parent.stat().st_mode & 0o777) == 0o700
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert Valkey(deep).socket == server.socket
    server.close()
    pid = pid_of(deep)
    until(lambda: not alive(pid))
    server.socket.parent.chmod(0o755)
    with pytest.raises(SettingsError, match="not ours alone"):
        server.start()
    shutil.rmtree(short)


@pytest.mark.parametrize("name", ["a%41b", "a?b", "a#b", "a b", "new\nline", "ü", "\udcff"])
def test_a_folder_may_have_any_name(folder, name):
    """Signs that mean something in a URL, and names that are no text, are names like others."""
    server = Valkey(folder.parent / name)
    with redis.Redis.from_url(server.start()) as client:
        assert client.ping()
    server.close()
    pid = pid_of(folder.parent / name)
    until(lambda: not alive(pid))


def test_a_deep_temporary_folder_is_passed_over(folder, monkeypatch):
    """A temporary folder that is too deep itself is no place for a socket."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent / ("t" * 100)))
    deep = folder.parent / ("d" * 60) / ("e" * 60)
    assert len(os.fsencode(Valkey(deep).socket)) <= LONGEST_SOCKET


def test_a_copy_of_a_deep_folder_does_not_take_the_socket_of_the_original(folder):
    """A data directory that was copied has a server of its own."""
    deep = folder.parent / ("d" * 60) / ("e" * 60)
    server = Valkey(deep)
    with redis.Redis.from_url(server.start()) as client:
        client.set("key", "original")
        copy = folder.parent / ("c" * 60) / ("e" * 60)
        copy.mkdir(parents=True)
        shutil.copy(deep / "socket", copy / "socket")
        other = Valkey(copy)
        with redis.Redis.from_url(other.start()) as theirs:
            assert theirs.get("key") is None
        assert client.get("key") == b"original"
    for made in (server, other):
        pid = pid_of(made.folder)
        made.close()
        until(lambda pid=pid: not alive(pid))


def test_a_folder_that_cannot_be_written_is_named(folder):
    """The error says which setting to change."""
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match=r"valkey.*\[storage\] data"):
        Valkey(folder).start()
    folder.unlink()
