"""The attribution window: how long after its end a word from outside is still about a run."""

from __future__ import annotations

import msgspec

from millstream.grade import score
from millstream.rollout import BufferDecision, RolloutAdmitted
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.buffering import BufferingStage

DAY_MS = 86_400_000
_decisions = msgspec.json.Decoder(BufferDecision).decode_lines


def rewards(desk, window_days, days):
    """The rewards of runs whose outcome held so many days after their end."""
    stage = BufferingStage(
        BufferSettings(near_duplicate=1.0), RewardSettings(formula="feedback.sale", attribution_s=window_days * 86_400)
    )
    told = []
    for n, late in enumerate(days):
        finished = msgspec.structs.replace(desk.finished(f"r{n}"), known_ms=desk.ms)
        given = desk.grade(f"r{n}", score(1.0), grader="feedback.sale", epoch="feedback@1", revision=0,
                           valid_ms=int(desk.ms + late * DAY_MS))  # fmt: skip
        for record in (desk.record(finished), desk.record(given)):
            for output in stage.feed(record):
                told += _decisions(output.value)
    return [d.trajectory_id for d in told if isinstance(d, RolloutAdmitted)]


def test_an_outcome_within_the_window_counts(desk):
    """A sale two days after the run is its doing, one after ten days is not; it stays in the log."""
    assert rewards(desk, 7, [2, 10, 6.9]) == ["r0", "r2"]


def test_without_a_window_every_outcome_counts(desk):
    """However late: as it was before."""
    assert rewards(desk, 0, [2, 1000]) == ["r0", "r1"]
