"""A made-up stream of events: groups of runs, interleaved, with repetitions, displaced and unusable ones."""

from __future__ import annotations

import random

import msgspec

from millstream.events import (
    EventId,
    MessageReceived,
    ModelResponded,
    Task,
    TaskId,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.grade import GradeGiven
from millstream.ledger import read_all
from millstream.partition import partition_of
from millstream.ports import Message
from millstream.rollout import BufferDecision, GradingFinished, RolloutAdmitted, RolloutRefused
from millstream.trajectory import Trajectory

POISON = b'{"kind":"ModelResponded","id":"broken'


def events(runs, *, group=4, seed=0, unfinished=0):
    """(trajectory id, line) in the order of sending; ``unfinished`` runs lack their last event."""
    chance = random.Random(seed)
    told = []
    for n in range(runs):
        name = TrajectoryId(f"run-{seed}-{n:05d}")
        task, attempt = divmod(n, group)
        answer = str(task) if chance.random() < 0.6 else str(task + 1 + attempt)
        fields = {"trajectory_id": name, "producer": "p"}
        of_run = [
            TrajectoryStarted(
                id=EventId(f"{name}/0"),
                seq=0,
                task=Task(id=TaskId(f"task-{task}"), question=f"what is {task}?", reference=str(task)),
                policy_version=1,
                split="train",
                group=f"group-{seed}-{task}",
                attempt=attempt,
                group_size=group,
                **fields,
            ),
            MessageReceived(id=EventId(f"{name}/1"), seq=1, content=f"what is {task}?", **fields),
            ModelResponded(id=EventId(f"{name}/2"), seq=2, text=f"it is {answer}, says {name}", **fields),
            TrajectoryEnded(id=EventId(f"{name}/3"), seq=3, final_answer=answer, last_seq={"p": 3}, **fields),
        ]
        lines = [msgspec.json.encode(event) for event in of_run[: 3 if n < unfinished else 4]]
        start = n * 2 + chance.random() * 20
        told += [(start + at + (chance.random() * 8 if chance.random() < 0.02 else 0), name, line)
                 for at, line in enumerate(lines)]  # fmt: skip
        if chance.random() < 0.04:
            told.append((start + 9, name, chance.choice(lines)))
    return [(name, line) for _, name, line in sorted(told)]


def records(told, partitions, *, a_record=20, poison_every=0):
    """(partition, message) of the same events: each record holds events of one partition, as the SDK sends them.
    ``poison_every``: every so many events one line that is none.
    """
    waiting = {partition: [] for partition in range(partitions)}
    for n, (name, line) in enumerate(told):
        partition = partition_of(name, partitions)
        waiting[partition].append(line)
        if poison_every and n % poison_every == poison_every - 1:
            waiting[partition].append(POISON)
        if len(waiting[partition]) >= a_record:
            yield partition, Message(name, b"\n".join(waiting[partition]), {"dialect": "millstream"})
            waiting[partition].clear()
    for partition, lines in waiting.items():
        if lines:
            yield partition, Message("", b"\n".join(lines), {"dialect": "millstream"})


def send(log, told, **options):
    """Append a stream to a log, batched by partition."""
    batches = {}
    for partition, message in records(told, log.partitions("telemetry"), **options):
        batches.setdefault(partition, []).append(message)
    for partition, messages in batches.items():
        log.append("telemetry", messages, partition)


RUNS = 300
POISON_EVERY = 400
SETTINGS = """\
[graders]
enabled = ["numeric", "format", "efficiency"]
[reward]
formula = "numeric"
[buffer]
near_duplicate = 1.0
"""
_trajectory = msgspec.json.Decoder(Trajectory)
_grade = msgspec.json.Decoder(GradeGiven | GradingFinished)
_decision = msgspec.json.Decoder(BufferDecision)


def outcome(log):
    """What came of a stream, by content: trajectories, grades, rewards and refusals."""

    def lines(topic, decoder):
        found = [r for p in range(log.partitions(topic)) for r in read_all(log, topic, p)]
        return [decoder.decode(line) for r in found for line in r.value.split(b"\n") if line]

    decisions = lines("buffer-events", _decision)
    return {
        "trajectories": sorted(
            (t.id, t.revision, t.status, t.content_hash) for t in lines("trajectories", _trajectory)
        ),
        "grades": sorted((g.id, repr(g.grade)) for g in lines("grades", _grade) if isinstance(g, GradeGiven)),
        "rewards": sorted(
            (d.trajectory_id, d.reward, d.advantage) for d in decisions if isinstance(d, RolloutAdmitted)
        ),
        "refusals": sorted((d.trajectory_id, d.reason) for d in decisions if isinstance(d, RolloutRefused)),
        "dead letters": sorted(str(line.get("reason")) for line in lines("dead-letters", msgspec.json.Decoder())),
    }
