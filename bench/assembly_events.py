"""A file of events for the assembly benchmark: about 1 KB each, about 20 a trajectory, 1 % sent twice,
2 % displaced by up to 200 places, 400 trajectories open at a time. Deterministic for a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from millstream.codec import encode
from millstream.events import (
    AnyEvent,
    EventId,
    Interface,
    MessageReceived,
    ModelResponded,
    Task,
    TaskId,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
    Usage,
)

BORN_MS = 1_750_000_000_000
"""Log time of the first event; an event takes `STEP_MS` of log time."""
STEP_MS = 500
WINDOW = 400
WORDS = (
    "query", "revenue", "table", "search", "report", "quarterly", "margin", "tool", "result", "step", "answer",
    "compute", "load", "file", "page", "ratio", "total", "net", "income", "assets", "delta", "policy", "token",
    "error", "retry", "plan", "cite", "section", "footnote", "column", "row", "value", "percent", "change",
)  # fmt: skip


def write(path: Path, events: int, seed: int = 7) -> int:
    """Write about ``events`` lines; how many there are."""
    count = 0
    with path.open("wb", buffering=1 << 20) as file:
        for line in _displaced(random.Random(seed), events):
            file.write(line + b"\n")
            count += 1
    return count


def _displaced(rng: random.Random, events: int) -> Iterator[bytes]:
    late: list[tuple[int, bytes]] = []
    count = 0
    for line in _lines(rng, events):
        luck = rng.random()
        if luck < 0.02:
            late.append((count + rng.randrange(1, 200), line))
        else:
            count += 1
            yield line
        if luck > 0.99:
            count += 1
            yield line
        late.sort()
        while late and late[0][0] <= count:
            count += 1
            yield late.pop(0)[1]
    yield from (line for _, line in late)


def _lines(rng: random.Random, events: int) -> Iterator[bytes]:
    active: list[Iterator[bytes]] = []
    started = 0
    while True:
        while len(active) < WINDOW and started < events:
            length = max(4, round(rng.gauss(20, 5)))
            active.append(_run(rng, length, BORN_MS + started * STEP_MS))
            started += length
        if not active:
            return
        place = rng.randrange(len(active))
        line = next(active[place], None)
        if line is None:
            active[place] = active[-1]
            active.pop()
        else:
            yield line


def _run(rng: random.Random, length: int, born_ms: int) -> Iterator[bytes]:
    name = _uuid7(rng, born_ms)
    for seq in range(length):
        yield encode(_event(rng, name, seq, length, born_ms + seq * WINDOW * STEP_MS))


def _uuid7(rng: random.Random, ms: int) -> str:
    tail = f"{rng.getrandbits(74):019x}"
    head = f"{ms:012x}"
    return f"{head[:8]}-{head[8:]}-7{tail[:3]}-a{tail[3:6]}-{tail[6:18]}"


CORPUS = " ".join(random.Random(1).choices(WORDS, k=100_000))


def _text(rng: random.Random, size: int) -> str:
    start = rng.randrange(len(CORPUS) - size)
    return CORPUS[start : start + size]


def _event(rng: random.Random, name: str, seq: int, length: int, ms: int) -> AnyEvent:
    envelope = {
        "id": EventId(f"{rng.getrandbits(128):032x}"),
        "trajectory_id": TrajectoryId(name),
        "producer": f"prod-{name[-2:]}",
        "seq": seq,
        "time_ns": ms * 1_000_000,
        "agent": "finqa-agent",
        "subject": "acme",
    }
    if seq == 0:
        task = Task(
            id=TaskId(f"finqa-{rng.randrange(8000)}"), question=_text(rng, 520), split_key="world-7", family="ratio"
        )
        return TrajectoryStarted(
            **envelope,
            task=task,
            lineage="policy",
            policy_version=rng.randrange(5),
            interface=Interface(tools="a" * 32),
        )
    if seq == length - 1:
        return TrajectoryEnded(**envelope, final_answer=_text(rng, 700), last_seq={envelope["producer"]: seq})
    if seq == 1:
        return MessageReceived(**envelope, content=_text(rng, 750))
    if seq % 2 or seq == length - 2:
        return ToolReturned(
            **envelope, call_id=f"c{seq - 1}", name="search", output=_text(rng, 720), duration_ns=rng.randrange(10**9)
        )
    call = ToolCall(
        id=f"c{seq}",
        name=rng.choice(["search", "load", "calculator"]),
        arguments={"q": _text(rng, 260), "k": seq, "filters": [_text(rng, 24)]},
    )
    usage = Usage(input_tokens=rng.randrange(9000), output_tokens=rng.randrange(900), cost=round(rng.random(), 6))
    return ModelResponded(
        **envelope,
        reasoning=_text(rng, 240),
        tool_calls=(call,),
        usage=usage,
        finish_reason="tool_calls",
        model="qwen2.5-0.5b",
        temperature=0.7,
    )
