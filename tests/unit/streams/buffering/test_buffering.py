import msgspec
import pytest

from millstream.events import CLOSE_OPEN, Interface, Tick
from millstream.grade import abstain, score
from millstream.rollout import GroupClosed


def of(decisions, name):
    return [d for d in decisions if type(d).__name__ == name]


def reasons(decisions):
    return sorted(d.reason for d in of(decisions, "RolloutRefused"))


def test_a_full_group_is_admitted_whole(desk, fold, named):
    """Nothing is decided before the last member; then the group closes and all enter in one record."""
    stage = desk.stage()
    records = desk.group("g", [1.0, 0.0, 1.0])
    assert fold(stage, records[:2]) == []
    outputs = stage.feed(records[2])
    assert len(outputs) == 1
    decisions = fold(desk.stage(), records)
    assert named(decisions) == ["GroupClosed", *["RolloutAdmitted"] * 3]
    assert sum(d.advantage for d in decisions[1:]) == pytest.approx(0.0)
    assert decisions[0].rollout_ids == tuple(d.rollout_id for d in decisions[1:])


def test_equal_rewards_are_admitted_without_advantage(desk, fold):
    """R01: a group of equal rewards enters with advantages of exactly 0 and says std 0."""
    decisions = fold(desk.stage(), desk.group("g", [1.0] * 4))
    assert [d.advantage for d in of(decisions, "RolloutAdmitted")] == [0.0] * 4
    assert of(decisions, "GroupClosed")[0].std == 0.0


def test_a_failed_grade_is_never_a_reward(desk, fold):
    """G24: of 1, 0, failed, 1 the third is refused and the statistics are over three."""
    decisions = fold(desk.stage(), desk.group("g", [1.0, 0.0, None, 1.0]))
    closed = of(decisions, "GroupClosed")[0]
    assert (closed.size, closed.rewarded) == (4, 3)
    assert closed.mean == pytest.approx(2 / 3)
    assert [(d.trajectory_id, d.reason) for d in of(decisions, "RolloutRefused")] == [("g-2", "no_reward")]


def test_a_lone_reward_in_a_group_is_too_thin(desk, fold):
    """R03: of .7, None, None, None nothing is admitted; a group of size 1 is."""
    decisions = fold(desk.stage(), desk.group("g", [0.7, None, None, None]))
    assert reasons(decisions) == ["no_reward"] * 3 + ["thin_group"]
    alone = fold(desk.stage(), [desk.graded("a", 0.7)])
    assert [d.advantage for d in of(alone, "RolloutAdmitted")] == [0.0]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"split": "held_out"}, "wrong_split"),
        ({"split": "report"}, "wrong_split"),
        ({"interface": Interface(tools="other")}, "interface_mismatch"),
        ({"status": "interrupted", "reason": "gap_timeout"}, "censored"),
        ({"trainable": False}, "untrainable"),
        ({"lineage": "hack"}, "wrong_lineage"),
    ],
)
def test_refused_by_its_facts(desk, fold, facts, reason):
    """Each rule of admission refuses with its own reason, in the word of the design."""
    stage = desk.stage(interface=Interface(tools="mine"), lineages=frozenset({"policy"}))
    assert reasons(fold(stage, [desk.graded("a", 1.0, **facts)])) == [reason]


@pytest.mark.parametrize(
    "facts",
    [
        {"split": None},
        {"split": "train", "interface": Interface(system="any")},
        {"status": "interrupted", "reason": "unanswered_call", "hit_limit": True},
        {"lineage": ""},
    ],
)
def test_unknown_parts_and_limits_pass(desk, fold, facts):
    """No split, an unknown part, no lineage and a run that hit a limit are all taken."""
    stage = desk.stage(interface=Interface(tools="mine"), lineages=frozenset({"policy"}))
    assert len(of(fold(stage, [desk.graded("a", 1.0, **facts)]), "RolloutAdmitted")) == 1


def test_the_timer_closes_what_has_come(desk, fold):
    """A group of 4 with 2 members closes at its deadline, by a Tick, with those two."""
    stage = desk.stage(group_timeout_s=10)
    fold(stage, desk.group("g", [1.0, 0.0], group_size=4))
    due = stage.deadline_ms()
    assert due == 1_000_001 + 10_000
    assert fold(stage, [desk.record(Tick(id="t", trajectory_id="t"), ms=due - 1)]) == []
    decisions = fold(stage, [desk.record(Tick(id="t", trajectory_id="t"), ms=due)])
    assert of(decisions, "GroupClosed")[0].by_timer
    assert len(of(decisions, "RolloutAdmitted")) == 2
    assert stage.deadline_ms() is None
    assert stage.counts.ticks == 2


def test_a_late_member_joins_a_group_closed_by_timer(desk, fold, refold):
    """The group is decided again with it; every rollout is there once, with new advantages."""
    stage = desk.stage(group_timeout_s=10)
    decisions = fold(stage, desk.group("g", [1.0, 0.0], group_size=4))
    decisions += fold(stage, [desk.record(Tick(id="t", trajectory_id="t"), ms=2_000_000)])
    late = fold(stage, [desk.graded("g-9", 0.0, group="g", task_id="g", group_size=4, policy_version=1)])
    assert of(late, "RolloutsEvicted")[0].reason.startswith("superseded")
    ledger = refold(decisions + late)
    assert sorted(e.trajectory_id for e in ledger.entries.values()) == ["g-0", "g-1", "g-9"]


def test_a_further_member_of_a_full_group_opens_another(desk, fold):
    """A third attempt at a task with groups of two waits for a fourth."""
    stage = desk.stage()
    first = fold(stage, desk.group("g", [1.0, 0.0]))
    more = fold(
        stage, [desk.graded(f"more-{n}", 1.0, group="g", task_id="g", group_size=2, policy_version=1) for n in "ab"]
    )
    assert of(first, "GroupClosed")[0].group != of(more, "GroupClosed")[0].group


@pytest.mark.parametrize("other", [{"policy_version": 2}, {"lineage": "b"}, {"group": "h", "task_id": "h"}])
def test_groups_do_not_mix(desk, fold, other):
    """Another policy version, lineage or task is another group."""
    facts = {"group": "g", "task_id": "g", "group_size": 2, "policy_version": 1, "lineage": "a"}
    stage = desk.stage()
    assert fold(stage, [desk.graded("a", 1.0, **facts), desk.graded("b", 1.0, **{**facts, **other})]) == []


def test_grader_epochs_do_not_mix(desk, fold):
    """Grades of two epochs of one grader never share a group."""
    facts = {"group": "g", "task_id": "g", "group_size": 2, "policy_version": 1}
    records = [desk.graded("a", 1.0, **facts), desk.graded("b", 1.0, epoch="correct@2", **facts)]
    assert fold(desk.stage(), records) == []


def test_regrading_moves_a_group_to_its_new_epoch(desk, fold, refold):
    """After both members are graded by a new epoch one group stands, under that epoch, each once."""
    stage = desk.stage()
    facts = {"group": "g", "task_id": "g", "group_size": 2, "policy_version": 1}
    decisions = fold(stage, desk.group("g", [1.0, 0.0]))
    old = of(decisions, "GroupClosed")[0].group
    decisions += fold(stage, [desk.graded(f"g-{n}", 0.5 * n, epoch="correct@2", **facts) for n in (0, 1)])
    ledger = refold(decisions)
    assert old not in ledger.groups
    assert sorted((e.trajectory_id, e.reward) for e in ledger.entries.values()) == [("g-0", 0.0), ("g-1", 0.5)]
    assert len(ledger.groups) == 1


def test_feedback_may_come_before_during_and_after(desk, fold):
    """A named feedback that has not come holds the group open; wherever it comes, the decision is one."""

    def feedback(run, value):
        return desk.record(desk.grade(run, value, grader="feedback", epoch="feedback@1"))

    def bare(run):
        return desk.record(desk.finished(run, group="g", task_id="g", group_size=2))

    first, second = bare("a"), bare("b")
    good, bad = feedback("a", 1.0), feedback("b", 0.0)
    expected = None
    for order in ([good, first, second, bad], [first, second, bad, good], [first, good, bad, second]):
        stage = desk.stage(reward="feedback")
        decisions = fold(stage, order)
        told = sorted((d.rollout_id, d.reward, d.advantage) for d in of(decisions, "RolloutAdmitted"))
        assert len(told) == 2
        expected = expected or told
        assert told == expected


def test_feedback_that_never_comes_is_no_reward(desk, fold):
    """At the deadline the run is refused; when the feedback comes after all, it is admitted."""
    stage = desk.stage(reward="feedback", group_timeout_s=10)
    assert fold(stage, [desk.record(desk.finished("a"))]) == []
    assert reasons(fold(stage, [desk.record(ms=stage.deadline_ms())])) == ["no_reward"]
    late = desk.record(desk.grade("a", 1.0, grader="feedback", epoch="feedback@1"))
    assert len(of(fold(stage, [late]), "RolloutAdmitted")) == 1


def test_late_feedback_raises_the_reward_revision(desk, fold, refold):
    """A changed mind supersedes the admission: another rollout id, the old one evicted, counted once."""
    stage = desk.stage(reward="feedback")
    run = [desk.record(desk.finished("a")), desk.record(desk.grade("a", 1.0, grader="feedback", known_ms=1))]
    before = fold(stage, run)
    after = fold(stage, [desk.record(desk.grade("a", 0.0, grader="feedback", known_ms=2))])
    old, new = of(before, "RolloutAdmitted")[0], of(after, "RolloutAdmitted")[0]
    assert old.rollout_id != new.rollout_id
    assert new.reward == 0.0
    assert list(refold(before + after).entries) == [new.rollout_id]


def test_the_first_attempt_that_did_not_fail_counts(desk, fold):
    """Failed, then 1, then 0: the reward is 1, in whatever order the attempts arrive."""
    grades = [desk.grade("a", value, attempt=n) for n, value in enumerate([None, 1.0, 0.0], 1)]
    for order in (grades, grades[::-1]):
        decisions = fold(desk.stage(), [desk.record(*order, desk.finished("a"))])
        assert [d.reward for d in of(decisions, "RolloutAdmitted")] == [1.0]


def test_the_first_of_a_grade_id_wins(desk, fold):
    """A second grade under the id of the first changes nothing and is counted."""
    grade = desk.grade("a", 1.0)
    forged = msgspec.structs.replace(grade, grade=score(0.0))
    stage = desk.stage()
    decisions = fold(stage, [desk.record(grade, forged, desk.finished("a")), desk.record(forged)])
    assert [d.reward for d in of(decisions, "RolloutAdmitted")] == [1.0]
    assert stage.counts.repeated == 2


def test_the_highest_revision_wins(desk, fold, refold):
    """Revision 2 supersedes an admitted revision 1; a late revision 1 is refused as stale."""
    stage = desk.stage()
    decisions = fold(stage, [desk.graded("a", 1.0), desk.graded("a", 0.0, revision=2), desk.graded("a", 1.0)])
    assert [(e.trajectory_revision, e.reward) for e in refold(decisions).entries.values()] == [(2, 0.0)]
    assert reasons(decisions) == ["stale_revision"]
    assert stage.counts.stale == 1


def test_a_waiting_revision_that_is_replaced_has_a_fate(desk, fold):
    """Revision 1 in an open group is refused as stale when revision 2 takes its place."""
    facts = {"group": "g", "task_id": "g", "group_size": 2, "policy_version": 1}
    stage = desk.stage()
    decisions = fold(stage, [desk.graded("a", 1.0, **facts), desk.graded("a", 0.0, revision=2, **facts)])
    assert [(d.reason, d.trajectory_revision) for d in decisions] == [("stale_revision", 1)]
    admitted = of(fold(stage, [desk.graded("b", 1.0, **facts)]), "RolloutAdmitted")
    assert sorted((d.trajectory_id, d.reward) for d in admitted) == [("a", 0.0), ("b", 1.0)]


def test_near_duplicates_are_refused_across_groups_only(desk, fold):
    """A group whose members are alike enters; a second like it is refused whole, one fresh member saves it."""
    signature, fresh = tuple(range(128)), tuple(range(1000, 1128))
    stage = desk.stage(near_duplicate=0.7)
    assert len(of(fold(stage, desk.group("g", [1.0, 0.0], signature=signature)), "RolloutAdmitted")) == 2
    assert reasons(fold(stage, desk.group("h", [1.0, 0.0], signature=signature))) == ["near_duplicate"] * 2
    facts = {"group": "i", "task_id": "i", "group_size": 2, "policy_version": 1}
    mixed = [desk.graded("i-0", 1.0, signature=signature, **facts), desk.graded("i-1", 0.0, signature=fresh, **facts)]
    assert len(of(fold(stage, mixed), "RolloutAdmitted")) == 2
    newer = desk.group("j", [1.0, 0.0], signature=signature, policy_version=2)
    assert len(of(fold(stage, newer), "RolloutAdmitted")) == 2


def test_the_least_worth_makes_room(desk, fold, refold):
    """At max_rollouts the group without advantage leaves whole for one with an advantage."""
    stage = desk.stage(max_rollouts=4)
    decisions = fold(stage, desk.group("dull", [1.0, 1.0]) + desk.group("keen", [1.0, 0.0]))
    more = fold(stage, desk.group("late", [1.0, 0.0]))
    evicted = of(more, "RolloutsEvicted")
    assert len(evicted) == 1
    left = {e.task_id for e in refold(decisions + more).entries.values()}
    assert left == {"keen", "late"}


def test_what_is_worth_less_than_all_is_refused(desk, fold):
    """A group without advantage does not displace groups with one; the reason names the quota."""
    stage = desk.stage(max_rollouts=4)
    fold(stage, desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    assert reasons(fold(stage, desk.group("dull", [1.0, 1.0]))) == ["quota"] * 2


def test_the_byte_budget_counts_payloads(desk, fold):
    """A group larger than the whole budget is refused with its own reason and nobody leaves for it."""
    stage = desk.stage(max_bytes=1000)
    fold(stage, desk.group("a", [1.0, 0.0]))
    decisions = fold(stage, desk.group("big", [1.0, 0.0], bytes=600))
    assert reasons(decisions) == ["byte_budget"] * 2
    assert of(decisions, "RolloutsEvicted") == []


def test_enough_failures_are_kept(desk, fold):
    """With max_share_success .5 a group of successes waits until there are failures beside it."""
    stage = desk.stage(max_share_success=0.5, reward="correct")
    stage.book.shares.success_at = 0.6
    assert reasons(fold(stage, desk.group("won", [1.0, 1.0]))) == ["quota"] * 2
    fold(stage, desk.group("lost", [0.0, 0.0]))
    assert len(of(fold(stage, desk.group("won2", [1.0, 1.0])), "RolloutAdmitted")) == 2


def test_a_bad_line_is_a_dead_letter_and_its_neighbours_live(desk, told):
    """B- and T-cases: bytes that are no grade go to dead-letters with their place."""
    record = desk.graded("a", 1.0)
    lines = record.value.split(b"\n")
    broken = msgspec.structs.replace(record, value=b"\n".join([lines[0], b"\xff\xfe", lines[1]]))
    stage = desk.stage()
    outputs = stage.feed(broken)
    letters = [msgspec.json.decode(o.value) for o in outputs if o.topic == "dead-letters"]
    assert [(letter["offset"], letter["index"], letter["reason"]) for letter in letters] == [(1, 1, "undecodable")]
    assert len(of(told(outputs), "RolloutAdmitted")) == 1


def test_an_empty_record_is_counted(desk):
    """T34: a null value is skipped."""
    stage = desk.stage()
    assert list(stage.feed(msgspec.structs.replace(desk.record(), value=None))) == []
    assert stage.counts.empty == 1


def test_an_abstaining_grader_gives_no_reward(desk, fold):
    """Abstained is not 0: the run is refused without a reward, with the grader's words."""
    decisions = fold(desk.stage(), [desk.graded("a", abstain("no reference"))])
    assert "no reference" in of(decisions, "RolloutRefused")[0].detail


def test_what_left_is_forgotten_after_a_while(desk, fold):
    """A refused run is dropped from the state; an admitted one stays for as long as it is in the buffer."""
    stage = desk.stage(forget_s=60)
    fold(stage, [desk.graded("refused", None), desk.graded("kept", 1.0)])
    fold(stage, [desk.record(ms=2_000_000)])
    assert list(stage.grouping.runs) == ["kept"]


def test_of_too_many_runs_the_oldest_without_a_place_are_forgotten(desk, fold):
    """The state is bounded whatever the load: by what the buffer may hold and what may be remembered beside it. A run
    in the buffer and one that waits for its group are never among those.
    """
    stage = desk.stage(max_rollouts=2, max_remembered=3)
    waiting = {"group": "g", "task_id": "g", "group_size": 3, "policy_version": 1}
    fold(stage, [desk.graded("kept", 1.0), desk.graded("waiting", 1.0, **waiting)])
    fold(stage, [desk.graded(f"refused-{n}", None) for n in range(50)])
    fold(stage, [desk.record()])
    assert list(stage.grouping.runs) == ["kept", "waiting", "refused-47", "refused-48", "refused-49"]
    assert [group.id for group in stage.grouping.open()] == [stage.grouping.runs["waiting"].group]


def test_who_leaves_a_group_waits_there_no_more(desk, fold):
    """A member that waits for feedback and is graded by another epoch takes its waiting along."""
    facts = {"group": "g", "task_id": "g", "group_size": 3, "policy_version": 1}
    stage = desk.stage(reward="correct + feedback")
    fold(stage, [desk.graded(name, 1.0, **facts) for name in ("a", "b")])
    (old,) = stage.grouping.groups.values()
    fold(stage, [desk.graded("a", 1.0, epoch="correct@2", **facts)])
    assert (old.waiting, list(old.members)) == (1, ["b"])


def test_a_closing_tick_fires_every_timer(desk, fold):
    """``up --close-open``: open groups close with what they have, and nothing waits after it."""
    stage = desk.stage(reward="feedback")
    fold(stage, [desk.record(desk.finished("a")), *desk.group("g", [1.0, 0.0], group_size=4)])
    decisions = fold(stage, [desk.record(Tick(id="t", trajectory_id="t", flags=(CLOSE_OPEN,)))])
    assert [d.by_timer for d in of(decisions, "GroupClosed")] == [True, True]
    assert stage.deadline_ms() is None


def test_a_run_that_comes_back_to_its_first_group_is_decided_anew(desk, fold):
    """A correction of history changes what a run on its own is about, a second one changes it back: the group that it
    left was dropped, and the one that it opens now, like its decisions, is another.
    """
    stage = desk.stage()
    told = fold(stage, [desk.graded("a", 1.0, revision=n, task_id=task) for n, task in ((1, "x"), (2, "y"), (3, "x"))])
    ids = [decision.id for decision in told]
    assert len(set(ids)) == len(ids)
    assert len({decision.group for decision in told if isinstance(decision, GroupClosed)}) == 3


def test_a_forgotten_run_that_is_graded_again_is_decided_anew(desk, fold):
    """Its group was dropped with it after a week; another attempt at the same revision opens another."""
    stage = desk.stage(forget_s=1)
    told = fold(stage, [desk.graded("a", None), desk.graded("b", 1.0, ms=9_000_000)])
    again = desk.record(desk.grade("a", 1.0, attempt=2), desk.finished("a"))
    told += fold(stage, [again])
    ids = [decision.id for decision in told]
    assert len(set(ids)) == len(ids)
