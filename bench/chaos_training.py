"""Trainer and gate die in the middle: between a checkpoint and its acknowledgement, with a version registered that
the log does not know, with a verdict that is not told. Each training must end once, with one version and one verdict.

`python bench/chaos.py --training`, with the example's tiny base policy.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from chaos_cluster import PARTITIONS, SLOTS, Cluster
from chaos_stream import Line, messages

from millstream import failpoints
from millstream.console.audit import audit
from millstream.events import (
    EventId,
    MessageReceived,
    ModelResponded,
    Task,
    TaskId,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)  # fmt: skip
from millstream.ledger import LedgerReader
from millstream.policy import PolicyLedger

BASE = Path(__file__).resolve().parent.parent / "examples" / "finqa" / "base"
DEATHS = (
    ("train-0", failpoints.AFTER_CHECKPOINT), ("train-0", failpoints.BEFORE_FINISH),
    ("gate-0", failpoints.BEFORE_DECISION),
)  # fmt: skip
MORE = f"""\
[policy]
base = "{BASE}"
[trigger]
min_groups = 8
min_informative = 2
[trainer]
tokens_source = "rendered"
epochs = 2
claim_timeout_s = 8
heartbeat_s = 2
[gate]
evaluation = "millstream.examples.finqa.evaluation:evaluate"
tasks = 10
worlds = 5
min_pairs = 5
"""
PATIENCE_S = 400.0


def runs(first: int, groups: int) -> list[Line]:
    """Groups of four short runs, half of them right."""
    told = []
    for number in range(first * 4, (first + groups) * 4):
        name = TrajectoryId(f"run-{number:05d}")
        task, attempt = divmod(number, 4)
        answer = str(task if attempt < 2 else task + attempt)
        common = {"trajectory_id": name, "producer": "p"}
        made = (
            TrajectoryStarted(
                id=EventId(f"{name}/0"), seq=0, **common, policy_version=1, lineage="policy", split="train",
                task=Task(id=TaskId(f"task-{task}"), question=f"what is {task}?", reference=str(task)),
                group=f"group-{task}", attempt=attempt, group_size=4,
            ),
            MessageReceived(id=EventId(f"{name}/1"), seq=1, **common, content=f"what is {task}?"),
            ModelResponded(id=EventId(f"{name}/2"), seq=2, **common, text=f"{answer} says {name}"),
            TrajectoryEnded(id=EventId(f"{name}/3"), seq=3, **common, final_answer=answer, last_seq={"p": 3}),
        )  # fmt: skip
        told += [Line(name, msgspec.json.encode(event)) for event in made]
    return told


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A training a death; what the ledger says at the end."""
    del options
    cluster = Cluster(folder, more=MORE, slots=(*SLOTS, "trigger-0", "train-0", "gate-0"))
    began = time.monotonic()
    try:
        cluster.start()
        reader = LedgerReader(cluster.runtime.log)
        for number, (slot, point) in enumerate(DEATHS):
            worker = cluster.workers[slot]
            cluster.kill(worker, signal.SIGTERM)
            cluster.run(worker, failpoint=f"{point}:1")
            (folder / "progress").unlink(missing_ok=True)
            cluster.produce(list(messages(runs(number * 10, 10), PARTITIONS, 8)), 1e9)
            wait_for_verdicts(cluster, reader, number + 1)
            print(f"[{time.monotonic() - began:6.1f} s] {slot} {point}: judged", file=sys.stderr, flush=True)
        cluster.settle()
        ledger = reader.refresh()
        report = audit(cluster.runtime.log, cluster.runtime.store, cluster.runtime.loaded.settings, wait_s=30)
        facts = of_ledger(cluster, ledger)
    finally:
        cluster.close()
    good = report.balanced and facts.pop("sound") and set(cluster.died) >= {point for _, point in DEATHS[1:]}
    return {
        "good": good, **facts, "died": dict(cluster.died), "ended": dict(cluster.ended), "balanced": report.balanced,
        "differences": [str(one) for one in report.differences[:5]], "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def wait_for_verdicts(cluster: Cluster, reader: LedgerReader, count: int) -> None:
    """Until so many versions are judged. Raises `TimeoutError`."""
    until = time.monotonic() + PATIENCE_S
    while len(reader.refresh().gates) < count:
        if time.monotonic() > until:
            trainings = [(t.state, t.failure) for t in reader.ledger.trainings.values()]
            raise TimeoutError(f"{len(reader.ledger.gates)} verdicts, not {count}; trainings {trainings}")
        cluster.wait(0.5)


def of_ledger(cluster: Cluster, ledger: PolicyLedger) -> dict[str, Any]:
    """What stands, and whether it is sound: each training ended once, with a version of its own in the registry,
    judged once.
    """
    trainings = list(ledger.trainings.values())
    states = Counter(training.state for training in trainings)
    versions = [training.version for training in trainings if training.state == "finished"]
    registered = [cluster.runtime.tracker.registered("policy", t.request.id) for t in trainings if t.version]
    verdicts = {f"{lineage} {version}": len(gates) for (lineage, version), gates in ledger.gates.items()}
    sound = (
        set(states) == {"finished"}
        and registered == versions
        and len(set(versions)) == len(versions)
        and set(verdicts.values()) == {1}
    )
    return {"sound": sound, "trainings": dict(states), "versions": versions, "verdicts": verdicts}
