"""Chaos, the short run: 20,000 events of 1,000 runs through workers on a real Kafka and Redis while thirty things go
wrong, and a topic that is deleted and made again. `python bench/chaos.py --faults 300` is the long one, by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from services.fixtures import need
from services.kafka_node import missing_for_kafka
from services.redis_server import missing_for_redis

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def chaos(root, tmp_path):
    """Run the script; its report."""
    need("; ".join(filter(None, (missing_for_kafka(), missing_for_redis()))))

    def run(*words):
        report = tmp_path / "report.json"
        done = subprocess.run(
            [sys.executable, str(root / "bench" / "chaos.py"), "--json", str(report), *words],
            capture_output=True, text=True, timeout=590, check=False,
        )  # fmt: skip
        assert report.exists(), done.stderr[-3000:]
        told = json.loads(report.read_text(encoding="utf-8"))
        assert done.returncode == 0, (told, done.stderr[-3000:])
        return told

    return run


def test_nothing_is_lost_and_nothing_doubled(chaos):
    """At least thirty faults of every kind; the result is that of an undisturbed run, and the books balance."""
    told = chaos("--seed", "1")
    assert told["faults"] >= 30
    assert (told["lost"], told["doubled"], told["invented"]) == (0, 0, 0)
    assert told["balanced"]
    assert told["buffer_equal"]
    assert told["events"] >= 20_000


def test_a_topic_that_was_made_again_stops_the_workers_and_the_gap_is_in_the_books(chaos):
    """Exit 3 from each; after `--accept-loss` audit lists just what was in the old topic."""
    told = chaos("--topic-deleted", "--events", "800", "--runs", "40")
    assert set(told["exit_codes"]) == {3}
    assert told["gaps"] == told["wanted"] != []


def test_backups_are_restored(chaos):
    """An old copy of Redis beside a newer log, an empty Redis, Kafka from a copy of its folder: nothing is lost and
    nothing doubled after any of them.
    """
    told = chaos("--restore", "--events", "800", "--runs", "40")
    assert {name for name, one in told.items() if name != "good" and one["good"]} == {
        "no disaster", "old_redis", "empty_redis", "kafka_from_a_copy",
    }  # fmt: skip
