"""A small mill whose grader can be mended: real stages over the embedded log, and hands for policies."""

from __future__ import annotations

import msgspec
import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.codec import encode_lines
from millstream.console.audit import audit
from millstream.events import FeedbackGiven, MessageReceived, ModelResponded, Task, TrajectoryEnded, TrajectoryStarted
from millstream.grade import fail, score
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.ledger import LedgerReader, append_policy_events, read_all
from millstream.policy import PolicyPromoted, PolicyRegistered, TrainingClaimed, TrainingFinished, TrainingRequested
from millstream.ports import Message
from millstream.rollout import BufferDecision
from millstream.settings import BufferSettings, RewardSettings, Settings
from millstream.streams.assembly import Assembler
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.buffering import BufferingStage
from millstream.streams.driving import step
from millstream.streams.grading import GradingStage
from millstream.streams.regrading import Regrading
from millstream.streams.runner import StageRunner

DECISIONS = msgspec.json.Decoder(BufferDecision)


def told(t):
    """The answer says what the grade is."""
    return fail("the tool broke") if t.final_answer == "broken" else score(float(t.final_answer))


def turned(t):
    """The mended grader: right and wrong are the other way round."""
    return fail("the tool broke") if t.final_answer == "broken" else score(1.0 - float(t.final_answer))


def epoch(version, function=told):
    return Grader("correct", function, epoch=f"correct@{version}")


class Mill:
    def __init__(self, path, formula="correct"):
        self.clock = ManualClock()
        self.embedded = open_sqlite(path, clock=self.clock)
        self.log, self.store = self.embedded
        self.settings = Settings(
            reward=RewardSettings(formula=formula), buffer=BufferSettings(near_duplicate=1.0, group_timeout_s=60)
        )
        self.runners = self.build(epoch(1))

    def build(self, grader):
        """The stages as they start with a grader."""
        graders = GraderSet([grader, Grader("always", lambda _: 1.0, epoch="always@1")])
        return [
            StageRunner(
                Assembler(self.settings.assembly, topic_id=self.log.topic_id("telemetry")), self.log, self.store
            ),
            StageRunner(GradingStage(graders, topic_id=self.log.topic_id("trajectories")), self.log, self.store),
            StageRunner(
                BufferingStage(self.settings.buffer, self.settings.reward), self.log, self.store, every_partition=True
            ),
        ]

    def run(self):
        while step(self.runners):
            pass

    def again(self, grader):
        """Stop cleanly and start with another grader."""
        for runner in self.runners:
            runner.close()
        self.runners = self.build(grader)
        self.run()

    def play(self, group, answers, **more):
        """A group of runs, one an answer."""
        for n, answer in enumerate(answers):
            self.send(*events(f"{group}{n}", answer, group, len(answers), **more))
        self.run()

    def send(self, *sent):
        self.log.append("telemetry", [Message(sent[0].trajectory_id, encode_lines(sent), {"dialect": "millstream"})])

    def feedback(self, name, value):
        self.send(FeedbackGiven(id=f"{name}-{value}", trajectory_id=name, value=value))
        self.run()

    def regrading(self, grader, **more):
        recalls = LedgerReader(self.log).refresh().recalls
        return Regrading(self.log, GraderSet([grader]), recalls=recalls, **more)

    def regrade(self, grader, **more):
        """Regrade, and let the stages follow."""
        report = self.regrading(grader, **more).append()
        self.run()
        return report

    def decisions(self):
        return [
            DECISIONS.decode(line)
            for record in read_all(self.log, "buffer-events")
            for line in (record.value or b"").split(b"\n")
        ]

    @property
    def buffer(self):
        """The buffer as a fold of its decisions."""
        ledger = BufferLedger()
        for decision in self.decisions():
            ledger.apply(decision)
        return ledger

    def rewards(self):
        """What is in the buffer: run → reward."""
        return {e.trajectory_id: e.reward for e in self.buffer.entries.values()}

    def audit(self):
        return audit(self.log, self.store, self.settings)

    def policy(self, *sent):
        append_policy_events(self.log, sent)
        self.run()

    def base(self):
        """Version 1, champion."""
        self.policy(
            PolicyRegistered(id="r1", lineage="policy", version=1, uri="base"),
            PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap"),
        )

    def train(self, version, parent=1, rollout_ids=None, *, finish=True):
        """A training on what is in the buffer, and the version that it makes."""
        name = f"training-{version}"
        ids = tuple(sorted(self.buffer.entries)) if rollout_ids is None else rollout_ids
        common = {"lineage": "policy"}
        asked = TrainingRequested(
            id=name, parent=parent, rollout_ids=ids, algorithm="sft", seed=0, namespace="default", reason="", **common
        )
        self.policy(asked, TrainingClaimed(id=f"{name}-c", training_id=name, token="t", **common))
        if finish:
            self.finish(version, parent)

    def finish(self, version, parent=1):
        name = f"training-{version}"
        common = {"lineage": "policy"}
        self.policy(
            PolicyRegistered(id=f"r{version}", version=version, uri="x", parent=parent, training_id=name, **common),
            TrainingFinished(id=f"{name}-f", training_id=name, token="t", version=version, manifest="m", **common),
        )

    def promote(self, version, expected):
        self.policy(
            PolicyPromoted(
                id=f"p{version}", lineage="policy", version=version, expected_champion=expected, reason="better"
            )
        )

    def ledger(self):
        return LedgerReader(self.log).refresh()


def events(name, answer, group="", size=1, *, version=1, family="", split="train", task="", world=""):
    common = {"trajectory_id": name, "producer": "sdk"}
    asked = Task(id=task or group or name, question="How much?", reference="1.0", family=family, split_key=world)
    return [
        TrajectoryStarted(
            id=f"{name}-0",
            seq=0,
            task=asked,
            group=group,
            group_size=size,
            lineage="policy",
            policy_version=version,
            split=split,
            **common,
        ),
        MessageReceived(id=f"{name}-1", seq=1, content="How much?", **common),
        ModelResponded(id=f"{name}-2", seq=2, text=f"It is {answer}, as {name} says.", **common),
        TrajectoryEnded(id=f"{name}-3", seq=3, final_answer=answer, last_seq={"sdk": 3}, **common),
    ]


@pytest.fixture
def mill(tmp_path):
    made = Mill(tmp_path / "log.db")
    yield made
    made.embedded.close()


@pytest.fixture
def grader():
    """A version of the grader `correct`: ``grader(2, mended=True)``."""
    return lambda version, *, mended=False: epoch(version, turned if mended else told)
