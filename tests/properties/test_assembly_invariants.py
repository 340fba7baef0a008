"""What holds after every record of any log at all (I3, I4, I5, I6, I10, I11, I13), in all modes."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.assembly_run import Timers

pytestmark = pytest.mark.parametrize("mode", ["sequenced", "linked", "mixed"])


@given(data=st.data())
def test_i3_each_revision_is_sealed_once(logs, mode, data):
    """I3: the revisions of a trajectory are 1, 2, 3 …, each with one content, and never too many."""
    log = logs.Log().feed_all(data.draw(logs.any_log(mode)))
    revisions = {}
    for name, revision in log.sealed:
        revisions.setdefault(name, []).append(revision)
    for found in revisions.values():
        assert found == list(range(1, len(found) + 1))
        assert len(found) <= logs.settings.max_revisions


@given(data=st.data())
def test_i4_every_input_is_in_one_place(logs, mode, data):
    """I4: the counters add up to the inputs after every record, and each refusal has its dead letter."""
    log = logs.Log()
    ledger = log.assembler.ledger
    for record in data.draw(logs.any_log(mode)):
        log.feed(record)
        assert ledger.balance == 0
        assert min(msgspec.structs.astuple(ledger)) >= 0
    letters = Counter(letter.reason.partition(":")[0] + letter.reason.partition(":")[2] for letter in log.letters)
    refused = {"lateconflict": ledger.conflict, "lateafter_end": ledger.after_end}
    assert {name: letters.pop(name, 0) for name in refused} == refused
    assert letters.pop("latesealed", 0) + letters.pop("latetoo_old", 0) == ledger.late
    assert sum(letters.values()) == ledger.dead
    assert len({(letter.offset, letter.index) for letter in log.letters}) == len(log.letters)


@given(data=st.data())
def test_i4_what_was_accepted_is_in_a_trajectory_or_open(logs, mode, data):
    """I4: the events of each trajectory's last revision and of the open runs are those accepted."""
    log = logs.Log().feed_all(data.draw(logs.any_log(mode)))
    held = {name: run.events for name, run in log.assembler._fold.runs.items()}
    for (name, _), trajectory in sorted(log.sealed.items()):
        if name not in log.assembler._fold.runs:
            held[name] = len(trajectory.events)
    assert sum(held.values()) == log.assembler.ledger.accepted


@given(data=st.data())
def test_i5_complete_means_nothing_missing(logs, mode, data):
    """I5: a complete trajectory names no missing seq and no dangling key; each event is in it once."""
    for trajectory in logs.Log().feed_all(data.draw(logs.any_log(mode))).sealed.values():
        assert (trajectory.missing == ()) or trajectory.status != "complete"
        places = [event.link.key if event.link else (event.producer, event.seq) for event in trajectory.events]
        assert len(set(places)) == len(places)
        for producer in {event.producer for event in trajectory.events if event.link is None}:
            seqs = [event.seq for event in trajectory.events if event.link is None and event.producer == producer]
            assert seqs == sorted(seqs)
            assert trajectory.status != "complete" or seqs == list(range(len(seqs)))


@given(data=st.data())
def test_i6_everything_alive_has_a_timer(logs, mode, data):
    """I6: after every record no deadline has passed, and every live run will be woken."""
    log = logs.Log()
    timers = Timers.of(logs.settings)
    for record in data.draw(logs.any_log(mode)):
        log.feed(record)
        fold = log.assembler._fold
        deadlines = [timers.deadline(run) for run in fold.runs.values()]
        assert all(deadline > fold.now for deadline in deadlines)
        waiting = [timers.deadline(run) for run in fold.runs.values() if not run.reason]
        assert log.assembler.deadline_ms() == min(waiting, default=None)
    end = logs.record(10**6, fold.now + 10**6 if deadlines else 10**6, logs.tick()) if log.outputs else None
    if end is not None:
        log.feed(end)
        assert log.assembler._fold.runs == {}


@given(data=st.data())
def test_i10_time_and_offset_never_go_back(logs, mode, data):
    """I10: records fed again change nothing, and a log time that goes back counts as the last one."""
    records = data.draw(logs.any_log(mode))
    log = logs.Log().feed_all(records)
    before, now = log.assembler.snapshot(), log.assembler._fold.now
    for record in records:
        assert log.feed(record) == []
    assert log.assembler.snapshot() == before
    log.feed(logs.record(len(records), now - 50, logs.tick()))
    assert log.assembler._fold.now == now


@given(data=st.data())
def test_i11_the_state_is_bounded(logs, mode, data):
    """I11: caps hold after every record; after the retention only what tells no age is remembered."""
    log = logs.Log()
    records = data.draw(logs.any_log(mode))
    for record in records:
        log.feed(record)
        for run in log.assembler._fold.runs.values():
            assert run.revision <= logs.settings.max_revisions
            assert run.reason or run.events <= logs.settings.max_events
            assert run.reason or run.size <= logs.settings.max_bytes
            assert run.weight in (-1, run.size)
    log.feed(logs.record(len(records), 10**6, logs.tick()))
    assert log.assembler.open == 0
    assert set(log.assembler._fold.closed.stones) <= {"without-age"}


@given(data=st.data())
def test_i13_poison_touches_no_trajectory(logs, mode, data):
    """I13: a record that can't be read does to the trajectories what a Tick at its time does: nothing more."""
    records = data.draw(logs.any_log(mode))
    poisoned, ticked = logs.Log().feed_all(records), logs.Log().feed_all(records)
    when = (records[-1].log_ms if records else 0) + data.draw(st.sampled_from([0, 5, 20, 100, 600]))
    bad = data.draw(st.sampled_from([b"\xff\xfe\x00", b"{", b"7", b"\xff\n{}"]))
    poisoned.feed(logs.record(len(records), when, bad))
    ticked.feed(logs.record(len(records), when, logs.tick()))
    assert poisoned.sealed == ticked.sealed
    assert poisoned.assembler._fold.runs == ticked.assembler._fold.runs
    assert poisoned.assembler._fold.closed.dump() == ticked.assembler._fold.closed.dump()
