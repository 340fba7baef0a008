"""Workers of which one acts: the whole loop to a registered candidate, and whose turn it is."""

from __future__ import annotations

import json

import pytest

from millstream.adapters.kafka_cluster import Cluster
from millstream.adapters.kafka_membership import Membership
from millstream.ledger import LedgerReader

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.timeout(240)]

TRAINING = """
[policy]
base = "{base}"
[trigger]
min_groups = 2
min_informative = 1
[trainer]
tokens_source = "rendered"
epochs = 1
"""


def record_runs(mill):
    """Two tasks, two attempts each, one good and one bad."""
    client = mill.runtime.client()
    for task in range(2):
        for attempt in range(2):
            fields = {"lineage": "policy", "policy_version": 1, "group": f"t{task}", "group_size": 2}
            with client.start_run({"id": f"t{task}", "question": "q"}, attempt=attempt, split="train", **fields) as run:
                run.message("user", f"What is {task} plus {task}?")
                run.model(text=f"{task} {attempt} " + ("alpha beta gamma delta", "one two three four")[task])
                run.end(final_answer=str(attempt))
            client.feedback(run.id, value=float(attempt), source="user")
    assert client.flush(20)


def test_six_workers_make_a_candidate(works, wait, root):
    """Events in, a fine-tuned version out, its parent the champion in MLflow, and the books balance."""
    mill = works(more=TRAINING.format(base=root / "examples" / "finqa" / "base"))
    stages = ("assemble", "grade", "buffer", "trigger", "train", "train", "gate")
    started = [mill.start(stage) for stage in stages]
    record_runs(mill)

    ledger = LedgerReader(mill.log)

    def finished():
        assert [process.poll() for process in started] == [None] * len(started), [p.told() for p in started]
        return any(training.state == "finished" for training in ledger.refresh().trainings.values())

    wait(finished, lambda: "".join(p.told() for p in started), patience_s=150)
    versions = json.loads(mill.run("policies", "list", "--json").stdout)["items"]
    assert [(row["version"], row["stage"]) for row in versions] == [(1, "champion"), (2, "candidate")]
    trainings = json.loads(mill.run("trainings", "list", "--json").stdout)["items"]
    assert [row["state"] for row in trainings] == ["finished"]
    wait(lambda: mill.runtime.tracker.pointed("policy", "champion") == 1, "the alias does not follow")
    audit = mill.run("audit", "--wait", "30")
    assert audit.returncode == 0, audit.stdout
    assert mill.end(*started) == [0] * len(started)


def test_one_member_acts_and_another_takes_over(works, wait):
    """Exactly one of two leads; when it goes, the other does."""
    mill = works()
    cluster = Cluster.of(mill.runtime.loaded)
    members = [Membership(cluster, "millstream-gate", "policy-events", f"m{n}", 6.0) for n in range(2)]
    try:
        wait(lambda: any(member.leads for member in members), "nobody leads")
        first, second = sorted(members, key=lambda member: not member.leads)
        assert not second.leads
        first.close()
        wait(lambda: second.leads, "the second never leads")
        assert not first.leads
    finally:
        for member in members:
            member.close()
