"""Telemetry deleted and made again: a stage stops, and after `--accept-loss` the books show the gap alone."""

from __future__ import annotations

import pytest

from millstream.console.audit import audit
from millstream.errors import PositionLost


def test_the_books_of_a_topic_made_again_show_the_gap_and_nothing_else(busy_mill):
    """What was sealed from the old topic is no invention, and its dead letters are not the new topic's."""
    mill = busy_mill
    for runner in mill.runners:
        runner.close()  # leaves a snapshot, which knows offsets of the old topic
    mill.log.delete("telemetry")
    mill.log.create("telemetry")
    mill.runners = mill.build()
    with pytest.raises(PositionLost, match="accept-loss"):
        mill.run()
    (gap,) = mill.store.accept_loss("assemble", 0, "telemetry", 0)
    mill.runners = mill.build()
    for n in range(12):
        mill.send(*mill.events(f"new{n}"))
    mill.run()
    found = audit(mill.log, mill.store, mill.settings)
    assert found.differences == ()
    assert found.gaps == (gap,)
    assert found.count("events", "in a trajectory") == 48
    assert found.count("events", "dead letter") == 0
