"""The suite of the buffer port, on every server it is said to run on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import msgspec
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.adapters.redis import FORMAT, RedisBuffer
from millstream.adapters.redis_connection import without_secrets
from millstream.adapters.valkey import Valkey, server_binary
from millstream.errors import SettingsError, Stuck, Unavailable
from millstream.rollout import (
    GroupClosed,
    Position,
    Rollout,
    RolloutAdmitted,
    RolloutFacts,
    RolloutRefused,
    RolloutsAcknowledged,
    RolloutsEvicted,
    RolloutsLeased,
    RolloutsReleased,
)
from millstream.streams.buffer_state import BufferLedger
from millstream.trajectory import Trajectory

NS = "default"


class EmbeddedServer:
    """The one that ``storage.buffer = "embedded"`` starts."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ms-test-"))
        self.valkey = Valkey(self.folder / "valkey")
        self.address = self.valkey.start
        self.url = self.valkey.start()

    def kill(self):
        pid = int((self.folder / "valkey" / "valkey.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        _until(lambda: not _alive(pid))

    def restart(self):
        """The adapter does it."""

    def close(self):
        pid = int((self.folder / "valkey" / "valkey.pid").read_text())
        self.valkey.close()
        _until(lambda: not _alive(pid))
        shutil.rmtree(self.folder)


class TcpServer:
    """Some server by its ``redis://`` URL, started and restarted by somebody else."""

    def __init__(self, binary):
        self.folder = Path(tempfile.mkdtemp(prefix="ms-test-"))
        self.binary = str(binary)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = self.url = f"redis://127.0.0.1:{self.port}/0"
        self.restart()

    def restart(self):
        command = [self.binary, "--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "yes"]
        self.process = subprocess.Popen(
            [*command, "--appendfsync", "always", "--save", "", "--dir", str(self.folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            _until(lambda: _pongs(client))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder)


def _pongs(client):
    with contextlib.suppress(redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
        return client.ping()
    return False


def _alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def start(kind):
    if kind == "embedded":
        return EmbeddedServer()
    return TcpServer(server_binary() if kind == "valkey" else REDIS)


REDIS = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
NO_REDIS = pytest.mark.skipif(not REDIS, reason="no redis-server here (REDIS_SERVER names one)")
KINDS = ("embedded", "valkey", pytest.param("redis", marks=NO_REDIS))


@pytest.fixture(scope="module", params=KINDS)
def server(request):
    """A server shared by the tests of this file; each has a namespace of its own."""
    made = start(request.param)
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def own_server(request):
    """A server that a test may break."""
    made = start(request.param)
    yield made
    made.close()


@pytest.fixture
def buffer(server):
    """An empty buffer."""
    made = RedisBuffer(server.address, f"test-{uuid.uuid4().hex[:12]}")
    yield made
    made.clear()
    made.close()


@pytest.fixture
def client(server):
    """The bare server, for looking behind the port."""
    with redis.Redis.from_url(server.url) as made:
        yield made


def admitted(name, group="g", *, reward=1.0, size=100, revision=1):
    return RolloutAdmitted(
        id=f"admitted-{name}",
        namespace=NS,
        log_ms=1,
        rollout_id=name,
        trajectory_id=name.split("#")[0],
        trajectory_revision=revision,
        content_hash="h",
        position=Position("topic", 0, 7),
        group=group,
        reward=reward,
        advantage=-0.25,
        priority=123.456,
        facts=RolloutFacts(task_id="task", policy_version=1, lineage="policy", bytes=size),
    )


def payload(name, text="x"):
    rollout = Rollout(
        id=name, trajectory=Trajectory(id=name, content_hash=text), reward=1.0, facts=RolloutFacts(), advantage=0.5
    )
    return msgspec.json.encode(rollout)


def evicted(*names, reason="made room"):
    return RolloutsEvicted(id="e", namespace=NS, rollout_ids=names, reason=reason)


def leased(*names, training="t", token="a", lineage="policy", parent=1):
    return RolloutsLeased(
        id="l", namespace=NS, training_id=training, token=token, lineage=lineage, parent=parent, rollout_ids=names
    )


def acknowledged(*names, training="t", token="a", lineage="policy", parent=1):
    return RolloutsAcknowledged(
        id="k", namespace=NS, training_id=training, token=token, lineage=lineage, parent=parent, rollout_ids=names
    )


def released(*names, used, training="t", lineage="policy", parent=1):
    return RolloutsReleased(
        id="r", namespace=NS, training_id=training, lineage=lineage, parent=parent, rollout_ids=names, used=used,
        reason="test",
    )  # fmt: skip


def fill(buffer, *names):
    buffer.apply(0, [admitted(name) for name in names], {name: payload(name) for name in names})


def test_an_empty_buffer(buffer):
    """Nothing applied, nothing there, no lease."""
    assert buffer.applied() == 0
    assert buffer.stats().rollouts == 0
    assert buffer.lease("t") is None
    assert buffer.read([]) == []


def test_what_was_admitted_is_read_in_the_order_asked(buffer):
    """Payloads come back whole, one for each id, in the caller's order."""
    fill(buffer, "a", "b", "c")
    assert [r.id for r in buffer.read(["c", "a", "b"])] == ["c", "a", "b"]
    assert buffer.read(["a"])[0] == msgspec.json.decode(payload("a"), type=Rollout)


def test_what_is_not_there_is_named(buffer):
    """Reading an unknown id says which and what brings it back."""
    fill(buffer, "a")
    with pytest.raises(Unavailable, match=r"gone-id.*rebuild"):
        buffer.read(["a", "gone-id"])


def test_an_offset_counts_once(buffer):
    """The same record again, and one before it, change nothing."""
    fill(buffer, "a", "b")
    before = buffer.dump()
    fill(buffer, "c")
    assert buffer.dump() == before
    assert buffer.applied() == 1


def test_a_repetition_is_left_out(buffer):
    """A decision that was appended twice counts once, by its outbox number; what its stage says after counts."""
    told = {"stage": "buffer", "source": "0"}
    buffer.apply(0, [admitted("a")], {"a": payload("a")}, {**told, "n": "1"})
    buffer.apply(1, [evicted("a")], {}, {**told, "n": "2"})
    buffer.apply(2, [admitted("a")], {"a": payload("a")}, {**told, "n": "1"})
    assert (buffer.stats().rollouts, buffer.applied()) == (0, 3)
    buffer.apply(3, [admitted("b")], {"b": payload("b")}, {**told, "n": "3"})
    assert (buffer.stats().rollouts, buffer.applied()) == (1, 4)


def test_offsets_may_skip(buffer):
    """Records of other namespaces lie between."""
    buffer.apply(5, [admitted("a")], {"a": payload("a")})
    buffer.apply(9, [], {})
    assert buffer.applied() == 10


def test_eviction_frees_rollouts_groups_and_bytes(buffer):
    """What left is gone from every count."""
    fill(buffer, "a", "b")
    buffer.apply(1, [evicted("a", "b", "never there")], {})
    stats = buffer.stats()
    assert (stats.rollouts, stats.groups, stats.bytes) == (0, 0, 0)
    with pytest.raises(Unavailable):
        buffer.read(["a"])


def test_a_lease_is_fenced_by_its_offset(buffer):
    """The fence is the offset of the lease's event; a later claim has a higher one."""
    fill(buffer, "a", "b")
    buffer.apply(4, [leased("b", "a")], {})
    first = buffer.lease("t")
    assert (first.token, first.fence, first.rollout_ids) == ("a", 4, ("b", "a"))
    buffer.apply(5, [released("a", "b", used=False), leased("a", "b", token="z")], {})
    second = buffer.lease("t")
    assert (second.token, second.fence) == ("z", 5)
    assert buffer.stats().leased == 2


def test_acknowledged_is_consumed(buffer):
    """The lease ends and the use stands, by trajectory, lineage and parent."""
    fill(buffer, "a", "b")
    buffer.apply(1, [leased("a")], {})
    buffer.apply(2, [acknowledged("a")], {})
    assert buffer.lease("t") is None
    assert (buffer.stats().leased, buffer.stats().consumed) == (0, 1)
    assert buffer.dump()["uses"] == {"a": {"policy@1": [1, True]}}


@pytest.mark.parametrize(("used", "count"), [(True, 1), (False, 0)])
def test_released_may_be_used_again(buffer, used, count):
    """After a refusal the use still counts; after a failure it does not."""
    fill(buffer, "a")
    buffer.apply(1, [acknowledged("a"), released("a", used=used)], {})
    assert buffer.dump()["uses"] == {"a": {"policy@1": [count, False]}}
    assert buffer.stats().consumed == 0


def test_a_superseded_rollout_keeps_its_uses(buffer):
    """Evicted and admitted under a new reward in one record: consumption is by trajectory."""
    fill(buffer, "a#1")
    buffer.apply(1, [acknowledged("a#1")], {})
    again = [evicted("a#1", reason="superseded: late reward"), admitted("a#2")]
    buffer.apply(2, again, {"a#2": payload("a#2")})
    assert buffer.dump()["uses"] == {"a": {"policy@1": [1, True]}}
    buffer.apply(3, [evicted("a#2")], {})
    assert buffer.dump()["uses"] == {}


def test_namespaces_do_not_touch(buffer, server):
    """Clearing one leaves the other as it was."""
    other = RedisBuffer(server.address, f"{buffer.namespace}-2")
    fill(buffer, "a")
    fill(other, "b")
    other.clear()
    assert (other.applied(), buffer.applied()) == (0, 1)
    other.close()


def test_refusals_and_closings_are_only_positions(buffer):
    """They change nothing but what is applied."""
    refused = RolloutRefused(
        id="x", namespace=NS, trajectory_id="a", trajectory_revision=1, group="g", reason="no_reward"
    )
    closed = GroupClosed(
        id="y", namespace=NS, group="g", task_id="t", lineage="", policy_version=None, size=1, rewarded=0, mean=0.0,
        std=0.0,
    )  # fmt: skip
    buffer.apply(0, [closed, refused], {})
    assert buffer.dump() == BufferLedger().dump(1)


def test_lost_payloads_are_counted(buffer, client):
    """B02: stored against readable shows what a server dropped."""
    fill(buffer, "a", "b")
    client.hdel(f"millstream:{{{buffer.namespace}}}:payloads", "b")
    assert buffer.stats().unreadable == 1


def test_payloads_are_compressed(buffer, client):
    """A repetitive payload takes a tenth of its size."""
    big = payload("a", text="lorem ipsum " * 5000)
    buffer.apply(0, [admitted("a", size=len(big))], {"a": big})
    assert client.hstrlen(f"millstream:{{{buffer.namespace}}}:payloads", "a") < len(big) / 10
    assert buffer.stats().bytes == len(big)


def test_a_newer_format_is_refused(server, buffer, client):
    """A namespace that a later version wrote is left alone, with the way out in the message."""
    client.hset(f"millstream:{{{buffer.namespace}}}:meta", "format", FORMAT + 1)
    with pytest.raises(Stuck, match=f"format {FORMAT + 1}"):
        buffer.applied()
    client.delete(f"millstream:{{{buffer.namespace}}}:meta")


@pytest.mark.parametrize("namespace", ["", "a}b", "a b"])
def test_a_namespace_must_fit_into_a_key(namespace):
    """A brace would break the hash tag."""
    with pytest.raises(SettingsError, match="namespace"):
        RedisBuffer("redis://localhost", namespace)


def test_a_server_that_evicts_is_refused(own_server):
    """B02: allkeys-lru would silently delete rollouts."""
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    buffer = RedisBuffer(own_server.address, "test")
    with pytest.raises(Stuck, match=r"allkeys-lru.*noeviction"):
        buffer.applied()


def flood(buffer):
    """100 records of two rollouts, one with 64 KiB that don't compress."""
    for number in range(100):
        body = payload(f"r{number}", text=os.urandom(32 << 10).hex())
        buffer.apply(number, [admitted(f"r{number}", f"g{number}"), admitted(f"s{number}", "t")], {f"r{number}": body})


def test_a_full_server_takes_nothing_and_the_writer_waits(own_server):
    """B01: at maxmemory each record is applied whole or not at all; leases and evictions still go through."""
    buffer = RedisBuffer(own_server.address, "test")
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 2_000_000)
        with pytest.raises(Unavailable, match="out of memory"):
            flood(buffer)
        taken = buffer.applied()
        assert 0 < taken < 99
        assert buffer.stats().rollouts == 2 * taken
        buffer.apply(taken, [leased("r0")], {})
        buffer.apply(taken + 1, [acknowledged("r0")], {})
        buffer.apply(taken + 2, [evicted(*(f"r{n}" for n in range(taken)))], {})
        buffer.apply(taken + 3, [admitted("late")], {"late": payload("late")})
        client.config_set("maxmemory", 0)
    assert buffer.read(["late"])[0].id == "late"
    buffer.close()


def test_killing_the_server_loses_nothing(own_server):
    """B03's ground: after kill -9 between any two operations everything that was answered is there."""
    buffer = RedisBuffer(own_server.address, "test")
    ledger = BufferLedger()
    for number in range(12):
        lease = leased(f"r{number}", training=f"t{number}")
        decisions = [admitted(f"r{number}", f"g{number}") if number % 4 else lease]
        buffer.apply(number, decisions, {f"r{number}": payload(f"r{number}")})
        for decision in decisions:
            ledger.apply(decision, number)
        if number % 3 == 0:
            own_server.kill()
            own_server.restart()
    assert buffer.dump() == ledger.dump(12)
    assert buffer.stats().unreadable == 0
    buffer.close()


def test_a_server_that_lost_its_data_is_noticed(buffer, client):
    """The next record is not applied onto the hole; the position to go on from is the server's."""
    fill(buffer, "a")
    client.delete(*client.keys(f"millstream:{{{buffer.namespace}}}:*"))
    with pytest.raises(Unavailable, match="lost data"):
        buffer.apply(1, [admitted("b")], {"b": payload("b")})
    assert buffer.applied() == 0
    fill(buffer, "a")
    assert buffer.applied() == 1


def test_a_dead_server_is_named_without_its_password():
    """Whoever reads the log sees where, not the secret."""
    buffer = RedisBuffer("redis://user:secret@127.0.0.1:1/0", "test")
    with pytest.raises(Unavailable) as caught:
        buffer.applied()
    assert "secret" not in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value)
    assert without_secrets("rediss://:pw@host:1/2?password=x") == "rediss://host:1/2"


NAMES = [f"r{n}#{v}" for n in range(3) for v in range(2)]
IDS = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
TRAININGS = st.sampled_from(["t1", "t2"])
LINEAGES = st.sampled_from(["policy", "control"])
PARENTS = st.sampled_from([1, 2])
DECISIONS = st.one_of(
    st.builds(admitted, st.sampled_from(NAMES), st.sampled_from(["g", "h"]), size=st.integers(0, 50)),
    st.builds(lambda ids, why: evicted(*ids, reason=why), IDS, st.sampled_from(["made room", "superseded: x"])),
    st.builds(lambda ids, t, n, p: leased(*ids, training=t, lineage=n, parent=p), IDS, TRAININGS, LINEAGES, PARENTS),
    st.builds(
        lambda ids, t, n, p: acknowledged(*ids, training=t, lineage=n, parent=p), IDS, TRAININGS, LINEAGES, PARENTS
    ),
    st.builds(
        lambda ids, t, n, p, u: released(*ids, training=t, lineage=n, parent=p, used=u),
        IDS, TRAININGS, LINEAGES, PARENTS, st.booleans(),
    ),
)  # fmt: skip


@given(records=st.lists(st.lists(DECISIONS, max_size=4), max_size=8), again=st.integers(0, 7))
@settings(max_examples=60)
def test_the_projection_is_the_fold(server, records, again):
    """Whatever is decided, in whatever order: the dump equals the ledger's, and so does a second folding."""
    buffer = RedisBuffer(server.address, "property")
    buffer.clear()
    ledger = BufferLedger()
    for offset, decisions in enumerate(records):
        buffer.apply(offset, decisions, {})
        for decision in decisions:
            ledger.apply(decision, offset)
    assert buffer.dump() == ledger.dump(len(records))
    assert buffer.stats().bytes == ledger.bytes
    for offset, decisions in list(enumerate(records))[:again]:
        buffer.apply(offset, decisions, {})
    assert buffer.dump() == ledger.dump(len(records))
    buffer.close()
