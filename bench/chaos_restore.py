"""Backups are restored: an old copy of Redis beside a newer log, no Redis at all, and Kafka from a copy of its folder.

The log is the truth: what the store forgot is made again from it, under the same numbers, and readers leave out what
they had. `python bench/chaos.py --restore`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chaos_stream
from chaos_cluster import PARTITIONS, Cluster
from chaos_verdict import Outcome, judge, undisturbed


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Half of the stream, a backup, the other half; then one disaster after another."""
    shape = chaos_stream.Shape(runs=options.runs, events_a_run=max(4, options.events // options.runs))
    told = list(chaos_stream.messages(chaos_stream.lines(shape, options.seed), PARTITIONS, shape.a_record))
    wanted = undisturbed(folder / "undisturbed", told)
    cluster, half = Cluster(folder), len(told) // 2
    report: dict[str, Any] = {}
    try:
        cluster.start()
        cluster.produce(told[:half], 1e9)
        cluster.settle()
        backup_redis(cluster)
        (folder / "progress").unlink()
        cluster.produce(told[half:], 1e9)
        cluster.settle()
        report["no disaster"] = verdict(cluster, wanted)
        for disaster in (old_redis, empty_redis, kafka_from_a_copy):
            print(f"           {disaster.__doc__}", file=sys.stderr)
            report[disaster.__name__] = after(cluster, wanted, disaster)
    finally:
        cluster.close()
    return {"good": all(one["good"] for one in report.values()), **report}


def after(cluster: Cluster, wanted: Outcome, disaster: Callable[[Cluster], None]) -> dict[str, Any]:
    """What it came to once the workers have caught up again. They are stopped meanwhile: one that runs and has
    nothing to do does not ask whether the store still knows what it knew.
    """
    for worker in cluster.workers.values():
        worker.wanted = False
        cluster.kill(worker, signal.SIGTERM)
    disaster(cluster)
    for worker in cluster.workers.values():
        cluster.run(worker)
    settled = cluster.settle()
    return {**verdict(cluster, wanted), "settled_s": round(settled, 1)}


def verdict(cluster: Cluster, wanted: Outcome) -> dict[str, Any]:
    """Held against the undisturbed run."""
    found = judge(cluster.runtime, wanted)
    return {"good": found.good, **{k: v for k, v in found._asdict().items() if v}}


def backup_redis(cluster: Cluster) -> None:
    """Stop, copy the folder, start."""
    cluster.redis.stop()
    shutil.copytree(cluster.folder / "redis", cluster.folder / "redis-backup")
    cluster.redis.start()


def old_redis(cluster: Cluster) -> None:
    """Redis is what it was half the stream ago."""
    cluster.redis.kill()
    shutil.rmtree(cluster.folder / "redis")
    shutil.copytree(cluster.folder / "redis-backup", cluster.folder / "redis")
    cluster.redis.start()


def empty_redis(cluster: Cluster) -> None:
    """Redis has nothing: no positions, no state, no outbox, no buffer."""
    cluster.redis.kill()
    shutil.rmtree(cluster.folder / "redis")
    (cluster.folder / "redis").mkdir()
    cluster.redis.start()


def kafka_from_a_copy(cluster: Cluster) -> None:
    """Kafka runs from a copy of its folder, made while it stood still."""
    cluster.kafka.stop()
    data = cluster.folder / "kafka" / "data"
    shutil.copytree(data, data.with_name("copy"))
    shutil.rmtree(data)
    data.with_name("copy").rename(data)
    cluster.kafka.start()
