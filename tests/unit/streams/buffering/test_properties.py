"""What holds of the buffering stage whatever comes in, in whatever order, and wherever it is cut."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millstream.events import Tick
from millstream.policy import (
    GateDecided,
    PolicyPromoted,
    PolicyRegistered,
    TrainingClaimed,
    TrainingFailed,
    TrainingFinished,
    TrainingRequested,
)
from millstream.recalls import EvidenceRecalled, RecallLifted

RUNS = [f"run{n}" for n in range(6)]
SIGNATURES = [tuple(range(n * 1000, n * 1000 + 64)) for n in range(3)]


def group_of(run):
    """Groups of three and of two, and one run on its own."""
    number = int(run[3:])
    return ("a", 3) if number < 3 else ("b", 2) if number < 5 else ("", 1)


GRADED = st.tuples(
    st.just("graded"), st.sampled_from(RUNS), st.sampled_from([None, 0.0, 0.5, 1.0]), st.integers(1, 3),
    st.sampled_from(["correct@1", "correct@2"]), st.integers(0, 2), st.sampled_from([50, 150]),
)  # fmt: skip
FEEDBACK = st.tuples(st.just("feedback"), st.sampled_from(RUNS), st.sampled_from([0.0, 1.0]), st.integers(0, 3))
TIME = st.tuples(st.just("tick"), st.sampled_from([1, 5_000, 20_000]))
POLICY = st.tuples(st.just("policy"), st.sampled_from(["request", "claim", "other", "finish", "fail", "refuse"]))
WHOLE = st.tuples(
    st.just("whole"), st.integers(0, 3), st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=2),
    st.integers(0, 2), st.sampled_from([50, 150]),
)  # fmt: skip
REGRADED = st.tuples(
    st.just("regraded"), st.sampled_from(RUNS), st.sampled_from([None, 0.0, 1.0]),
    st.sampled_from(["correct@1", "correct@2", "correct@3"]), st.integers(1, 3), st.integers(2, 4),
)  # fmt: skip
RECALL = st.tuples(st.just("recall"), st.sampled_from(["correct@1", "correct@2", *RUNS[:4], "undo", "undo"]))
STEPS = st.lists(
    st.one_of(GRADED, GRADED, WHOLE, WHOLE, FEEDBACK, TIME, POLICY, REGRADED, REGRADED, RECALL), max_size=30
)


class World:
    """Turns steps into records. Requests pin whatever the stage holds at that moment."""

    def __init__(self, desk, stage):
        self.desk, self.stage, self.trainings = desk, stage, 0
        self.decisions = []
        self.records = []

    def run(self, steps):
        self.feed(
            self.desk.policy(
                PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"),
                PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap"),
            )
        )
        for step in steps:
            if step[0] == "whole":
                self.whole(*step[1:])
            else:
                self.feed(getattr(self, step[0])(*step[1:]))
        return self

    def whole(self, number, values, signature, size):
        """A group of two that comes at once, under names that no other step uses."""
        for record in self.desk.group(
            f"w{number}-{len(self.records)}", values, signature=SIGNATURES[signature], bytes=size
        ):
            self.feed(record)

    def feed(self, record):
        self.records.append(record)
        for output in self.stage.feed(record):
            self.decisions += [msgspec.json.decode(line) for line in output.value.split(b"\n")]

    def graded(self, run, value, revision, epoch, signature, size):
        name, members = group_of(run)
        facts = {"group": name, "task_id": name, "group_size": members, "policy_version": 1}
        return self.desk.graded(run, value, revision, epoch, signature=SIGNATURES[signature], bytes=size, **facts)

    def regraded(self, run, value, epoch, revision, attempt):
        """A grade alone, as a regrade appends it."""
        return self.desk.record(self.desk.grade(run, value, revision=revision, epoch=epoch, attempt=attempt))

    def recall(self, what):
        if what == "undo":
            ids = self.stage.recalls.ids or ("none",)
            return self.desk.policy(RecallLifted(id=f"lift-{len(self.records)}", lineage="policy", recall_id=ids[-1]))
        target = {"trajectory_id": what} if what in RUNS else {"grader": "correct", "epochs": (what,)}
        return self.desk.policy(EvidenceRecalled(id=f"recall-{len(self.records)}", lineage="policy", **target))

    def feedback(self, run, value, known):
        return self.desk.record(self.desk.grade(run, value, grader="feedback", epoch="f@1", known_ms=known))

    def tick(self, wait):
        self.desk.ms += wait
        return self.desk.record(Tick(id="t", trajectory_id="t"))

    def policy(self, what):
        name = f"t{self.trainings}"
        if what == "request":
            self.trainings += 1
            name = f"t{self.trainings}"
            ids = tuple(sorted(self.stage.book.ledger.entries))
            event = TrainingRequested(
                id=name, lineage="policy", parent=1, rollout_ids=ids, algorithm="sft", seed=0, namespace="default",
                reason="",
            )  # fmt: skip
        elif what in ("claim", "other"):
            self.desk.ms += 70_000 if what == "other" else 0
            event = TrainingClaimed(id=f"c{name}{what}", lineage="policy", training_id=name, token=what)
        elif what == "finish":
            version = 1 + self.trainings
            return self.desk.policy(
                PolicyRegistered(id=f"r{version}", lineage="policy", version=version, uri="u", training_id=name),
                *(
                    TrainingFinished(
                        id=f"f{name}{token}", lineage="policy", training_id=name, token=token, version=version,
                        manifest="m",
                    )
                    for token in ("claim", "other")
                ),
            )  # fmt: skip
        elif what == "fail":
            event = TrainingFailed(id=f"x{name}", lineage="policy", training_id=name, token="claim", reason="test")
        else:
            event = GateDecided(
                id=f"g{name}", lineage="policy", version=1 + self.trainings, expected_champion=1, verdict="refuse",
                reasons=(),
            )  # fmt: skip
        return self.desk.policy(event)


def stage_of(desk, reward="correct"):
    return desk.stage(reward=reward, near_duplicate=0.7, group_timeout_s=10, max_rollouts=5, max_bytes=500)


def world_of(desk, steps, reward="correct"):
    desk.offset, desk.ms = 0, 1_000_000
    return World(desk, stage_of(desk, reward)).run(steps)


REWARDS = st.sampled_from(["correct", "correct + feedback"])


@given(steps=STEPS, reward=REWARDS, data=st.data())
def test_a_restart_anywhere_changes_nothing(desks, steps, reward, data):
    """Snapshot after any record, restore into a new stage, feed the rest: the same decisions and the same state."""
    world = world_of(desks, steps, reward)
    cut = data.draw(st.integers(0, len(world.records)))
    first, second = stage_of(desks, reward), stage_of(desks, reward)
    outputs = [out for record in world.records[:cut] for out in first.feed(record)]
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()
    outputs += [out for record in world.records[cut:] for out in second.feed(record)]
    told = [msgspec.json.decode(line) for out in outputs for line in out.value.split(b"\n")]
    assert told == world.decisions
    assert second.snapshot() == world.stage.snapshot()


@given(steps=STEPS, reward=REWARDS)
def test_every_graded_rollout_has_exactly_one_fate(desks, refold_json, steps, reward):
    """Each trajectory is waiting, in the buffer once, or its last decision says refused or evicted; every
    older revision was refused as stale or evicted.
    """
    world = world_of(desks, steps, reward)
    ledger = refold_json(world.decisions)
    assert ledger.entries == world.stage.book.ledger.entries
    there = Counter(entry.trajectory_id for entry in ledger.entries.values())
    assert set(there.values()) <= {1}
    ended = {(d["trajectory_id"], d["trajectory_revision"]) for d in world.decisions if d["kind"] == "RolloutRefused"}
    places = {d["rollout_id"]: d for d in world.decisions if d["kind"] == "RolloutAdmitted"}
    for decision in world.decisions:
        for rollout_id in decision.get("rollout_ids", ()) if decision["kind"] == "RolloutsEvicted" else ():
            ended.add((places[rollout_id]["trajectory_id"], places[rollout_id]["trajectory_revision"]))
    last = last_fates(world.decisions)
    for run in world.stage.grouping.runs.values():
        if not run.revision:
            continue
        group = world.stage.grouping.groups[run.group]
        current = (run.trajectory_id, run.revision)
        fates = [
            not group.closed or group.stale,
            there[run.trajectory_id] == 1,
            last.get(current) in ("refused", "evicted"),
        ]
        assert any(fates)
        assert not (fates[1] and fates[2] and not group.stale)
        seen = {s[3] for s in steps if s[0] == "graded" and s[1] == run.trajectory_id}
        older = {(run.trajectory_id, revision) for revision in seen if revision < run.revision}
        held = {(e.trajectory_id, e.trajectory_revision) for e in ledger.entries.values()}
        assert older <= ended | held


def last_fates(decisions):
    fates, places = {}, {}
    for d in decisions:
        if d["kind"] == "RolloutAdmitted":
            places[d["rollout_id"]] = key = (d["trajectory_id"], d["trajectory_revision"])
            fates[key] = "admitted"
        elif d["kind"] == "RolloutRefused":
            fates[d["trajectory_id"], d["trajectory_revision"]] = "refused"
        elif d["kind"] == "RolloutsEvicted":
            fates.update(dict.fromkeys((places[i] for i in d["rollout_ids"]), "evicted"))
    return fates


@given(steps=STEPS, reward=REWARDS)
def test_the_buffer_keeps_its_bounds(desks, steps, reward):
    """Never more rollouts or bytes than allowed, groups whole, advantages of a group summing to nothing."""
    world = world_of(desks, steps, reward)
    book = world.stage.book
    assert len(book.ledger.entries) <= 5
    assert book.ledger.bytes <= 500
    assert book.shares.total == len(book.ledger.entries)
    assert set(book.signatures) == set(book.ledger.entries)
    for group in world.stage.grouping.groups.values():
        assert group.waiting == sum(world.stage.grouping.runs[name].waiting for name in group.members)
        assert set(group.admitted) == set(book.ledger.groups.get(group.id, ()))
        assert not (group.evicted and group.admitted)
    for group, ids in book.ledger.groups.items():
        assert set(ids) == set(world.stage.grouping.groups[group].admitted)
        assert abs(sum(book.ledger.entries[i].advantage for i in ids)) < 1e-9


@given(steps=STEPS, reward=REWARDS)
def test_decision_ids_are_distinct_and_repetition_is_harmless(desks, steps, reward):
    """No two different decisions share an id; feeding every grades record twice leaves the same rollouts."""
    world = world_of(desks, steps, reward)
    by_id = {}
    for decision in world.decisions:
        plain = {k: v for k, v in decision.items() if k != "log_ms"}
        assert by_id.setdefault(decision["id"], plain) == plain
    again = stage_of(desks, reward)
    for record in world.records:
        again.feed(record)
        if record.topic == "grades":
            again.feed(record)
    assert again.book.ledger.entries.keys() == world.stage.book.ledger.entries.keys()


@given(rewards=st.lists(st.sampled_from([None, 0.0, 1.0]), min_size=6, max_size=6), order=st.permutations(range(6)))
def test_arrival_order_does_not_matter(desks, rewards, order):
    """Whole groups, no quota: the same rollouts with the same advantages, in the same groups."""

    def admitted(numbers):
        desks.offset, desks.ms = 0, 1_000_000
        stage = desks.stage()
        for number in numbers:
            name, size = group_of(RUNS[number])
            facts = {"group": name, "task_id": name, "group_size": size, "policy_version": 1}
            stage.feed(msgspec.structs.replace(desks.graded(RUNS[number], rewards[number], **facts), log_ms=5))
        entries = stage.book.ledger.entries
        return {i: (e.trajectory_id, e.reward, e.advantage, e.priority, e.group) for i, e in entries.items()}

    assert admitted(order) == admitted(range(6))
