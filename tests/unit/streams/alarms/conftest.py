"""A small mill in memory: runs are graded, buffered, watched and asked to be trained on, by the real stages."""

from __future__ import annotations

import msgspec
import pytest

from millstream.events import (
    EventId,
    MessageReceived,
    ModelResponded,
    Task,
    TaskId,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.grader_events import AlarmCleared, AlarmRaised
from millstream.graders.registry import Grader, grader
from millstream.graders.reward import Formula
from millstream.graders.running import GraderSet
from millstream.ledger import policy_events
from millstream.policy import PolicyPromoted, PolicyRegistered, TrainingClaimed, TrainingFailed, TrainingRequested
from millstream.ports import Record
from millstream.settings import AlarmSettings, BufferSettings, RewardSettings, TrainerSettings, TriggerSettings
from millstream.streams.alarms import AlarmStage
from millstream.streams.buffering import BufferingStage
from millstream.streams.grading import GradingStage
from millstream.streams.trigger import Trigger
from millstream.trajectory import Trajectory


def make_run(identity, *, version=1, task=None, answer="done", calls=(), lineage="policy", end="done"):
    """A run of a version. A call is (tool, arguments): arguments that are a text could not be read."""
    run, task = TrajectoryId(identity), task or identity
    events = [
        TrajectoryStarted(
            id=EventId("s"), trajectory_id=run, task=Task(id=TaskId(task), question="Mend the file."), lineage=lineage,
            policy_version=version, group=f"{task}-{version}", group_size=2,
        ),
        MessageReceived(id=EventId("m"), trajectory_id=run, content="Mend the file."),
    ]  # fmt: skip
    for n, (tool, arguments) in enumerate(calls):
        known = isinstance(arguments, dict)
        call = ToolCall(
            id=f"c{n}", name=tool, arguments=arguments if known else None, arguments_raw="" if known else arguments,
            malformed=not known,
        )  # fmt: skip
        events.append(ModelResponded(id=EventId(f"a{n}"), trajectory_id=run, tool_calls=(call,)))
        events.append(ToolReturned(id=EventId(f"r{n}"), trajectory_id=run, call_id=call.id, name=tool, output="ok"))
    events.append(ModelResponded(id=EventId("f"), trajectory_id=run, text=answer))
    events.append(TrajectoryEnded(id=EventId("e"), trajectory_id=run, final_answer=answer, reason=end))
    return Trajectory(id=run, events=tuple(events), content_hash=identity)


class Mill:
    """One lineage with a reward, and everything that the stages said."""

    def __init__(self, graders, formula="reward", span=(0.0, 1.0), **alarms):
        reward = RewardSettings(formula=formula, low=span[0], high=span[1])
        self.grading = GradingStage(GraderSet([g.with_epoch(f"{g.name}@1", "builtin") for g in graders]))
        self.buffering = BufferingStage(BufferSettings(near_duplicate=1.0), reward)
        self.alarms = AlarmStage(
            AlarmSettings(**{"gold": "gold", "hold_s": 0, "reference_tasks": 100, **alarms}), reward, lineage="policy"
        )
        self.trigger = Trigger(
            TriggerSettings(min_groups=2, min_informative=1, wait_for_gate=False), TrainerSettings(),
            lineage="policy", namespace="default", graders=Formula.of(reward).names,
        )  # fmt: skip
        self.offset, self.ms = 0, 1000
        self.raised: list[AlarmRaised] = []
        self.asked: list[TrainingRequested] = []
        self.rewards: list[float | None] = []
        self.serve(1, None)

    def record(self, topic, value, **headers):
        self.offset += 1
        self.ms += 1
        return Record(topic, 0, self.offset, self.ms, "k", value, headers)

    def serve(self, version, expected):
        """Make a version the champion."""
        name = {"id": f"v{version}", "lineage": "policy", "version": version}
        self.tell(
            PolicyRegistered(**name, uri="u"), PolicyPromoted(**name, expected_champion=expected, reason="for the test")
        )

    def tell(self, *events):
        """Something happened to policies."""
        self._policy(b"\n".join(map(msgspec.json.encode, events)))

    def clear(self, alarm):
        self.tell(AlarmCleared(id="c", lineage="policy", alarm_id=alarm.id, reason="looked at it"))

    def run(self, trajectory):
        """One run, from its seal to whatever follows."""
        record = self.record("trajectories", msgspec.json.encode(trajectory), kind="trajectory")
        for output in self.grading.feed(record):
            self.graded(output.value)

    def graded(self, value):
        record = self.record("grades", value, kind="grades")
        for output in self.alarms.feed(record):
            self._policy(output.value)
        for output in self.buffering.feed(record):
            self._trigger(self.record("buffer-events", output.value))

    def _policy(self, value):
        record = self.record("policy-events", value)
        self.raised += [e for e in policy_events(record) if isinstance(e, AlarmRaised)]
        self.alarms.feed(record)
        self._trigger(record)
        for output in self.buffering.feed(record):
            self._trigger(self.record("buffer-events", output.value))

    def _trigger(self, record):
        """Every training that is asked for fails at once, so that the next may be asked for."""
        for output in self.trigger.feed(record):
            (request,) = policy_events(self.record("policy-events", output.value))
            self.asked.append(request)
            ids = {"lineage": "policy", "training_id": request.id, "token": "t"}
            self._policy(output.value)
            self.tell(TrainingClaimed(id="c" + request.id, **ids))
            self.tell(TrainingFailed(id="f" + request.id, reason="no trainer here", **ids))


@pytest.fixture(name="make_run")
def _make_run():
    return make_run


@pytest.fixture
def mill():
    """`Mill` with graders given as functions by name, or as graders with a range of their own."""

    def made(formula="reward", settings=None, **functions):
        graders = [one if isinstance(one, Grader) else grader(name=name)(one) for name, one in functions.items()]
        return Mill(graders, formula, **(settings or {}))

    return made
