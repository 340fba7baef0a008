"""Runs that a tiny policy can be trained on, and the settings for it: for tests of what happens to trained versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millstream.codec import encode_lines
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
from millstream.ports import Message

GROUPS, SIZE = 4, 2
SETTINGS = """\
[policy]
base = "{base}"
[graders]
enabled = ["numeric"]
[reward]
formula = "numeric"
[buffer]
near_duplicate = 1.0
[trigger]
min_groups = 4
min_informative = 1
wait_for_gate = false
[trainer]
tokens_source = "rendered"
epochs = 1
[gate]
enabled = false
"""


def settings(root: Path) -> str:
    """A training for every `GROUPS` groups, of the example's base, and no gate."""
    return SETTINGS.format(base=root / "examples" / "finqa" / "base")


def runs(turn: int) -> Iterator[Message]:
    """`GROUPS` groups of `SIZE` runs, one of each group right; each ``turn`` gives others."""
    for number in range(turn * GROUPS * SIZE, (turn + 1) * GROUPS * SIZE):
        name, (task, attempt) = TrajectoryId(f"run-{number}"), divmod(number, SIZE)
        common = {"trajectory_id": name, "producer": "p"}
        started = TrajectoryStarted(
            id=EventId(f"{name}/0"),
            seq=0,
            task=Task(id=TaskId(f"t-{task}"), question=f"what is {task}?", reference=str(task)),
            group=f"g-{task}",
            attempt=attempt,
            group_size=SIZE,
            lineage="policy",
            policy_version=1,
            split="train",
            **common,
        )
        events = [
            started,
            MessageReceived(id=EventId(f"{name}/1"), seq=1, content=f"what is {task}?", **common),
            ModelResponded(id=EventId(f"{name}/2"), seq=2, text=f"{task + attempt} says {name}", **common),
            TrajectoryEnded(
                id=EventId(f"{name}/3"), seq=3, final_answer=str(task + attempt), last_seq={"p": 3}, **common
            ),
        ]
        yield Message(name, encode_lines(events), {"dialect": "millstream"})


def blocks(page: Path, title: str) -> list[str]:
    """The shell blocks of a page's section, as they stand."""
    import re

    _, _, rest = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    section = rest.partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
