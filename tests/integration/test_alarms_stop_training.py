"""An alarm stops training on a fooled reward, through the stages of `millstream up`, and only until it is cleared."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path

import pytest

from millstream.bootstrap import Runtime
from millstream.bootstrap.examining import clear_alarm
from millstream.bootstrap.pipeline import Pipeline
from millstream.capture.memory import MemoryRecorder
from millstream.codec import encode_lines
from millstream.events import Task, TaskId
from millstream.ledger import LedgerReader, append_policy_events
from millstream.loading import load
from millstream.policy import PolicyPromoted, PolicyRegistered
from millstream.ports import Message

BEFORE, AFTER = range(30), range(30, 60)
"""Groups that come too few for a training, and those with which there are enough."""
SETTINGS = """
[policy]
base = "{base}"
[graders]
enabled = ["exact", "contains"]
[reward]
formula = "contains"
[trigger]
min_groups = 40
min_informative = 1
[buffer]
near_duplicate = 1.0
[alarms]
gold = "exact"
hold_s = 0
enabled = {alarms}
"""


def play(runtime: Runtime, right: str, groups: range) -> None:
    """Groups of two runs, told by the SDK's recorder: one with this answer, one that has none."""
    recorder = MemoryRecorder()
    for n in groups:
        for attempt, answer in enumerate((right, "I do not know.")):
            task = Task(id=TaskId(f"t{n}"), question="Which city?", reference="Paris")
            with recorder.start_run(
                task,
                policy_version=1,
                lineage="policy",
                group=f"g{n}",
                group_size=2,
                attempt=attempt,
                split="train",
                trajectory_id=f"r{n}-{attempt}",
            ) as run:
                run.model(text=answer, token_ids=[1, 2], logprobs=[-0.1, -0.1], logprob_kind="processed")
                run.end(final_answer=answer)
            runtime.log.append("telemetry", [Message(run.id, encode_lines(recorder.take()), {"dialect": "millstream"})])


def asked(runtime: Runtime) -> int:
    """How many trainings the stream has asked for."""
    return len(LedgerReader(runtime.log).refresh().trainings)


class Loop(Runtime):
    """A runtime whose stages and buffer run to the end of what there is; nobody trains."""

    def go(self) -> None:
        """Once more."""
        self.stages.run(threading.Event(), until_idle=True)

    @cached_property
    def stages(self) -> Pipeline:
        """The pipeline of `up`, without those who train and judge."""
        made = self.pipeline()
        made.workers = []
        return made


@pytest.fixture
def runtime(tmp_path: Path, root: Path, request: pytest.FixtureRequest):
    """A data directory with a champion."""
    file = tmp_path / "millstream.toml"
    base = root / "examples" / "finqa" / "base"
    file.write_text(SETTINGS.format(base=base, alarms=getattr(request, "param", "true")), encoding="utf-8")
    with Loop(load(file, environ={})) as made:
        ids = {"lineage": "policy", "version": 1}
        append_policy_events(
            made.log,
            [
                PolicyRegistered(id="r", uri=str(base), **ids),
                PolicyPromoted(id="p", expected_champion=None, reason="base", **ids),
            ],
        )
        yield made


def test_nothing_is_trained_on_a_fooled_reward_until_somebody_looked(runtime: Loop) -> None:
    """The reward pays a list that holds the answer, gold does not: the alarm comes before the training, names runs
    that were paid, and stops it; cleared, the same groups are asked for.
    """
    play(runtime, "Paris or Lyon or Rome", BEFORE)
    runtime.go()
    play(runtime, "Paris or Lyon or Rome", AFTER)
    runtime.go()
    (alarm,) = LedgerReader(runtime.log).refresh().graders.alarms.values()
    assert (alarm.alarm, alarm.version, alarm.stops) == ("hack", 1, True)
    assert alarm.runs <= 2 * len(BEFORE)
    assert alarm.trajectory_ids
    assert all(run.endswith("-0") for run in alarm.trajectory_ids)
    assert runtime.buffer().stats().rollouts == 120
    assert asked(runtime) == 0
    clear_alarm(runtime, alarm.id, "the reward was mended")
    runtime.go()
    assert asked(runtime) == 1


@pytest.mark.parametrize(
    ("runtime", "answer"), [("true", "Paris"), ("false", "Paris or Lyon or Rome")], indirect=["runtime"]
)
def test_an_honest_reward_is_trained_on_and_so_is_a_fooled_one_that_nobody_watches(runtime: Loop, answer: str) -> None:
    """The same runs, settings and stages: it is the alarm that makes the difference."""
    play(runtime, answer, BEFORE)
    runtime.go()
    assert asked(runtime) == 0
    play(runtime, answer, AFTER)
    runtime.go()
    assert LedgerReader(runtime.log).refresh().graders.alarms == {}
    assert asked(runtime) == 1
