"""What only the store on Redis has to withstand: a full server, one that evicts or forgets, a newer format."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

import pytest
import redis
from services.processes import Server, free_port

from millstream.adapters.redis_store import RedisStore
from millstream.adapters.valkey import Valkey, server_binary
from millstream.errors import SettingsError, Stuck, Unavailable
from millstream.formats import NEWEST
from millstream.ports import Consumed, Message, Output, StateCommit


@pytest.fixture
def server():
    """A server of this test's own."""
    folder = Path(tempfile.mkdtemp(prefix="ms-test-"))
    valkey = Valkey(folder / "valkey")
    yield valkey.start()
    valkey.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def locked():
    """The port of a server with a password, one user who may only read, and one who may do all but CONFIG."""
    folder = Path(tempfile.mkdtemp(prefix="ms-test-"))
    port = free_port()
    command = [str(server_binary()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    told = folder / "told"
    server = Server(
        [*command, "--appendonly", "yes", "--requirepass", "sesame"], told, lambda: b"eady" in told.read_bytes()
    )
    server.start()
    with redis.Redis(port=port, password="sesame") as admin:
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+info", "+ping", "+client")
        admin.execute_command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-config")
    yield port
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def client(server):
    with redis.Redis.from_url(server) as found:
        yield found


@pytest.fixture
def log(sqlite_backend):
    made = sqlite_backend.open()[0]
    made.append("telemetry", [Message("k", b"x")] * 5)
    return made


@pytest.fixture
def store(server, log):
    made = RedisStore(log, server, "ns")
    yield made
    made.close()


def assign(store, log):
    return store.assign("assemble", 0, {"telemetry": log.topic_id("telemetry")})


def test_a_full_server_takes_nothing_of_a_commit(store, log, client):
    """The whole step is refused and told, and goes through once there is room."""
    held = assign(store, log)
    step = StateCommit(
        assignment=held,
        expected={"telemetry:0": 0},
        consumed=(Consumed("telemetry", 0, 0, 5),),
        outputs=(Output("trajectories", "k", b"v"),),
        high_water={"s": 1},
        snapshot=b"s",
    )
    client.config_set("maxmemory", 1)
    with pytest.raises(Unavailable, match="out of memory"):
        store.commit(step)
    client.config_set("maxmemory", 0)
    assert store.positions() == ()
    assert store.waiting() == {}
    assert store.commit(step) == step.outputs
    again = assign(store, log)
    assert (again.positions, again.snapshot, again.unpublished) == ({"telemetry:0": 5}, b"s", step.outputs)


def test_a_server_that_evicts_is_refused(store, log, client):
    """It would silently delete state."""
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(Stuck, match="allkeys-lru"):
        assign(store, log)


def test_a_server_that_forgets_at_a_restart_is_told_about(store, log, client, caplog):
    """One line names what to set; the worker goes on."""
    client.config_set("appendonly", "no")
    with caplog.at_level(logging.WARNING):
        assign(store, log)
    assert "appendonly is off" in caplog.text


def test_a_newer_format_is_refused_at_the_door(store, log, client):
    """Reading what a newer version keeps is refused as writing is: one line with the version to install."""
    client.set("millstream:{ns}:state:format", f"{NEWEST.number + 1} 9.1.0")
    with pytest.raises(Stuck, match=rf"namespace ns: .* format {NEWEST.number + 1}.*millstream 9\.1\.0 or later"):
        store.positions()


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("", "wants a password"),
        (":wrong@", "refuses the credentials"),
        ("nobody:wrong@", "refuses the credentials"),
        ("reader:pw@", "does not allow this"),
    ],
)
def test_a_server_that_refuses_us_is_not_asked_again(locked, log, user, says):
    """Waiting would not help: one line with the address and the setting, no secret in it."""
    store = RedisStore(log, f"redis://{user}127.0.0.1:{locked}/0", "ns")
    with pytest.raises(Stuck, match=says) as told:
        assign(store, log)
    assert f"redis://127.0.0.1:{locked}/0 " in str(told.value)
    assert "wrong" not in str(told.value)
    assert "\n" not in str(told.value)


def test_a_server_that_forbids_config_works(locked, log):
    """What we ask of it is in INFO."""
    store = RedisStore(log, f"redis://plain:pw@127.0.0.1:{locked}/0", "ns")
    assert assign(store, log).positions == {}
    store.close()


def test_a_server_that_is_not_there_is_waited_for(log):
    """It may come back: the address, the cause, the mend."""
    port = free_port()
    with pytest.raises(
        Unavailable, match=f"redis://127.0.0.1:{port}/0 does not answer: .*refused; is it ru.*state"
    ) as told:
        RedisStore(log, f"redis://127.0.0.1:{port}/0", "ns").positions()
    assert not isinstance(told.value, Stuck)


def test_a_namespace_must_fit_into_a_key(server, log):
    """A brace would break the hash tag."""
    with pytest.raises(SettingsError, match="namespace"):
        RedisStore(log, server, "a}b")
