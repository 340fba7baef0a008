"""Feedback: given by command, and the worker that finds the run of what names a response alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.adapters.otlp import Kept, Place
from millstream.streams.joining import FeedbackJoiner
from millstream.topics import TELEMETRY

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.bootstrap.runtime import Runtime
    from millstream.events import FeedbackGiven

PAUSE_S = 1.0
"""How long a Kafka cluster is left alone between two looks."""


class _Place:
    """A file in the data directory."""

    def __init__(self, file: Path) -> None:
        self._place = Place(file)

    def load(self, topic_id: str) -> Mapping[int, int]:
        """The offsets kept for this topic."""
        kept = self._place.read()
        return kept.offsets if kept.topic_id == topic_id else {}

    def save(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Keep them. Raises `Unavailable`."""
        self._place.write(Kept(topic_id=topic_id, offsets=dict(offsets)))


def joiner(runtime: Runtime) -> FeedbackJoiner:
    """The worker of this data directory."""
    place = _Place(runtime.loaded.data / "joined-feedback.json")
    return FeedbackJoiner(runtime.log, place, pause_s=PAUSE_S if runtime.on_kafka else 0.0)


def give(runtime: Runtime, event: FeedbackGiven) -> None:
    """Put feedback into the log, redacted and bounded as at every door. Raises `Unavailable`."""
    from millstream.capture.edge import Edge
    from millstream.capture.shipping import by_partition, messages

    line = (event.trajectory_id, Edge(runtime.loaded.settings.capture, runtime.shared()).encode(event))
    for partition, lines in by_partition([line], runtime.log.partitions(TELEMETRY.name)).items():
        runtime.log.append(TELEMETRY.name, list(messages(lines)), partition)
