"""The bytes of a fetch: whatever others put into names, keys and values is a record, and damage is told with a way
on.
"""

from __future__ import annotations

import struct

import pytest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.record.util import calc_crc32c

from millstream.adapters.kafka_records import unpack
from millstream.errors import PositionLost

AFTER = 4
"""The offset after a batch of three that begins at 1."""


def batch(*, names=("dialect", "dialect", "dialect"), value=b'{"a": 1}', magic=2):
    """Three records."""
    builder = MemoryRecordsBuilder(magic=magic, compression_type=0, batch_size=1 << 16, offset=1)
    for number, name in enumerate(names):
        headers = [(name, b"millstream"), ("n", None)] if magic == 2 else []
        builder.append(timestamp=1000 + number, key=b"k\xff", value=value, headers=headers)
    builder.close()
    return bytes(builder.buffer())


def checked(data):
    """A batch whose checksum holds, whatever was done to it."""
    return data[:17] + struct.pack(">I", calc_crc32c(data[21:])) + data[21:]


def read(data, offset=0, max_bytes=1 << 20):
    return unpack(MemoryRecords(data), "telemetry", 0, offset, max_bytes)


def test_records_are_as_they_were_sent():
    """Keys that are no UTF-8 are texts all the same, headers may have no value, an offset in the middle is kept to."""
    found = read(batch(), offset=2)
    assert [record.offset for record in found] == [2, 3]
    assert (found[0].key, found[0].value, found[0].log_ms) == ("k\ufffd", b'{"a": 1}', 1001)
    assert found[0].headers == {"dialect": "millstream", "n": ""}


def test_a_name_of_a_header_that_is_no_text_stops_nobody():
    """The library refuses the whole batch; the record is read, as are those before and behind it."""
    data = checked(batch(names=("dialect", "diaXect", "dialect")).replace(b"diaXect", b"dia\xffect"))
    found = read(data)
    assert [record.offset for record in found] == [1, 2, 3]
    assert found[1].headers == {"dia\ufffdect": "millstream", "n": ""}
    assert [record.headers["dialect"] for record in (found[0], found[2])] == ["millstream"] * 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + b"\xff",  # the checksum
        lambda data: checked(data[:61] + b"\x7f" + data[62:]),  # the first record runs over the second
        lambda data: checked(data[:61] + b"\x00" + data[62:]),  # a record of no bytes
        lambda data: checked(data[:21] + b"\x00\x01" + data[23:]),  # gzip that is none
        lambda data: checked(data[:57] + b"\x7f\xff\xff\xff" + data[61:]),  # more records than there are
    ],
    ids=["checksum", "longer", "empty", "codec", "count"],
)
def test_a_damaged_batch_is_lost_and_says_where_to_go_on(damage):
    """Alone it is `PositionLost` with the offset behind it; what is whole before it comes first."""
    data = damage(batch())
    assert data != batch()
    with pytest.raises(PositionLost) as lost:
        read(data, offset=AFTER)
    assert lost.value.resume == AFTER
    assert [record.offset for record in read(batch() + data)][:3] == [1, 2, 3]


def test_bytes_that_are_no_batch_are_lost():
    """Zeros, a cut head, a batch of the old format with a broken checksum."""
    with pytest.raises(PositionLost, match="telemetry:0"):
        read(bytes(34))
    old = batch(magic=1)
    assert len(read(old)) == 3
    assert len(read(old[:-1] + bytes([old[-1] ^ 1]))) == 2
    with pytest.raises(PositionLost):
        read(old[:-1] + bytes([old[-1] ^ 1]), offset=3)
    assert read(b"") == []
    assert read(batch()[:-1]) == []  # a broker cuts the last batch where the answer is full


def test_times_out_of_any_range_are_bounded():
    """What a producer stamps cannot make a state that can't be written."""
    data = batch()
    first = checked(data[:27] + struct.pack(">q", 2**63 - 1) + data[35:])
    assert all(0 <= record.log_ms <= 1 << 62 for record in read(first))
