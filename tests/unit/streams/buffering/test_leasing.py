import pytest

from millstream.policy import (
    GateDecided,
    PolicyPromoted,
    PolicyRegistered,
    TrainingClaimed,
    TrainingFailed,
    TrainingFinished,
    TrainingHeartbeat,
    TrainingRequested,
)


def requested(ids, name="t1", namespace="default", lineage="policy"):
    return TrainingRequested(
        id=name, lineage=lineage, parent=1, rollout_ids=tuple(sorted(ids)), algorithm="sft", seed=0,
        namespace=namespace, reason="test",
    )  # fmt: skip


def claimed(token="a", name="t1"):
    return TrainingClaimed(id=f"c-{name}-{token}", lineage="policy", training_id=name, token=token)


def finished(token="a", name="t1", version=2):
    return TrainingFinished(
        id=f"f-{name}-{token}", lineage="policy", training_id=name, token=token, version=version, manifest="m"
    )


def registered(version, training="", lineage="policy"):
    return PolicyRegistered(id=f"r{lineage}{version}", lineage=lineage, version=version, uri="u", training_id=training)


def judged(verdict, version=2):
    return GateDecided(
        id=f"g{version}{verdict}", lineage="policy", version=version, expected_champion=1, verdict=verdict, reasons=()
    )


@pytest.fixture
def filled(desk, fold):
    """A stage with one group of two in the buffer, and version 1 as champion."""
    stage = desk.stage()
    fold(stage, desk.group("g", [1.0, 0.0]))
    fold(stage, [desk.policy(registered(1), PolicyPromoted(id="p", lineage="policy", version=1, expected_champion=None, reason="bootstrap"))])  # fmt: skip  # noqa: E501
    return stage


def test_claim_leases_finish_acknowledges(desk, fold, filled, named):
    """The two decisions carry the training, its token and the rollouts; after them they are consumed."""
    ids = sorted(filled.book.ledger.entries)
    decisions = fold(filled, [desk.policy(requested(ids)), desk.policy(claimed()), desk.policy(finished())])
    assert named(decisions) == ["RolloutsLeased", "RolloutsAcknowledged"]
    assert [d.rollout_ids for d in decisions] == [tuple(ids)] * 2
    assert filled.book.ledger.available("policy", 1, max_uses=3) == {}
    assert list(filled.book.ledger.available("policy", 2, max_uses=3)) != []


def test_a_failed_training_releases_without_a_use(desk, fold, filled):
    """Its rollouts are there for the next, as if it had never been."""
    ids = sorted(filled.book.ledger.entries)
    failed = TrainingFailed(id="x", lineage="policy", training_id="t1", token="a", reason="nan")
    decisions = fold(filled, [desk.policy(requested(ids), claimed(), failed)])
    assert decisions[-1].used is False
    assert sorted(*filled.book.ledger.available("policy", 1, max_uses=1).values()) == ids


@pytest.mark.parametrize("verdict", ["refuse", "inconclusive"])
def test_a_candidate_that_is_not_promoted_frees_its_data(desk, fold, filled, verdict):
    """Released to the next candidate of the same parent, but at most ``max_uses`` times."""
    ids = sorted(filled.book.ledger.entries)
    fold(filled, [desk.policy(requested(ids), claimed(), registered(2, "t1"), finished())])
    decisions = fold(filled, [desk.policy(judged(verdict))])
    assert decisions[0].used is True
    assert len(filled.book.ledger.available("policy", 1, max_uses=3)) == 1
    assert filled.book.ledger.available("policy", 1, max_uses=1) == {}


def test_a_promoted_candidate_keeps_its_data_consumed(desk, fold, filled):
    """The verdict promote releases nothing."""
    ids = sorted(filled.book.ledger.entries)
    fold(filled, [desk.policy(requested(ids), claimed(), registered(2, "t1"), finished())])
    assert fold(filled, [desk.policy(judged("promote"))]) == []


def test_a_taken_over_claim_moves_the_lease(desk, fold, filled, named):
    """After the heartbeat is too old another token takes over; the first one's finish is ignored."""
    ids = sorted(filled.book.ledger.entries)
    fold(filled, [desk.policy(requested(ids), claimed("a"))])
    beat = TrainingHeartbeat(id="h", lineage="policy", training_id="t1", token="a")
    assert fold(filled, [desk.policy(beat), desk.policy(claimed("early"))]) == []
    desk.ms += 61_000
    decisions = fold(filled, [desk.policy(claimed("b")), desk.policy(finished("a")), desk.policy(finished("b"))])
    assert named(decisions) == ["RolloutsReleased", "RolloutsLeased", "RolloutsAcknowledged"]
    assert (decisions[0].used, decisions[1].token, decisions[2].token) == (False, "b", "b")


def test_what_is_gone_or_consumed_is_not_leased(desk, fold, filled):
    """A lease never holds a rollout that was used up for its parent; the trainer sees that it is short."""
    ids = sorted(filled.book.ledger.entries)
    fold(filled, [desk.policy(requested(ids), claimed(), finished())])
    again = [desk.policy(requested([*ids, "gone"], name="t2"), claimed(name="t2"))]
    assert fold(filled, again)[0].rollout_ids == ()


def test_held_rollouts_are_not_evicted(desk, fold):
    """What a training asked for stays; a better group is refused rather than displace it."""
    stage = desk.stage(max_rollouts=2)
    fold(stage, desk.group("dull", [1.0, 1.0]))
    ids = sorted(stage.book.ledger.entries)
    fold(stage, [desk.policy(requested(ids))])
    decisions = fold(stage, desk.group("keen", [1.0, 0.0]))
    assert [d.reason for d in decisions if hasattr(d, "reason")] == ["quota", "quota"]
    assert sorted(stage.book.ledger.entries) == ids


def test_a_late_reward_waits_for_the_training(desk, fold):
    """A leased rollout is not superseded under the trainer; after it the group is decided again, its use kept."""
    stage = desk.stage(reward="feedback")
    fold(stage, [desk.record(desk.finished("a")), desk.record(desk.grade("a", 1.0, grader="feedback", known_ms=1))])
    ids = sorted(stage.book.ledger.entries)
    fold(stage, [desk.policy(requested(ids), claimed())])
    assert fold(stage, [desk.record(desk.grade("a", 0.0, grader="feedback", known_ms=2))]) == []
    decisions = fold(stage, [desk.policy(finished())])
    assert [type(d).__name__ for d in decisions] == [
        "RolloutsAcknowledged", "RolloutsEvicted", "GroupClosed", "RolloutAdmitted",
    ]  # fmt: skip
    (entry,) = stage.book.ledger.entries.values()
    assert entry.reward == 0.0
    assert stage.book.ledger.available("policy", 1, max_uses=3) == {}
    released = fold(stage, [desk.policy(registered(2, "t1"), judged("refuse"))])
    assert released[0].rollout_ids == tuple(stage.book.ledger.entries)
    assert len(stage.book.ledger.available("policy", 1, max_uses=3)) == 1


def test_another_namespace_is_not_ours(desk, fold, filled):
    """Trainings of another buffer lease nothing here."""
    ids = sorted(filled.book.ledger.entries)
    assert fold(filled, [desk.policy(requested(ids, namespace="other"), claimed(), finished())]) == []


def test_two_lineages_may_hold_the_same_rollouts(desk, fold, filled):
    """Consumption is by lineage, so a control trains on the same data at the same time."""
    ids = sorted(filled.book.ledger.entries)
    fold(filled, [desk.policy(requested(ids), claimed())])
    other = TrainingClaimed(id="c2", lineage="control", training_id="t2", token="z")
    decisions = fold(filled, [desk.policy(requested(ids, name="t2", lineage="control"), other)])
    assert decisions[0].rollout_ids == tuple(ids)
