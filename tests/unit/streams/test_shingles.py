"""The two ways of hashing all shingles of a text, against the definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.shingles import EMPTY, FACTOR, PLACES, SHINGLE, minima_by_integers, minima_by_numpy


def by_definition(data):
    data = data.ljust(SHINGLE, b"\0")
    least = [EMPTY] * PLACES
    for at in range(len(data) - SHINGLE + 1):
        value = int.from_bytes(data[at : at + SHINGLE], "little") * FACTOR % 2**64 >> 32
        least[value >> 25] = min(value, least[value >> 25])
    return least


@pytest.mark.parametrize("way", [minima_by_integers, minima_by_numpy])
@given(data=st.binary(min_size=1, max_size=400))
def test_each_way_gives_what_the_definition_does(way, data):
    """Whatever the bytes and however few."""
    assert way(data) == by_definition(data)


@pytest.mark.parametrize("data", [b"\xff" * 16_384, b"abcdefgh" * 2048, bytes(range(256)) * 64])
def test_both_ways_agree_on_long_texts(data):
    """The largest product of one lane never reaches the next."""
    assert minima_by_integers(data) == minima_by_numpy(data) == by_definition(data)
