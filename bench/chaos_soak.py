"""The soak: constant load and no faults. The memory of each worker must be flat, and the lag come back to 0.

The buffer is small, so that it is full long before the end: from then on its worker may not grow either. Which of
its rollouts such a buffer refuses or gives up depends on the order in which partitions are read, so what it decided
is held against the log alone (`audit`, and a rebuild), not against another run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import chaos_stream
from chaos_cluster import PARTITIONS, Cluster
from chaos_verdict import judge, undisturbed

EVERY_S = 10.0
BOUNDS = """\
max_rollouts = 1000
max_remembered = 1000
"""
"""A minute's runs each at 500 events a second (lines of the table [buffer])."""
GROWTH = 1.10
"""How much the last third may have over the second."""


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Send at ``--rate`` for ``--soak`` minutes; a point of the curve every ten seconds."""
    seconds = options.soak * 60
    shape = chaos_stream.Shape(runs=round(seconds * options.rate / 20), events_a_run=20)
    told = list(chaos_stream.messages(chaos_stream.lines(shape, options.seed), PARTITIONS, shape.a_record))
    wanted = undisturbed(folder / "undisturbed", told)
    cluster, curve = Cluster(folder, more=BOUNDS), list[dict[str, Any]]()
    try:
        cluster.start()
        cluster.produce(told, options.rate)
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            cluster.wait(EVERY_S)
            memory = {slot: round(size / 2**20, 1) for slot, size in cluster.memory().items()}
            curve.append({"s": round(time.monotonic() - began), "lag": cluster.lag(), "mb": memory})
            print(curve[-1], file=sys.stderr, flush=True)
        settled = cluster.settle()
        verdict = judge(cluster.runtime, wanted, frozenset({"decisions"}))
    finally:
        cluster.close()
    growth = {slot: grown([point["mb"][slot] for point in curve if slot in point["mb"]]) for slot in cluster.workers}
    flat = all(ratio <= GROWTH for ratio in growth.values())
    return {
        "good": verdict.good and flat and not cluster.ended, "minutes": options.soak, "rate": options.rate,
        **verdict._asdict(), "settled_s": round(settled, 1), "growth": growth, "curve": curve,
        "ended": dict(cluster.ended),
    }  # fmt: skip


def grown(sizes: list[float]) -> float:
    """Mean of the last third over that of the second: the first one warms up."""
    third = max(1, len(sizes) // 3)
    second, last = sizes[third : 2 * third] or sizes, sizes[-third:]
    return round((sum(last) / len(last)) / (sum(second) / len(second)), 3)
