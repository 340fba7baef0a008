"""A topic is deleted and made again under the workers: they stop with exit 3, and an accepted loss is in the books."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import chaos_stream
from chaos_cluster import PARTITIONS, Cluster

from millstream.console.audit import audit
from millstream.topics import TELEMETRY

LOST = 3


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Half of the stream, the topic anew, `--accept-loss`, the other half."""
    shape = chaos_stream.Shape(runs=options.runs, events_a_run=max(4, options.events // options.runs), unfinished=0)
    told = list(chaos_stream.messages(chaos_stream.lines(shape, options.seed), PARTITIONS, shape.a_record))
    cluster = Cluster(folder)
    try:
        cluster.start()
        log = cluster.runtime.log
        half = len(told) // 2
        cluster.produce(told[:half], 1e9)
        cluster.settle()
        ends = {partition: log.bounds(TELEMETRY.name, partition)[1] for partition in range(PARTITIONS)}
        assemblers = [worker for worker in cluster.workers.values() if worker.stage == "assemble"]
        for worker in assemblers:
            worker.wanted = False
        with cluster.runtime.topics() as topics:
            topics.delete(TELEMETRY.name)
            topics.create(apply=True)
        (folder / "progress").unlink()
        cluster.produce(told[half:], 1e9)
        for worker in assemblers:
            assert worker.process is not None
            worker.process.wait(60)
        codes = [worker.process.returncode for worker in assemblers if worker.process]
        print(f"the workers ended with {codes}", file=sys.stderr)
        for worker in assemblers:
            cluster.run(worker, words=("--accept-loss",))
        settled = cluster.settle()
        report = audit(log, cluster.runtime.store, cluster.runtime.loaded.settings, wait_s=30)
    finally:
        cluster.close()
    gaps = sorted({(gap.topic, gap.partition, gap.first, gap.end) for gap in report.gaps if gap.stage == "assemble"})
    # All of the old topic was read; what else lay in it nobody can tell any more: the gap begins where reading ended.
    wanted = [(TELEMETRY.name, partition, end, end) for partition, end in ends.items() if end]
    return {
        "good": codes == [LOST] * len(assemblers) and gaps == wanted, "exit_codes": codes, "gaps": gaps,
        "wanted": wanted, "differences": [str(one) for one in report.differences[:10]], "settled_s": round(settled, 1),
    }  # fmt: skip
