"""Dead letters are found again: listed, counted and shown whole."""

from __future__ import annotations

import pytest

from millstream.console import dead_letters
from millstream.errors import SettingsError


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
