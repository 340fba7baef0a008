"""``python bench/chaos.py``: everything goes wrong, and the result must be that of a run in which nothing does.

A stream (bench/chaos_stream.py) goes through workers on a real Kafka and a real Redis while faults happen at random
points that a seed fixes (bench/chaos_faults.py). At the end every trajectory, grade, reward and refusal is held
against an undisturbed run through the embedded log, `audit` must balance, and the buffer must be what a rebuild from
the log makes. Exit 1 when anything was lost, doubled or invented.

    python bench/chaos.py                                      20,000 events, 30 faults, about 3 minutes
    python bench/chaos.py --faults 300 --events 200000         the long run
    python bench/chaos.py --topic-deleted                      a topic is deleted and made again under the workers
    python bench/chaos.py --training                           trainer and gate die in the middle
    python bench/chaos.py --restore                            backups are restored, and the log makes the rest again
    python bench/chaos.py --soak 20 --rate 500                 no faults: memory flat, lag back to 0
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import chaos_faults
import chaos_path  # noqa: F401 — before `services`
import chaos_restore
import chaos_soak
import chaos_stream
import chaos_topic
import chaos_training
from chaos_cluster import PARTITIONS, Cluster
from chaos_verdict import judge, undisturbed
from services import missing_for_kafka, missing_for_redis

BREATH_S = 1.0
"""The least between two faults: one that comes while nothing has happened since the last tries nothing new."""
GOOD_ENDS = (" 0", " 3", "wrong clock 70")
"""How a process may end beside being killed: politely, because what it needs at its start is away, or under
libfaketime, which makes a wait fail with EINVAL now and then.
"""


def main(words: list[str]) -> int:
    """Parse, run, print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=1000, help="runs of agents the events belong to")
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long to send (default: 4 s a fault)")
    parser.add_argument("--only", metavar="WORDS", default="", help="only faults whose name has these words")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--topic-deleted", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--rate", type=float, default=500.0, help="events a second of the soak")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    parser.add_argument("--keep", type=Path, help="a folder for everything that was said, kept")
    options = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    if missing := "; ".join(filter(None, (missing_for_kafka(), missing_for_redis()))):
        print(f"chaos: {missing}", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="millstream-chaos-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        others = (
            (options.soak, chaos_soak.run),
            (options.topic_deleted, chaos_topic.run),
            (options.training, chaos_training.run),
            (options.restore, chaos_restore.run),
        )
        scenario = next((one for asked, one in others if asked), run)
        report = scenario(folder, options)
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if report["good"] else 1


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Send the stream through faults, and judge what came of it."""
    chance = random.Random(options.seed)
    shape = chaos_stream.Shape(runs=options.runs, events_a_run=max(4, options.events // options.runs))
    told = list(chaos_stream.messages(chaos_stream.lines(shape, options.seed), PARTITIONS, shape.a_record))
    wanted = undisturbed(folder / "undisturbed", told)
    sent = sum((message.value or b"").count(b"\n") + 1 for _, message in told)
    seconds = options.seconds or 4.0 * options.faults
    cluster = Cluster(folder)
    began = time.monotonic()
    try:
        cluster.start()
        cluster.produce(told, sent / seconds)
        done = disturb(cluster, chaos_faults.plan(options.faults, chance, options.only), seconds, chance)
        settled = cluster.settle()
        verdict = judge(cluster.runtime, wanted)
    finally:
        cluster.close()
    strange = {how: n for how, n in cluster.ended.items() if not how.endswith(GOOD_ENDS)}
    return {
        "good": verdict.good and not strange,
        "seed": options.seed,
        "events": sent,
        "runs": shape.runs,
        "faults": sum(done.values()) + sum(cluster.died.values()),
        "by_kind": dict(done) | {f"died at {point}": n for point, n in cluster.died.items()},
        **verdict._asdict(),
        "ended": dict(cluster.ended),
        "trajectories": len(wanted.trajectories),
        "grades": len(wanted.grades),
        "decisions": len(wanted.decisions),
        "dead_letters": sum(wanted.dead_letters.values()),
        "settled_s": round(settled, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def disturb(cluster: Cluster, names: list[str], seconds: float, chance: random.Random) -> Counter[str]:
    """Do the faults, spread at random over the time that the producer sends."""
    done: Counter[str] = Counter()
    began = time.monotonic()
    moments = sorted(chance.uniform(0, seconds) for _ in names)
    for moment, name in zip(moments, names, strict=True):
        cluster.wait(max(BREATH_S, began + moment - time.monotonic()))
        said = chaos_faults.FAULTS[name][0](cluster, chance)
        print(f"[{time.monotonic() - began:6.1f} s] {name} {said}", file=sys.stderr, flush=True)
        # Before it comes back to die at a failpoint it is killed; that it died there is counted when it does.
        done["kill -9 of a worker" if name == "death at a failpoint" else name] += 1
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
