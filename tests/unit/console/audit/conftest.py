"""A small mill on one file: real stages over the embedded log, with hands to break its books."""

from __future__ import annotations

import sqlite3

import msgspec
import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.codec import encode_lines
from millstream.events import FeedbackGiven, MessageReceived, ModelResponded, Task, TrajectoryEnded, TrajectoryStarted
from millstream.grade import GradeGiven, fail, score
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.ports import Message
from millstream.rollout import BufferDecision, GradingFinished
from millstream.settings import BufferSettings, RewardSettings, Settings
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.driving import step
from millstream.streams.grading import GradingStage
from millstream.streams.runner import StageRunner

GRADE_LINES = msgspec.json.Decoder(GradeGiven | GradingFinished)
DECISIONS = msgspec.json.Decoder(BufferDecision)


def graded(t):
    """The answer says what the grade is."""
    return fail("the tool broke") if t.final_answer == "broken" else score(float(t.final_answer))


class Mill:
    def __init__(self, path):
        self.path = path
        self.clock = ManualClock()
        self.embedded = open_sqlite(path, clock=self.clock)
        self.log, self.store = self.embedded
        self.settings = Settings(
            reward=RewardSettings(formula="correct"), buffer=BufferSettings(near_duplicate=1.0, group_timeout_s=60)
        )
        self.runners = self.build()

    def build(self):
        graders = GraderSet(
            [Grader("correct", graded, epoch="correct@1"), Grader("always", lambda _: 1.0, epoch="always@1")]
        )
        return [
            StageRunner(
                Assembler(self.settings.assembly, topic_id=self.log.topic_id("telemetry")), self.log, self.store
            ),
            StageRunner(GradingStage(graders, topic_id=self.log.topic_id("trajectories")), self.log, self.store),
            StageRunner(BufferingStage(self.settings.buffer, self.settings.reward), self.log, self.store),
        ]

    def run(self):
        while step(self.runners):
            pass

    def events(self, name, answer="1.0", group="", size=1):
        task = Task(id=group or name, question="How much?", reference="1.0")
        common = {"trajectory_id": name, "producer": "sdk"}
        return [
            TrajectoryStarted(
                id=f"{name}-0",
                seq=0,
                task=task,
                group=group,
                group_size=size,
                lineage="policy",
                policy_version=1,
                **common,
            ),
            MessageReceived(id=f"{name}-1", seq=1, content="How much?", **common),
            ModelResponded(id=f"{name}-2", seq=2, text=f"It is {answer}, as {name} says.", **common),
            TrajectoryEnded(id=f"{name}-3", seq=3, final_answer=answer, last_seq={"sdk": 3}, **common),
        ]

    def send(self, *events, dialect="millstream"):
        self.log.append("telemetry", [Message(events[0].trajectory_id, encode_lines(events), {"dialect": dialect})])

    def raw(self, value, dialect="millstream"):
        self.log.append("telemetry", [Message("k", value, {"dialect": dialect})])

    def feedback(self, name, value=1.0, identity="f"):
        event = FeedbackGiven(id=f"{name}-{identity}", trajectory_id=name, value=value)
        self.send(event)

    def sql(self, statement, *values):
        with sqlite3.connect(self.path) as connection:
            connection.execute(statement, values)
        connection.close()

    def rewrite(self, topic, change):
        """Write a topic anew: ``change(value)`` is the new value, None drops the record, a list more, none
        of them with an outbox number (those would be repetitions, which every reader leaves out).
        """
        records, offset = [], 0
        while offset < self.log.bounds(topic)[1]:
            records += self.log.read(topic, 0, offset)
            offset = len(records)
        self.sql("DELETE FROM chunk WHERE topic = ?", topic)
        self.sql("UPDATE head SET next = 0 WHERE topic = ?", topic)
        for record in records:
            made = change(record.value)
            several = isinstance(made, list)
            headers = {k: v for k, v in record.headers.items() if not several or k != "n"}
            for value in made if several else [made]:
                if value is not None:
                    self.log.append(topic, [Message(record.key, value, headers)])
        for position in self.store.positions():
            if position.topic == topic:
                self.sql(
                    "UPDATE position SET next = ? WHERE stage = ? AND slot = ?",
                    self.log.bounds(topic)[1],
                    position.stage,
                    f"{topic}:0",
                )


@pytest.fixture
def mill(tmp_path):
    made = Mill(tmp_path / "log.db")
    yield made
    made.embedded.close()


@pytest.fixture
def busy_mill(mill):
    """Some of everything that can happen to an event, a trajectory, a grade and a rollout."""
    for name, answer in (("a1", "1.0"), ("a2", "0.0"), ("a3", "broken")):
        mill.send(*mill.events(name, answer, group="a", size=3))
    for name in ("b1", "b2"):
        mill.send(*mill.events(name, "1.0", group="b", size=2))
    mill.send(*mill.events("a1", "1.0", group="a", size=3)[:2])
    mill.send(*mill.events("waiting", group="c", size=2))
    mill.send(*mill.events("open")[:2])
    conflicting = mill.events("late")
    mill.send(*conflicting[:2], msgspec.structs.replace(conflicting[1], id="late-1b"), *conflicting[2:])
    mill.send(msgspec.structs.replace(conflicting[1], id="late-9", seq=9))
    mill.feedback("a1")
    mill.raw(b"{not json}\n" + encode_lines(mill.events("single")))
    mill.raw(b"")
    mill.raw(b"whatever", dialect="songs")
    mill.log.append("telemetry", [Message("k", None)])
    mill.run()
    return mill
