"""The stream that chaos runs on: made up from a seed, with everything that goes wrong on the way to a log.

Runs of about 20 events in groups of four, interleaved. One event in a hundred comes twice, two in a hundred come
too late or too early, some lines are no events, some are too large, some runs never end, and what producers say of
time jumps by hours. Order, repetitions and clocks must not matter; unusable lines must cost just themselves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from millstream.events import (
    AnyEvent,
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
from millstream.partition import partition_of
from millstream.ports import Message
from millstream.repair import MAX_EVENT_BYTES

GROUP = 4
JUMP_NS = 3_600_000_000_000


class Shape(NamedTuple):
    """How much of what."""

    runs: int = 1000
    events_a_run: int = 20
    repeated: float = 0.01
    displaced: float = 0.02
    poison: float = 0.002
    oversize: int = 3
    unfinished: float = 0.01
    a_record: int = 20


class Line(NamedTuple):
    """A line of telemetry and whose it is."""

    run: str
    value: bytes


def events(shape: Shape, seed: int, number: int) -> list[AnyEvent]:
    """One run; its answer is right in three of five."""
    chance = random.Random(f"{seed}/{number}")
    name = TrajectoryId(f"run-{seed}-{number:05d}")
    task, attempt = divmod(number, GROUP)
    steps = max(1, (shape.events_a_run - 4) // 2)
    right = chance.random() < 0.6

    def common(seq: int) -> dict:
        jump = chance.choice((0, 0, 0, -JUMP_NS, JUMP_NS))
        return {
            "id": EventId(f"{name}/{seq}"), "trajectory_id": name, "producer": "p", "seq": seq,
            "time_ns": 1_700_000_000_000_000_000 + jump + seq,
        }  # fmt: skip

    made: list[AnyEvent] = [
        TrajectoryStarted(
            **common(0), task=Task(id=TaskId(f"task-{task}"), question=f"what is {task}?", reference=str(task)),
            policy_version=1, lineage="policy", split="train", group=f"group-{seed}-{task}", attempt=attempt,
            group_size=GROUP,
        ),
        MessageReceived(**common(1), content=f"what is {task}?"),
    ]  # fmt: skip
    for step in range(steps):
        words = " ".join(f"{chance.randrange(10**9):09d}" for _ in range(6))
        call = ToolCall(id=f"c{step}", name="look", arguments={"at": words})
        made.append(ModelResponded(**common(len(made)), text="", reasoning=words, tool_calls=(call,)))
        made.append(ToolReturned(**common(len(made)), call_id=f"c{step}", name="look", output=words))
    answer = str(task) if right else str(task + 1 + attempt)
    made.append(ModelResponded(**common(len(made)), text=f"{answer}"))
    last = len(made)
    made.append(TrajectoryEnded(**common(last), final_answer=answer, last_seq={"p": last}))
    return made


def lines(shape: Shape, seed: int) -> list[Line]:
    """Everything in the order of sending."""
    chance = random.Random(seed)
    told: list[tuple[float, Line]] = []
    for number in range(shape.runs):
        made = events(shape, seed, number)
        kept = made[:-1] if chance.random() < shape.unfinished else made
        start = number * 4 + chance.random() * 40
        for at, event in enumerate(kept):
            line = Line(event.trajectory_id, msgspec.json.encode(event))
            moved = chance.uniform(-60, 60) if chance.random() < shape.displaced else 0.0
            told.append((start + at + moved, line))
            if chance.random() < shape.repeated:
                told.append((start + at + chance.uniform(0, 80), line))
            if chance.random() < shape.poison:
                told.append((start + at, Line(event.trajectory_id, line.value[: len(line.value) // 2])))
    told += [_oversize(shape, seed, chance) for _ in range(shape.oversize)]
    return [line for _, line in sorted(told, key=lambda one: one[0])]


def _oversize(shape: Shape, seed: int, chance: random.Random) -> tuple[float, Line]:
    """An event that no cutting of its texts makes small enough."""
    number = chance.randrange(shape.runs)
    event = events(shape, seed, number)[2]
    many = {f"key{n}": "x" * 50 for n in range(MAX_EVENT_BYTES // 50)}
    large = msgspec.structs.replace(
        event, id=EventId(f"{event.id}/large"), seq=1000, tool_calls=(ToolCall(id="c", name="look", arguments=many),)
    )
    return number * 4.0, Line(event.trajectory_id, msgspec.json.encode(large))


def messages(told: list[Line], partitions: int, a_record: int) -> Iterator[tuple[int, Message]]:
    """(partition, message): a record holds lines of one partition, as the SDK sends them."""
    waiting: dict[int, list[Line]] = {partition: [] for partition in range(partitions)}
    for line in told:
        partition = partition_of(line.run, partitions)
        waiting[partition].append(line)
        if len(waiting[partition]) >= a_record:
            yield partition, _message(waiting[partition])
            waiting[partition].clear()
    for partition, some in waiting.items():
        if some:
            yield partition, _message(some)


def _message(some: list[Line]) -> Message:
    return Message(some[0].run, b"\n".join(line.value for line in some), {"dialect": "millstream"})


def save(path: Path, told: list[tuple[int, Message]]) -> None:
    """Write the stream, for the producer's process."""
    path.write_bytes(msgspec.msgpack.encode(told))


def read(path: Path) -> list[tuple[int, Message]]:
    """What `save` wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[tuple[int, Message]])
