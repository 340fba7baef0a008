"""Crashes, restarts and redelivery: the log and a snapshot give back exactly what was (I7, I8, I12)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.codec import decode_lines, encode
from millstream.errors import EventError
from millstream.events import SCHEMA
from millstream.upcast import UPCASTERS, upcast

MODES = pytest.mark.parametrize("mode", ["sequenced", "linked", "mixed"])


@MODES
@given(data=st.data())
def test_i7_a_crash_anywhere_changes_nothing(logs, mode, data):
    """I7: crash at any record, restart from any earlier snapshot, redeliver: the same outputs for each
    offset, the same state at the end.
    """
    records = data.draw(logs.any_log(mode))
    clean = logs.Log()
    wanted = {record.offset: clean.feed(record) for record in records}
    log, snapshots, position = logs.Log(), [b""], 0
    for _ in range(data.draw(st.integers(0, 6))):
        stop = data.draw(st.integers(position, len(records)))
        for record in records[position:stop]:
            assert log.feed(record) == wanted[record.offset]
        position = stop
        if data.draw(st.booleans()):
            snapshots.append(log.assembler.snapshot())
        if data.draw(st.booleans()):
            log = logs.Log()
            log.assembler.restore(data.draw(st.sampled_from(snapshots)))
            position = log.assembler._next_offset
    log.feed_all(records)
    assert log.assembler.snapshot() == clean.assembler.snapshot()


@MODES
@given(data=st.data())
def test_i8_a_snapshot_is_the_state(logs, mode, data):
    """I8: a restored assembler has the same snapshot, deadline and ledger, and goes on in the same way."""
    records = data.draw(logs.any_log(mode))
    cut = data.draw(st.integers(0, len(records)))
    log, again = logs.Log().feed_all(records[:cut]), logs.Log()
    again.assembler.restore(log.assembler.snapshot())
    assert again.assembler.snapshot() == log.assembler.snapshot()
    assert again.assembler.deadline_ms() == log.assembler.deadline_ms()
    assert again.assembler.ledger == log.assembler.ledger
    for record in records[cut:]:
        assert again.feed(record) == log.feed(record)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
bodies = st.dictionaries(
    st.sampled_from(["kind", "id", "answer", "final_answer", "policy_version", "tool_calls", "seq", "text"]),
    json_values,
)


@given(body=bodies, schema=st.integers(0, len(UPCASTERS)))
def test_i12_upcasting_is_total_and_idempotent(body, schema):
    """I12: every object is upcast without an exception, and once it is of the newest schema it stays."""
    new = upcast(body, schema)
    assert new["schema"] == SCHEMA
    assert upcast(new, SCHEMA) == new


def encode_body(body):
    """JSON of a body that may be of any kind."""
    return msgspec.json.encode({"kind": "ModelResponded", "id": "a", "trajectory_id": "t"} | body)


@given(line=st.binary(max_size=60) | bodies.map(encode_body))
def test_i12_decoding_is_total_and_canonical(line):
    """Whatever bytes come: an event or an error, never an exception; a repaired line decodes to itself."""
    for event, raw in decode_lines(line):
        if not isinstance(event, EventError):
            ((again, line_again),) = decode_lines(raw)
            assert (again, line_again) == (event, raw)
            assert decode_lines(encode(event)) == [(event, encode(event))]
