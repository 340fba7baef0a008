"""The faults: what goes wrong in production, done on purpose. Each takes a cluster and chance, and says what it did."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos_cluster import PARTITIONS, Cluster, Worker

from millstream import failpoints
from millstream.errors import Unavailable

OF_STAGES: Final = (
    failpoints.BEFORE_COMMIT, failpoints.BEFORE_PUBLISH, failpoints.IN_PUBLISH, failpoints.AFTER_PUBLISH,
)  # fmt: skip
CLOCKS: Final = ("+1d", "-1d", "+2h")


def any_worker(cluster: Cluster, chance: random.Random, *stages: str) -> Worker:
    """A place that is filled."""
    return chance.choice([w for w in cluster.workers.values() if w.alive and (not stages or w.stage in stages)])


def kill_worker(cluster: Cluster, chance: random.Random) -> str:
    """kill -9; the same worker comes back."""
    worker = any_worker(cluster, chance)
    cluster.kill(worker)
    return worker.slot


def die_at_failpoint(cluster: Cluster, chance: random.Random) -> str:
    """A worker comes back and dies at a place in the middle of a step (counted when it does)."""
    worker, point = any_worker(cluster, chance), chance.choice(OF_STAGES)
    cluster.kill(worker)
    cluster.run(worker, failpoint=f"{point}:{chance.randint(1, 5)}")
    return f"{worker.slot} at {point}"


def join_and_leave(cluster: Cluster, chance: random.Random) -> str:
    """One more worker takes over some partitions, and goes politely a little later."""
    worker = Worker(f"{chance.choice(('assemble', 'grade', 'buffer'))}-guest")
    cluster.run(worker)
    cluster.workers[worker.slot] = worker
    cluster.wait(chance.uniform(3, 6))
    worker.wanted = False
    cluster.kill(worker, signal.SIGTERM)
    del cluster.workers[worker.slot]
    return worker.slot


def restart_kafka(cluster: Cluster, chance: random.Random) -> str:
    """The broker stops politely and comes back."""
    cluster.kafka.stop()
    cluster.wait(chance.uniform(0, 1))
    cluster.kafka.start()
    return ""


def kill_kafka(cluster: Cluster, chance: random.Random) -> str:
    """The broker dies and comes back on its data."""
    cluster.kafka.kill()
    cluster.wait(chance.uniform(0, 1))
    cluster.kafka.start()
    return ""


def restart_redis(cluster: Cluster, chance: random.Random) -> str:
    """Redis stops politely and comes back."""
    cluster.redis.stop()
    cluster.wait(chance.uniform(0, 1))
    cluster.redis.start()
    return ""


def kill_redis(cluster: Cluster, chance: random.Random) -> str:
    """Redis dies and comes back on its append-only file."""
    cluster.redis.kill()
    cluster.wait(chance.uniform(0, 1))
    cluster.redis.start()
    return ""


def fill_redis(cluster: Cluster, chance: random.Random) -> str:
    """Redis is at maxmemory: it answers reads and refuses writes, for a while."""
    with contextlib.closing(cluster.redis_client()) as client:
        client.config_set("maxmemory", "1mb")
        cluster.wait(chance.uniform(1, 3))
        client.config_set("maxmemory", "0")
    return ""


def kill_producer(cluster: Cluster, chance: random.Random) -> str:
    """The producer dies in mid-batch and sends what it does not know to be in."""
    del chance
    if cluster.producer is None or cluster.producer.poll() is not None:
        return "had ended"
    cluster.producer.kill()
    cluster.producer.wait()
    cluster.resume()
    return ""


def delete_group(cluster: Cluster, chance: random.Random) -> str:
    """A stage's consumer group is deleted, with all that Kafka knew of its positions."""
    stage = chance.choice(("assemble", "grade"))
    mine = [worker for worker in cluster.workers.values() if worker.stage == stage]
    for worker in mine:
        worker.wanted = False
        cluster.kill(worker, signal.SIGTERM)
    name, told = f"millstream-{stage}", "never empty"
    until = time.monotonic() + 20
    while time.monotonic() < until and told != "OK":
        told = _delete(cluster, name)
        cluster.wait(0.5)
    for worker in mine:
        cluster.run(worker)
    return f"{name} {told}"


def _delete(cluster: Cluster, name: str) -> str:
    """Ask once; what the broker said."""
    from kafka.errors import KafkaError

    with cluster.runtime.topics() as topics:
        group = topics.cluster.topic(name)
        try:
            return str(topics.client.admin().delete_groups([group])[group])
        except (KafkaError, Unavailable) as error:
            return type(error).__name__


def faketime() -> Path | None:
    """libfaketime's library, where it is installed (Debian: faketime)."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def jump_clock(cluster: Cluster, chance: random.Random) -> str:
    """A worker comes back with a clock that is wrong by hours or a day (libfaketime)."""
    worker, by = any_worker(cluster, chance), chance.choice(CLOCKS)
    cluster.kill(worker)
    faked = {"LD_PRELOAD": str(faketime()), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    cluster.run(worker, environment=faked)
    return f"{worker.slot} by {by}"


Fault = Callable[[Cluster, random.Random], str]
FAULTS: Final[dict[str, tuple[Fault, int]]] = {
    "kill -9 of a worker": (kill_worker, 6),
    "death at a failpoint": (die_at_failpoint, 8),
    "a worker joins and leaves": (join_and_leave, 3),
    "Kafka restarts": (restart_kafka, 1),
    "kill -9 of Kafka": (kill_kafka, 2),
    "Redis restarts": (restart_redis, 1),
    "kill -9 of Redis": (kill_redis, 2),
    "Redis at maxmemory": (fill_redis, 2),
    "kill -9 of the producer": (kill_producer, 3),
    "a group is deleted": (delete_group, 1),
    "a clock jumps": (jump_clock, 2),
}
"""Each fault and how often it comes, relative to the others."""


def known() -> dict[str, tuple[Fault, int]]:
    """Those that this machine can do."""
    return {name: one for name, one in FAULTS.items() if one[0] is not jump_clock or faketime()}


def plan(count: int, chance: random.Random, only: str = "") -> list[str]:
    """``count`` faults in a random order, each kind at least once where there is room."""
    kinds = {name: one for name, one in known().items() if only in name}
    names = list(kinds)[:count]
    weights = [kinds[name][1] for name in kinds]
    names += chance.choices(list(kinds), weights, k=count - len(names))
    chance.shuffle(names)
    return names


assert PARTITIONS > 1, "joining and leaving moves partitions"
