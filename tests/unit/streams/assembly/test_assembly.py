"""Each row of the transition table, in the sequenced mode."""

import pytest

from millstream.events import (
    FeedbackGiven,
    MessageReceived,
    ModelResponded,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
)
from millstream.ports import Processor
from millstream.streams.assembly import Assembler

V7 = "00000000-0064-7000-8000-000000000001"
"""A UUIDv7 born at 100 ms."""


def message(seq, event_id=None, run="t", producer="p", content=""):
    return MessageReceived(
        id=event_id or f"{producer}{seq}", trajectory_id=run, producer=producer, seq=seq, content=content
    )


def end(seq, event_id=None, run="t", producer="p", reason="done", **last):
    return TrajectoryEnded(
        id=event_id or f"{producer}{seq}", trajectory_id=run, producer=producer, seq=seq, reason=reason, last_seq=last
    )


def asked(seq, *calls, run="t"):
    return ModelResponded(
        id=f"p{seq}",
        trajectory_id=run,
        producer="p",
        seq=seq,
        tool_calls=tuple(ToolCall(id=c, name="f") for c in calls),
    )


def answered(seq, call, run="t", producer="p"):
    return ToolReturned(id=f"{producer}{seq}", trajectory_id=run, producer=producer, seq=seq, call_id=call)


def test_it_is_a_processor(mill):
    """The runner knows it by name and inputs."""
    assert isinstance(mill.assembler, Processor)
    assert (mill.assembler.name, mill.assembler.inputs) == ("assemble", ("telemetry",))


def test_an_offset_is_folded_once(mill):
    """A record delivered again changes nothing at all."""
    mill.put(message(0))
    mill.put(message(1))
    before = mill.assembler.snapshot()
    mill.feed(mill.records[0])
    mill.feed(mill.records[1])
    assert mill.assembler.snapshot() == before


def test_whole_when_every_seq_is_there(mill):
    """The end tells how many there are; the last one to come completes the trajectory."""
    mill.each([end(3), message(1), message(0)])
    assert mill.sealed == []
    mill.put(message(2))
    assert mill.sealed == [(1, "complete", ["p0", "p1", "p2", "p3"])]
    assert mill.trajectories[0].status == "complete"
    assert mill.trajectories[0].missing == ()


def test_whole_when_every_producer_is_there(mill):
    """The end lists the last seq of each producer."""
    mill.each([message(0), end(1, q=1), message(1, producer="q")])
    assert mill.sealed == []
    mill.put(message(0, producer="q"))
    ((revision, reason, ids),) = mill.sealed
    assert (revision, reason, sorted(ids)) == (1, "complete", ["p0", "p1", "q0", "q1"])


def test_a_producer_that_sent_nothing_is_no_gap(mill):
    """A last seq of −1 asks for nothing."""
    mill.each([message(0), end(1, q=-1)])
    assert mill.sealed == [(1, "complete", ["p0", "p1"])]


def test_a_producer_that_no_end_lists_is_kept(mill):
    """What an unlisted producer sent before the end belongs to the trajectory, and must be gapless."""
    mill.each([message(1, producer="q"), message(0), end(1)])
    assert mill.sealed == []
    mill.put(message(0, producer="q"))
    assert mill.trajectories[0].status == "complete"
    assert len(mill.trajectories[0].events) == 4


def test_duplicates_are_counted(mill):
    """T01: an event sent three times is in the trajectory once, and seen as two duplicates."""
    mill.each([message(0), message(0), message(0), end(1)])
    assert mill.sealed == [(1, "complete", ["p0", "p1"])]
    assert mill.trajectories[0].evidence.duplicates == 2
    assert mill.counts() == {"accepted": 2, "duplicate": 2}


def test_a_duplicate_after_sealing_only_counts(mill):
    """T01: a trajectory that was emitted is not emitted again."""
    mill.each([message(0), end(1), message(0), end(1)])
    assert len(mill.sealed) == 1
    assert mill.letters == []
    assert mill.counts() == {"accepted": 2, "duplicate": 2}


def test_the_same_ids_in_two_trajectories_stay_apart(mill):
    """T03: an event is known by its trajectory and its id."""
    mill.put(message(0, run="a"), message(0, run="b"), end(1, run="b"), end(1, run="a"))
    assert [(t.id, len(t.events)) for t in mill.trajectories] == [("b", 2), ("a", 2)]


def test_silence_seals(mill):
    """Idle for idle_s: timed out, with the seqs that never came; the time is the timer's."""
    mill.put(message(0), at=10)
    mill.put(message(2), at=50)
    mill.tick(149)
    assert mill.sealed == []
    mill.tick(500)
    assert mill.sealed == [(1, "idle_timeout", ["p0", "p2"])]
    (trajectory,) = mill.trajectories
    assert (trajectory.status, trajectory.missing) == ("timed_out", ("p:1",))
    assert (trajectory.evidence.first_log_ms, trajectory.evidence.sealed_ms, trajectory.evidence.partition) == (
        10,
        150,
        3,
    )


def test_max_age_counts_from_the_first_event(mill):
    """Events keep a run from falling silent, not from growing old."""
    from millstream.settings import Assembly

    mill = type(mill)(Assembly(idle_s=0.1, max_age_s=0.25, gap_s=0.02, retain_s=0.5))
    for step in range(3):
        mill.put(message(step), at=step * 90)
    mill.tick(249)
    assert mill.sealed == []
    mill.tick(250)
    assert mill.sealed == [(1, "max_age", ["p0", "p1", "p2"])]


def test_a_gap_seals(mill):
    """After the end, what is missing has gap_s to come."""
    mill.put(end(2), at=10)
    mill.put(message(0), at=20)
    mill.tick(29)
    assert mill.sealed == []
    mill.tick(30)
    assert mill.sealed == [(1, "gap_timeout", ["p0", "p2"])]
    assert (mill.trajectories[0].status, mill.trajectories[0].missing) == ("interrupted", ("p:1",))


def test_a_gap_that_closes_makes_the_next_revision(mill):
    """What comes within retain_s after a timeout raises the revision and supersedes the first."""
    mill.put(end(2), message(0), at=10)
    mill.tick(30)
    mill.put(message(1), at=100)
    assert mill.sealed == [(1, "gap_timeout", ["p0", "p2"]), (2, "complete", ["p0", "p1", "p2"])]
    assert mill.trajectories[1].missing == ()


def test_only_so_many_revisions(mill):
    """After max_revisions an event is late, with the reason, and nothing is emitted."""
    for seq in range(4):
        mill.put(message(seq), at=seq * 200)
    mill.tick(900)
    assert [(revision, reason) for revision, reason, _ in mill.sealed] == [(n, "idle_timeout") for n in (1, 2, 3)]
    assert mill.reasons == ["late:sealed"]
    assert mill.counts() == {"accepted": 3, "late": 1, "tick": 1}


def test_revisions_of_replays_count_for_no_amendment(mill):
    """What was put out by reading history again takes none of max_revisions, also over a restart."""
    mill.put(message(0), at=0)
    mill.tick(100)
    mill.assembler.renumber({mill.trajectories[0].id: 5})
    for seq in range(1, 4):
        snapshot = mill.assembler.snapshot()
        mill.assembler = Assembler(mill.settings, topic_id="topic-1")
        mill.assembler.restore(snapshot)
        mill.put(message(seq), at=seq * 200)
    mill.tick(900)
    assert [revision for revision, _, _ in mill.sealed] == [1, 6, 7]
    assert mill.reasons == ["late:sealed"]


def test_after_retention_an_event_is_late(mill):
    """A timed-out trajectory is closed for good retain_s after it was sealed."""
    mill.put(message(0), at=0)
    mill.tick(100)
    mill.tick(600)
    mill.put(message(1), at=600)
    mill.put(message(0), at=600)
    assert len(mill.sealed) == 1
    assert mill.reasons == ["late:sealed"]
    assert mill.counts() == {"accepted": 1, "late": 1, "duplicate": 1, "tick": 2}


def test_an_event_after_a_whole_trajectory_is_late(mill):
    """Nothing can be added to what is complete; the event is kept as a dead letter, once."""
    mill.each([message(0), end(1)])
    mill.put(message(5, event_id="stray"))
    mill.put(message(5, event_id="stray"))
    (letter,) = mill.letters
    assert (letter.reason, letter.offset, letter.index, letter.trajectory_id) == ("late:sealed", 2, 0, "t")
    assert (letter.topic, letter.topic_id, letter.partition) == ("telemetry", "topic-1", 3)
    assert '"stray"' in letter.original
    assert mill.counts() == {"accepted": 2, "late": 1, "duplicate": 1}


def test_too_old_to_begin(mill):
    """An id that tells its age does not begin a trajectory after retain_s; an import does."""
    mill.put(message(0, run=V7), at=600)
    mill.put(message(0, event_id="i", run=V7), at=600, imported=True)
    assert mill.reasons == ["late:too_old"]
    assert mill.counts() == {"late": 1, "accepted": 1}
    mill.put(message(0, run="without-age"), at=10**6)
    assert mill.counts()["accepted"] == 2


def test_a_conflict_keeps_the_smaller_id(mill):
    """Two events at one seq: the smaller id stays in whatever order they come; the other is a dead letter."""
    for order in (["a", "b"], ["b", "a"]):
        mill.__init__()
        mill.each([message(0, event_id=event_id) for event_id in order])
        mill.put(end(1))
        assert mill.sealed == [(1, "complete", ["a", "p1"])]
        (letter,) = mill.letters
        assert (letter.reason, letter.offset) == ("late:conflict", order.index("b"))
        assert mill.trajectories[0].evidence.conflicts == 1
        assert mill.counts() == {"accepted": 2, "conflict": 1}


def test_a_conflict_does_not_wake_a_sealed_trajectory(mill):
    """What was sealed stays as it was when another event claims a seq that is taken."""
    mill.put(message(1, event_id="m"), at=0)
    mill.tick(100)
    mill.put(message(1, event_id="a"), at=110)
    mill.tick(400)
    assert len(mill.sealed) == 1
    assert mill.reasons == ["late:conflict"]


def test_after_the_end_is_late(mill):
    """A seq after the end never enters, whichever of the two comes first."""
    mill.each([end(2), message(3), message(0)])
    mill.put(message(1))
    assert mill.sealed == [(1, "complete", ["p0", "p1", "p2"])]
    assert mill.reasons == ["late:after_end"]
    mill.each([message(3, run="u"), message(0, run="u"), message(1, run="u"), end(2, run="u")])
    assert mill.sealed[1] == (1, "complete", ["p0", "p1", "p2"])
    assert [(letter.reason, letter.offset) for letter in mill.letters] == [("late:after_end", 1), ("late:after_end", 4)]
    assert mill.counts() == {"accepted": 6, "after_end": 2}


def test_of_two_ends_the_first_counts(mill):
    """A second end with a smaller seq takes out what lies after it, the first end too."""
    for ends in ([end(3), end(2)], [end(2), end(3)]):
        mill.__init__()
        mill.each([message(0), *ends, message(1)])
        assert mill.sealed == [(1, "complete", ["p0", "p1", "p2"])]
        assert mill.reasons == ["late:after_end"]


def test_too_many_events_overflow(mill):
    """Above max_events the run is sealed at once, graded as a failure, and takes nothing more."""
    mill.each(message(seq) for seq in range(10))
    ((revision, reason, ids),) = mill.sealed
    assert (revision, reason, len(ids)) == (1, "overflow", 9)
    assert mill.trajectories[0].hit_limit
    assert not mill.trajectories[0].censored
    assert mill.reasons == ["late:sealed"]


def test_too_many_bytes_overflow(mill):
    """Above max_bytes the run is sealed at once."""
    mill.each(message(seq, content="x" * 1500) for seq in range(3))
    assert [reason for _, reason, _ in mill.sealed] == ["overflow"]


def test_an_unanswered_call_interrupts(mill):
    """T29: a normal end with a call that got no result; the call is named, not dropped."""
    mill.each([asked(0, "c1", "c2"), answered(1, "c2"), message(2), end(3)])
    (trajectory,) = mill.trajectories
    assert (trajectory.status, trajectory.reason, trajectory.unanswered) == ("interrupted", "unanswered_call", ("c1",))
    assert trajectory.censored
    mill.put(answered(4, "c1"))
    assert mill.reasons == ["late:sealed"]


@pytest.mark.parametrize(
    ("reason", "sealed", "status", "censored"),
    [
        ("limit", "complete", "complete", False),
        ("crash", "reported_crash", "interrupted", True),
        ("cancelled", "unanswered_call", "interrupted", True),
    ],
)
def test_how_the_run_ended_decides(mill, reason, sealed, status, censored):
    """A run driven into a limit is complete even with its last call unanswered; a crash is reported."""
    mill.each([asked(0, "c1"), end(1, reason=reason)])
    (trajectory,) = mill.trajectories
    assert (trajectory.reason, trajectory.status, trajectory.censored) == (sealed, status, censored)
    assert trajectory.hit_limit is (reason == "limit")


def test_a_result_without_its_call_is_kept(mill):
    """T30: an orphan result stays in the trajectory and is known as one."""
    mill.each([answered(0, "c9"), message(1), end(2)])
    (trajectory,) = mill.trajectories
    assert trajectory.reason == "complete"
    assert [event.call_id for event in trajectory.orphans] == ["c9"]


def test_a_replaced_answer_is_not_trusted(mill):
    """The verdict is of the events that are in the trajectory, not of those that were taken out."""
    late = ToolReturned(id="z", trajectory_id="t", producer="p", seq=1, call_id="c1")
    mill.each([asked(0, "c1"), late, message(1, event_id="a"), end(2)])
    assert mill.sealed == [(1, "unanswered_call", ["p0", "a", "p2"])]


def test_agents_keep_their_names(mill):
    """T32: a handoff stays one trajectory, each step with its own agent's name."""
    steps = [("A", "p", 0), ("A", "p", 1), ("B", "q", 0), ("B", "q", 1)]
    for agent, producer, seq in steps:
        mill.put(ModelResponded(id=f"{producer}{seq}", trajectory_id="t", producer=producer, seq=seq, agent=agent))
    mill.put(end(2, q=1))
    assert sorted((e.agent, e.id) for e in mill.trajectories[0].responses) == [
        ("A", "p0"),
        ("A", "p1"),
        ("B", "q0"),
        ("B", "q1"),
    ]


def test_feedback_passes_by(mill):
    """Feedback never enters a trajectory: it goes on as it came, before, during and long after the run."""
    feedback = FeedbackGiven(id="f", trajectory_id="t", value=1.0)
    mill.put(feedback, message(0), end(1), feedback)
    mill.put(feedback, at=10**9)
    assert mill.sealed == [(1, "complete", ["p0", "p1"])]
    assert len(mill.feedback) == 3
    assert mill.counts() == {"accepted": 2, "feedback": 3}


def test_null_is_counted(mill):
    """T34: a record without a value between two events is skipped and counted."""
    mill.put(message(0))
    mill.raw(None)
    mill.raw(b"\n")
    mill.put(end(1))
    assert len(mill.sealed) == 1
    assert mill.counts() == {"accepted": 2, "null": 2}


def test_poison_is_a_dead_letter(mill):
    """T35: bytes that are no event are kept with their place; their neighbours are processed."""
    from millstream.codec import encode

    mill.raw(encode(message(0)) + b"\n\xff\xfe\x00\n" + encode(end(1)))
    (letter,) = mill.letters
    assert (letter.reason, letter.offset, letter.index, letter.encoding, letter.original) == (
        "undecodable",
        0,
        1,
        "base64",
        "//4A",
    )
    assert len(mill.sealed) == 1


def test_a_foreign_dialect_is_a_dead_letter(mill):
    """A record that no mapping of this version reads is kept whole, at index −1."""
    mill.raw(b"spans", headers={"dialect": "otlp"})
    (letter,) = mill.letters
    assert (letter.reason, letter.index, letter.original) == ("unknown_dialect", -1, "spans")


def test_an_event_without_a_place_is_a_dead_letter(mill):
    """Neither seq nor link: it can't be ordered, so it begins nothing."""
    mill.put(MessageReceived(id="x", trajectory_id="t"))
    assert mill.reasons == ["unplaceable"]
    assert mill.assembler.open == 0
    assert mill.counts() == {"dead": 1}


def test_a_window_that_time_closed_is_not_lost(mill):
    """T37: one run, then silence, and a restart between: the timer of the log seals it all the same."""
    mill.put(message(0), at=1000)
    snapshot = mill.assembler.snapshot()
    again = type(mill)()
    again.assembler.restore(snapshot)
    again.records = list(mill.records)
    assert again.assembler.deadline_ms() == 1100
    again.tick(1100)
    assert again.sealed == [(1, "idle_timeout", ["p0"])]


def test_producer_clocks_drive_no_timer(mill):
    """T37: told times, old or far ahead, seal nothing and keep nothing open."""
    for seq, told in enumerate((10**18, -(10**18))):
        mill.put(MessageReceived(id=f"{seq}", trajectory_id="t", producer="p", seq=seq, time_ns=told), at=seq)
    assert mill.sealed == []
    assert mill.assembler.deadline_ms() == 101


def test_redelivery_after_a_kill_gives_the_same(mill):
    """T36: three of four records, a kill without a commit, and all four again: as one clean run."""
    events = [message(0), message(1), message(2), end(3)]
    mill.each(events[:3])
    again = type(mill)()
    for record in mill.records:
        again.feed(record)
    again.put(events[3])
    mill.put(events[3])
    assert again.trajectories == mill.trajectories
    assert again.assembler.snapshot() == mill.assembler.snapshot()


def test_a_resend_never_issues_a_revision_twice(mill):
    """Regression: a tombstone that was dropped let a late resend begin the trajectory anew as revision 1."""
    for run in (V7, "without-age"):
        mill.put(message(0, run=run), end(1, run=run), at=110)
    mill.tick(5000)
    for run in (V7, "without-age"):
        mill.put(message(0, run=run), end(1, run=run), message(2, run=run), at=5000)
    mill.tick(9000)
    assert [(t.id, t.revision) for t in mill.trajectories] == [(V7, 1), ("without-age", 1)]
    assert mill.reasons == ["late:too_old"] * 3 + ["late:sealed"]
    assert mill.assembler.remembered == 1


def test_dead_letters_of_two_trajectories_stay_apart(mill):
    """Regression: side outputs named by event ids collided across trajectories; places never do."""
    for run in ("a", "b"):
        mill.each([end(0, run=run), message(1, event_id="same", run=run)])
    assert len({(letter.offset, letter.index, letter.trajectory_id) for letter in mill.letters}) == 2


def test_poison_moves_time_too(mill):
    """Regression: timers depend on the time of every record, poison included."""
    mill.put(message(0), at=0)
    mill.raw(b"\xff", at=100)
    assert mill.sealed == [(1, "idle_timeout", ["p0"])]


def test_a_snapshot_is_canonical(mill):
    """Regression: equal states are equal bytes, whatever the order of their dicts."""
    mill.put(message(2), message(0, producer="q"), message(1), message(0))
    snapshot = mill.assembler.snapshot()
    mill.assembler.restore(snapshot)
    assert mill.assembler.snapshot() == snapshot
    mill.assembler.restore(b"")
    assert mill.assembler.open == mill.assembler.ledger.inputs == 0


@pytest.mark.parametrize("bad", [b"\xff", b"\x93\x01\x02\x03"])
def test_a_foreign_snapshot_is_refused(mill, bad):
    """A state that can't be read is said to be so, with the mend."""
    from millstream.errors import Unavailable

    with pytest.raises(Unavailable, match="rebuild it from telemetry"):
        mill.assembler.restore(bad)


def test_missing_seqs_are_named_within_reason(mill):
    """A claim of two thousand million events names a thousand of them and counts the rest."""
    mill.put(end(0, p=2**31 - 1))
    mill.tick(100)
    (trajectory,) = mill.trajectories
    assert len(trajectory.missing) == 1001
    assert (trajectory.missing[0], trajectory.missing[-1]) == ("p:1", f"and {2**31 - 1 - 1000} more")


def test_content_hash_is_of_content_only(mill):
    """Duplicates, offsets and log times are evidence beside the content."""
    mill.each([message(0), end(1)])
    mill.put(message(0, run="t2"), at=7)
    other = type(mill)()
    other.put(end(1), at=3)
    other.put(end(1), message(0), at=5)
    assert other.trajectories[0].content_hash == mill.trajectories[0].content_hash
    assert other.trajectories[0].evidence != mill.trajectories[0].evidence


def test_the_start_is_read_from_the_trajectory(mill):
    """What was embedded as raw lines is a whole trajectory to its readers."""
    mill.put(TrajectoryStarted(id="s", trajectory_id="t", producer="p", seq=0, policy_version=3), end(1))
    assert mill.trajectories[0].started.policy_version == 3
    assert mill.trajectories[0].ended.reason == "done"


def test_more_runs_than_may_be_held(crowded):
    """The one that was idle longest is sealed as timed out and takes nothing in after; then those that wait for
    amendments go first.
    """
    mill = crowded
    for n in range(5):
        mill.put(message(0, run=f"run-{n}"), at=n)
    assert [(t.id, t.status, t.reason) for t in mill.trajectories] == [
        ("run-0", "timed_out", "idle_timeout"),
        ("run-1", "timed_out", "idle_timeout"),
    ]
    mill.put(message(1, run="run-0"), at=6)
    assert mill.reasons == ["late:sealed"]
    mill.tick(150)
    assert len(mill.trajectories) == 5
    mill.put(message(0, run="another"), at=151)
    assert len(mill.trajectories) == 5
    assert mill.assembler.open == 1
    mill.counts()
