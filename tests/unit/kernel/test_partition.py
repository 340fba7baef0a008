"""Partitions follow Kafka's own hash."""

from __future__ import annotations

import pytest

from millstream.partition import murmur2, partition_of, slot, unslot


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafka_s(key, signed):
    """The vectors of Kafka's own UtilsTest (signed 32-bit there)."""
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_one_partition_takes_everything():
    """No hash is needed, whatever the key."""
    assert partition_of("any", 1) == 0


def test_keys_spread_and_stay():
    """Every partition is used, and a key always has the same."""
    found = [partition_of(f"key-{n}", 4) for n in range(100)]
    assert set(found) == {0, 1, 2, 3}
    assert found == [partition_of(f"key-{n}", 4) for n in range(100)]


def test_slots_round_trip():
    """The topic may hold a colon itself."""
    assert unslot(slot("a:b", 3)) == ("a:b", 3)
