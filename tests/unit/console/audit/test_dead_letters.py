"""Dead letters are found again: listed, counted and shown whole."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from millstream.console import dead_letters
from millstream.errors import SettingsError
from millstream.ports import Message
from millstream.streams.dead_letters import whole
from millstream.streams.replaying import replay


def test_they_are_listed_with_place_and_reason(busy_mill):
    """Each row says where the original lies and why it could not be used."""
    rows = dead_letters.rows(busy_mill.log)
    assert sorted(row.reason for row in rows) == ["late:conflict", "late:sealed", "undecodable", "unknown_dialect"]
    broken = next(row for row in rows if row.reason == "undecodable")
    place = broken.place.split(":")
    original = busy_mill.log.read(place[0], int(place[1]), int(place[2]))[0].value.split(b"\n")[int(place[3])]
    assert original == b"{not json}"
    assert broken.size == len(original)


def test_reasons_select_and_are_counted(busy_mill):
    """A reason's beginning is enough."""
    assert len(dead_letters.rows(busy_mill.log, reason="late:")) == 2
    assert dead_letters.reasons(busy_mill.log)["undecodable"] == 1


def test_one_is_shown_whole(busy_mill):
    """With its original, by the id of the list."""
    row = next(row for row in dead_letters.rows(busy_mill.log) if row.reason == "undecodable")
    letter = dead_letters.show(busy_mill.log, row.id)
    assert (letter.original, letter.encoding) == ("{not json}", "utf-8")


@pytest.mark.parametrize("identity", ["0:999", "7:0", "x", "0:x", ""])
def test_an_unknown_id_says_where_to_look(busy_mill, identity):
    """The mend is in the message."""
    with pytest.raises(SettingsError, match="dead-letters list"):
        dead_letters.show(busy_mill.log, identity)


@pytest.mark.parametrize("value", [b"no letter", b"{}", b"\xff\xfe", b'{"kind":' + b"[" * 100_000])
def test_a_record_that_is_no_letter_is_shown_as_one(busy_mill, value):
    """Found by fuzzing: one record that another had written took away the list of all."""
    before = len(dead_letters.rows(busy_mill.log))
    busy_mill.log.append("dead-letters", [Message("k", value)])
    *_, row = dead_letters.rows(busy_mill.log)
    assert (row.reason, row.size) == ("no_letter", len(value))
    assert len(dead_letters.rows(busy_mill.log)) == before + 1
    letter = dead_letters.show(busy_mill.log, row.id)
    assert whole(letter) in (value, None)
    (problem,) = replay(busy_mill.log, [(row.id, letter)]).problems
    assert "only events of telemetry" in problem[1]


def test_an_original_that_is_no_base64_is_as_if_cut(busy_mill):
    """It can't be put back, and says so rather than breaking the command."""
    row = next(row for row in dead_letters.rows(busy_mill.log) if row.reason == "undecodable")
    letter = dead_letters.show(busy_mill.log, row.id)
    for original in ("//4-1e999A", "a", "=", "é"):
        assert whole(replace(letter, encoding="base64", original=original)) is None
