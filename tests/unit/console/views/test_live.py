"""Who served when, from the log alone."""

import pytest

from millstream.console.live import render, services, who_was_live
from millstream.console.times import duration, iso, parse_time
from millstream.errors import SettingsError
from millstream.ledger import append_policy_events
from millstream.policy import PolicyPromoted, PolicyRolledBack

START, MINUTE = 1_767_225_600_000, 60_000


def test_each_moment_has_one_answer(looped) -> None:
    """Before the first nothing, then version 1, and at the very millisecond of the change version 2."""
    at = [who_was_live(looped, ms)[0].version for ms in (START - 1, START, START + 2 * MINUTE - 1, START + 2 * MINUTE)]
    assert at == [None, 1, 1, 2]


def test_the_answer_says_since_when_and_why(looped) -> None:
    """Version 1 by bootstrap for two minutes, version 2 by the gate, still."""
    assert render(who_was_live(looped, START)) == (
        "policy: version 1, since 2026-01-01T00:00:00.000Z, until 2026-01-01T00:02:00.000Z, 2 min (bootstrap)"
    )
    assert render(who_was_live(looped, START + 5 * MINUTE)) == (
        "policy: version 2, since 2026-01-01T00:02:00.000Z, still (better, by gate)"
    )
    assert render(who_was_live(looped, START - MINUTE)) == "policy: nothing served at 2025-12-31T23:59:00.000Z"


def test_a_rollback_is_a_stretch_of_its_own(looped, clock) -> None:
    """1, 2, 1 again; a promotion that lost its race is none."""
    clock.advance(MINUTE)
    append_policy_events(
        looped,
        [
            PolicyRolledBack(id="b", lineage="policy", version=1, expected_champion=2, reason="by hand"),
            PolicyPromoted(id="late", lineage="policy", version=2, expected_champion=2, reason="too late"),
        ],
    )
    assert [(s.version, s.until_ms) for s in services(looped)] == [
        (1, START + 2 * MINUTE),
        (2, START + 3 * MINUTE),
        (1, None),
    ]


def test_nothing_yet(log) -> None:
    """An empty log has no lineage."""
    assert render(who_was_live(log, START)) == "no lineage has a version yet"


def test_times_are_read_with_and_without_a_zone() -> None:
    """Z and offsets are honoured; what is no time says how to write one."""
    assert parse_time("2026-01-01T00:00:00Z") == START == parse_time("2026-01-01T02:00:00+02:00")
    assert iso(START + 5) == "2026-01-01T00:00:00.005Z"
    with pytest.raises(SettingsError, match="write 2026-01-31T12:00"):
        parse_time("yesterday")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(350, "350 ms"), (61_000, "1 min 1 s"), (90_061_000, "1 d 1 h"), (3_600_000, "1 h"), (3_605_000, "1 h 5 s")],
)
def test_durations_are_two_units(ms: int, text: str) -> None:
    """Short spans exactly, long ones roughly."""
    assert duration(ms) == text
