"""What assembly puts out: sealed trajectories, feedback on its way, and what it could not use."""

from __future__ import annotations

from millstream.ports import Output, Record
from millstream.streams.assembly_run import Line
from millstream.streams.dead_letters import Place, dead_letter
from millstream.topics import TELEMETRY, TRAJECTORIES


class Effects:
    """Collects the outputs of one record at a time."""

    def __init__(self, stage: str, topic_id: str) -> None:
        self.stage = stage
        self.topic_id = topic_id
        self.record = Record(TELEMETRY.name, 0, -1, 0, "", None)
        self.outputs: list[Output] = []

    def begin(self, record: Record) -> None:
        """Start on a record with no outputs."""
        self.record = record
        self.outputs = []

    def sealed(self, trajectory_id: str, body: bytes) -> None:
        """One revision of a trajectory."""
        self.outputs.append(Output(TRAJECTORIES.name, trajectory_id, body, {"kind": "trajectory"}))

    def feedback(self, trajectory_id: str, raw: bytes) -> None:
        """Feedback, which is joined to its trajectory by the graders."""
        self.outputs.append(Output(TRAJECTORIES.name, trajectory_id, raw, {"kind": "feedback"}))

    def refused(self, reason: str, detail: str, line: Line, trajectory_id: str = "") -> None:
        """A line for the dead letters; it may come from an earlier record of this partition."""
        raw, offset, index = line
        self.outputs.append(
            dead_letter(
                self.stage,
                self.record,
                Place(offset, index),
                raw,
                reason=reason,
                detail=detail,
                trajectory_id=trajectory_id,
                topic_id=self.topic_id,
            )
        )
