"""The order of arrival and the number of copies change nothing (I1, I2); nor do other runs (I9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.codec import decode_lines
from millstream.errors import EventError


def content(log):
    """What a set of sealed trajectories says, evidence aside."""
    return {key: (t.status, t.reason, t.missing, t.content_hash, t.events) for key, t in log.sealed.items()}


def once(logs, events, sizes):
    """One log that holds the events in this order, cut into records, and then lets the grace pass."""
    records, left = [], list(events)
    while left:
        size = next(sizes)
        records.append(logs.record(len(records), 0, logs.encode(left[:size])))
        left = left[size:]
    return logs.Log().feed_all([*records, logs.record(len(records), 6, logs.tick())])


@pytest.mark.parametrize("mode", ["sequenced", "linked"])
@given(data=st.data())
def test_i2_any_order_and_any_copies_give_the_same(logs, mode, data):
    """I2: a well-formed set, permuted, repeated and cut into records anyhow, seals the same trajectories."""
    runs = data.draw(logs.whole_runs(mode))
    events = [event for run in runs.values() for event in run]
    plain = once(logs, events, iter(lambda: 1, 0))
    assert [(key, t.status) for key, t in sorted(plain.sealed.items())] == [((n, 1), "complete") for n in sorted(runs)]
    copies = data.draw(st.lists(st.sampled_from(events), max_size=4))
    shuffled = data.draw(st.permutations(events + copies))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=len(shuffled), max_size=len(shuffled)))
    other = once(logs, shuffled, iter(sizes))
    assert content(other) == content(plain)
    assert other.assembler.ledger.duplicate == len(copies)


@pytest.mark.parametrize("mode", ["sequenced", "linked", "mixed"])
@given(data=st.data())
def test_i1_a_copy_changes_only_counters(logs, mode, data):
    """I1: repeat any line of any log right after itself: the same trajectories and dead letters, and more
    duplicates. (A line that is a dead letter itself is one again.)
    """
    records = data.draw(logs.any_log(mode))
    plain, doubled = logs.Log().feed_all(records), logs.Log()
    for record in records:
        lines = (
            [line for line in (record.value or b"").split(b"\n") if _folds(line)]
            if not record.headers.get("dialect")
            else []
        )
        again = b"\n".join([record.value or b"", *lines])
        doubled.feed(logs.record(record.offset, record.log_ms, again or None, record.headers))
    assert content(doubled) == content(plain)
    refused = {(letter.offset, letter.original, letter.reason) for letter in plain.letters}
    assert {(letter.offset, letter.original, letter.reason) for letter in doubled.letters} == refused


def _folds(line: bytes) -> bool:
    ((event, _),) = decode_lines(line) or [(EventError(), b"")]
    return not isinstance(event, EventError) and (event.seq is not None or event.link is not None)


@pytest.mark.parametrize("mode", ["sequenced", "linked", "mixed"])
@given(data=st.data())
def test_i9_a_run_depends_on_its_own_events(logs, mode, data):
    """I9: take every other run's lines away, keep the log times and the closing ticks: the run's
    trajectories stay the same.
    """
    records = data.draw(logs.any_log(mode))
    everything = logs.Log().feed_all(records).sealed
    for name in logs.runs:
        alone = logs.Log()
        for record in records:
            lines = [
                line for line in (record.value or b"").split(b"\n") if name.encode() in line or b"close_open" in line
            ]
            alone.feed(logs.record(record.offset, record.log_ms, b"\n".join(lines or [logs.tick()]), record.headers))
        assert alone.sealed == {key: t for key, t in everything.items() if key[0] == name}
