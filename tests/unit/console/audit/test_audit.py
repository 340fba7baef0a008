"""The audit adds up what the stages did, and finds each way in which the books can be wrong."""

from __future__ import annotations

import json

import msgspec
import pytest

from millstream.codec import decode_lines
from millstream.console.audit import audit
from millstream.errors import PositionLost


def lines(report, section):
    return {line.name: line.count for line in report.lines if line.section == section}


def check(mill, **options):
    return audit(mill.log, mill.store, mill.settings, **options)


def kinds(report):
    return {difference.kind for difference in report.differences}


def ids(report, kind):
    return [difference.id for difference in report.differences if difference.kind == kind]


def test_everything_has_its_place(busy_mill):
    """Each event, trajectory, grade and rollout is counted once, where it is."""
    report = check(busy_mill)
    assert report.differences == ()
    assert report.balanced
    assert report.caught_up
    assert lines(report, "events") == {
        "in a trajectory": 32,
        "open": 2,
        "duplicate": 2,
        "conflict": 1,
        "late": 1,
        "dead letter": 1,
        "unmapped": 1,
        "feedback": 1,
        "null": 2,
    }
    assert lines(report, "trajectories") == {"sealed": 8, "graded": 8, "open": 1}
    assert lines(report, "grades") == {"scored": 16, "failed": 1}
    assert lines(report, "rollouts") == {
        "default: waiting": 6,
        "default: refused: no_reward": 1,
        "default: group pending": 1,
        "groups closed": 4,
    }


def test_the_events_add_up_to_what_telemetry_holds(busy_mill):
    """No event is counted twice or left out."""
    records = busy_mill.log.read("telemetry", 0, 0, 1 << 30)
    foreign = [r for r in records if r.headers.get("dialect") == "songs"]
    held = sum(max(1, len(decode_lines(r.value or b""))) for r in records if r not in foreign) + len(foreign)
    assert sum(lines(check(busy_mill), "events").values()) == held


def test_an_empty_log_is_balanced(mill):
    """Nothing in, nothing out."""
    report = check(mill)
    assert (report.balanced, report.caught_up, report.differences) == (True, True, ())


def test_what_was_not_read_yet_is_said_not_missed(mill):
    """Before the stages have run the books are open, not wrong."""
    mill.send(*mill.events("a"))
    report = check(mill)
    assert report.balanced
    assert not report.caught_up
    assert report.lag == {"assemble": 1}
    assert lines(report, "events") == {"not read yet": 4}
    mill.runners[0].run_once()
    report = check(mill)
    assert (report.lag, report.balanced) == ({"grade": 1}, True)
    assert lines(report, "trajectories") == {"sealed": 1, "not graded": 1}
    mill.run()
    assert check(mill).caught_up


def test_it_waits_for_the_stages_when_told_to(mill):
    """The patience ends; the report still tells who is behind."""
    mill.send(*mill.events("a"))
    assert check(mill, wait_s=0.12).lag == {"assemble": 1}


def test_a_later_revision_counts(mill):
    """A run that timed out and was completed has two revisions; the later one decides."""
    *most, end = mill.events("a")
    mill.send(*most)
    mill.clock.advance(3_600_000)
    mill.run()
    mill.send(end)
    mill.run()
    report = check(mill)
    assert report.balanced, report.differences
    assert lines(report, "trajectories") == {"sealed": 1, "graded": 1}
    assert lines(report, "rollouts")["default: waiting"] == 1


def test_a_dropped_telemetry_chunk_is_found(busy_mill):
    """Records that are gone, and the events that trajectories have from them."""
    busy_mill.sql("DELETE FROM chunk WHERE topic = 'telemetry' AND base_offset = 1")
    report = check(busy_mill)
    assert not report.balanced
    assert ids(report, "unreadable records") == ["telemetry:0 1 to 1"]


def test_an_accepted_loss_is_counted_and_no_difference(mill):
    """Once a person has accepted a hole the books balance, and the hole is in them."""
    for name in "abc":
        mill.send(*mill.events(name))
    mill.sql("DELETE FROM chunk WHERE topic = 'telemetry' AND base_offset = 1")
    with pytest.raises(PositionLost):
        mill.run()
    assert kinds(check(mill)) == {"unreadable records"}
    mill.store.accept_loss("assemble", 0, "telemetry", 0)
    mill.run()
    report = check(mill)
    assert report.balanced, report.differences
    assert [(gap.stage, gap.first, gap.end) for gap in report.gaps] == [("assemble", 1, 2)]
    assert lines(report, "trajectories") == {"sealed": 2, "graded": 2}


def test_a_damaged_chunk_is_found(busy_mill):
    """Bytes that no longer fit their checksum."""
    busy_mill.sql("UPDATE chunk SET crc = 1 WHERE topic = 'grades' AND base_offset = 0")
    assert "unreadable records" in kinds(check(busy_mill))


def test_a_lost_trajectory_is_found(busy_mill):
    """A trajectory dropped from its topic leaves its events nowhere."""
    busy_mill.rewrite("trajectories", lambda value: None if b'"id":"b1"' in value[:20] else value)
    report = check(busy_mill)
    assert ids(report, "lost trajectory") == ["b1"]
    assert "b1" in ids(report, "invented grading")


def test_a_lost_event_is_found(busy_mill):
    """An event that its trajectory lost, and one it never had."""

    def change(value):
        body = json.loads(value)
        if body["id"] == "b1":
            body["events"][1]["id"] = "never sent"
        return json.dumps(body).encode()

    busy_mill.rewrite("trajectories", change)
    report = check(busy_mill)
    assert ids(report, "lost event") == ["b1-1"]
    assert ids(report, "invented event") == ["never sent"]
    assert lines(report, "events")["lost"] == 1


def test_a_lost_dead_letter_is_found(busy_mill):
    """What could not be used must be in the dead letters."""
    busy_mill.rewrite("dead-letters", lambda value: None if b"unknown_dialect" in value else value)
    assert ids(check(busy_mill), "lost event") == ["dialect 'songs'"]


def test_a_trajectory_that_overstayed_is_found(mill):
    """Nobody sealed it, though its time has passed for the stage."""
    mill.send(*mill.events("a")[:2])
    mill.send(*mill.events("b"))
    mill.run()
    mill.sql("UPDATE chunk SET log_time = log_time + 7200000 WHERE topic = 'telemetry' AND base_offset = 1")
    assert ids(check(mill), "lost trajectory") == ["a"]


def test_a_doubled_trajectory_is_found(busy_mill):
    """The same revision twice."""
    busy_mill.rewrite("trajectories", lambda value: [value, value] if b'"id":"b1"' in value[:20] else value)
    assert ids(check(busy_mill), "doubled trajectory") == ["b1"]


def test_a_missing_revision_is_found(busy_mill):
    """Revision 2 without revision 1."""
    busy_mill.rewrite("trajectories", lambda value: value.replace(b'"id":"b1","revision":1', b'"id":"b1","revision":2'))
    assert "b1" in ids(check(busy_mill), "missing revision")


def test_a_lost_grade_is_found(busy_mill):
    """`GradingFinished` names it, and a rollout rests on it."""
    dropped = []

    def change(value):
        kept = value.split(b"\n")
        if not dropped and b'"GradingFinished"' in value:
            dropped.append(json.loads(kept[0])["id"])
            kept = kept[1:]
        return b"\n".join(kept)

    busy_mill.rewrite("grades", change)
    report = check(busy_mill)
    assert ids(report, "lost grade") == dropped * 2


def test_a_lost_grading_is_found(busy_mill):
    """A sealed trajectory without `GradingFinished`."""
    busy_mill.rewrite("grades", lambda value: None if b'"trajectory_id":"b2"' in value else value)
    report = check(busy_mill)
    assert ids(report, "lost grading") == ["b2"]
    assert "invented rollout" in kinds(report)


def test_lost_feedback_is_found(busy_mill):
    """Feedback in telemetry, then in trajectories, then in grades."""
    busy_mill.rewrite("grades", lambda value: None if b'"feedback"' in value else value)
    assert ids(check(busy_mill), "lost feedback") == ["a1-f"]
    busy_mill.rewrite("trajectories", lambda value: None if b'"FeedbackGiven"' in value else value)
    assert ids(check(busy_mill), "lost event") == ["a1-f"]


def test_repeated_feedback_is_no_difference(mill):
    """Importing twice brings the same feedback twice; the first grade counts."""
    mill.send(*mill.events("a"))
    mill.feedback("a")
    mill.clock.advance(1_000)
    mill.feedback("a")
    mill.run()
    report = check(mill)
    assert report.balanced, report.differences
    assert lines(report, "grades")["repeated"] == 1


def test_a_grade_that_changed_its_mind_is_found(busy_mill):
    """The same grade id with two outcomes."""

    def change(value):
        return [value, value.replace(b'"score":1.0', b'"score":0.5')] if b'"feedback"' in value else value

    busy_mill.rewrite("grades", change)
    assert kinds(check(busy_mill)) == {"doubled grade"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"status":"scored","score":1.0}', b'{"status":"failed","kind":"error","reason":"x"}'),
        (b'{"status":"scored","score":1.0}', b'{"status":"scored","score":0.25}'),
    ],
)
def test_a_false_reward_is_found(busy_mill, before, after):
    """A reward that rests on a failed grade, or on another score."""

    def change(value):
        lines = value.split(b"\n")
        if b'"trajectory_id":"b1"' in value:
            lines[0] = lines[0].replace(before, after)
        return b"\n".join(lines)

    busy_mill.rewrite("grades", change)
    assert "false reward" in kinds(check(busy_mill))


def test_a_group_of_two_epochs_is_found(busy_mill):
    """A member whose reward rests on another epoch than those of the others."""

    def change(value):
        lines = value.split(b"\n")
        if (at := next((n for n, line in enumerate(lines) if b'"trajectory_id":"b1"' in line), None)) is not None:
            lines[at] = lines[at].replace(b"correct=correct@1", b"correct=correct@2")
        return b"\n".join(lines)

    busy_mill.rewrite("buffer-events", change)
    assert "mixed epochs" in kinds(check(busy_mill))


def test_a_doubled_decision_is_found(busy_mill):
    """A record of decisions that is there twice."""
    busy_mill.rewrite("buffer-events", lambda value: [value, value] if b'"b1"' in value else value)
    assert len(ids(check(busy_mill), "doubled decision")) == 3


def test_a_doubled_admission_is_found(busy_mill):
    """The same rollout admitted by two decisions."""

    def change(value):
        again = b"\n".join(
            msgspec.json.encode({**json.loads(line), "id": f"again-{n}"})
            for n, line in enumerate(value.split(b"\n"))
            if b"RolloutAdmitted" in line
        )
        return [value, again] if b'"b1"' in value else value

    busy_mill.rewrite("buffer-events", change)
    assert len(ids(check(busy_mill), "doubled admission")) == 2


def test_a_lost_admission_is_found(busy_mill):
    """A group that was closed with rollouts of which one was never admitted."""

    def change(value):
        return b"\n".join(
            line for line in value.split(b"\n") if not (b"RolloutAdmitted" in line and b'"trajectory_id":"b2"' in line)
        )

    busy_mill.rewrite("buffer-events", change)
    assert len(ids(check(busy_mill), "lost admission")) == 1


def test_a_decision_that_never_came_is_found(busy_mill):
    """A whole group's decision is gone, and its time has passed."""
    busy_mill.rewrite("buffer-events", lambda value: None if b'"b1"' in value else value)
    assert check(busy_mill).balanced
    busy_mill.clock.advance(120_000)
    busy_mill.send(*busy_mill.events("another"))
    busy_mill.run()
    assert set(ids(check(busy_mill), "lost rollout")) == {"b1", "b2"}


@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        ({"kind": "RolloutsEvicted", "reason": "x"}, "wrong eviction"),
        ({"kind": "RolloutsLeased", "training_id": "t", "token": "k", "lineage": "p", "parent": 1}, "wrong lease"),
        ({"kind": "RolloutsAcknowledged", "training_id": "t", "token": "k", "lineage": "p", "parent": 1}, "wrong use"),
    ],
)
def test_a_decision_about_nothing_is_found(busy_mill, decision, kind):
    """Evicting, leasing or consuming what is not there."""
    body = {**decision, "id": "x", "namespace": "default", "rollout_ids": ["nobody"]}
    busy_mill.rewrite("buffer-events", lambda value: [value, json.dumps(body).encode()] if b'"b1"' in value else value)
    assert ids(check(busy_mill), kind) == ["nobody"]


def test_two_leases_of_one_rollout_are_found(busy_mill):
    """A rollout in the hands of two trainings."""
    record = next(r for r in busy_mill.log.read("buffer-events", 0, 0) if b'"b1"' in r.value)
    rollout = next(json.loads(x)["rollout_id"] for x in record.value.split(b"\n") if b"RolloutAdmitted" in x)

    def change(value):
        leases = [
            json.dumps(
                {
                    "kind": "RolloutsLeased",
                    "id": name,
                    "namespace": "default",
                    "training_id": name,
                    "token": "k",
                    "lineage": "p",
                    "parent": 1,
                    "rollout_ids": [rollout],
                }
            ).encode()
            for name in ("t1", "t2")
        ]
        return [value, *leases] if b'"b1"' in value else value

    busy_mill.rewrite("buffer-events", change)
    assert ids(check(busy_mill), "doubled lease") == [rollout]
