"""Built-in graders and the grade stage on one core: trajectories a second, the share of each part.

The trajectories are like those of the example (a question, four calls, a numeric answer; 10 events).
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence

import msgspec
from graders_apart import own_rate, own_stage_rate, sandbox_lines

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
from millstream.graders.builtin import builtin
from millstream.graders.running import GraderSet
from millstream.ports import Record
from millstream.streams.facts import facts_of
from millstream.streams.grading import GradingStage
from millstream.trajectory import Trajectory

TARGET = 20_000
REPEATS = 5
CHUNK = 50
EVENTS = 10
SIZES = (1, 16, 128)
DEMO = ("correct", "format", "efficiency", "safety", "groundedness")


def made(number: int, answer: str, reference: str | float, sentence: str = "The answer is {}.") -> Trajectory:
    """One run, its answer in a sentence."""
    run = TrajectoryId(f"run-{number}")

    def event(n: int) -> dict[str, object]:
        return {"id": EventId(f"{number}-{n}"), "trajectory_id": run, "producer": "bench", "seq": n}

    calls = [
        ("search", {"query": f"harbor {number % 90}"}, f"harbor/{number % 90}/p4; harbor/19/p1"),
        ("load", {"document": f"harbor/{number % 90}/p4"}, "harbor FY20 FY21; revenue 717 471; cost 640 425"),
        ("calculator", {"expression": "(cost21-cost20)/cost20*100"}, f"#1={answer}"),
    ]
    events: list[AnyEvent] = [
        TrajectoryStarted(**event(0), task=Task(id=TaskId(f"task-{number}"), reference=reference)),  # type: ignore[arg-type]
        MessageReceived(**event(1), content="percent change in cost of harbor from FY20 to FY21?"),  # type: ignore[arg-type]
    ]
    for place, (tool, arguments, output) in enumerate(calls):
        call = ToolCall(id=f"c{place}", name=tool, arguments=arguments)
        events.append(ModelResponded(**event(len(events)), tool_calls=(call,), token_ids=tuple(range(20))))  # type: ignore[arg-type]
        events.append(ToolReturned(**event(len(events)), call_id=call.id, name=tool, output=output))  # type: ignore[arg-type]
    events.append(ModelResponded(**event(len(events)), text=sentence.format(answer)))  # type: ignore[arg-type]
    events.append(TrajectoryEnded(**event(len(events)), final_answer=sentence.format(answer)))  # type: ignore[arg-type]
    return Trajectory(id=run, events=tuple(events), content_hash=f"h{number}")


def rate(function: Callable[[Trajectory], object], runs: Sequence[bytes]) -> float:
    """Trajectories a second, the best of some passes. Each is decoded anew, a few at a time as a stage
    holds them, and only the grading is timed.
    """
    best = 0.0
    for _ in range(REPEATS):
        spent = 0.0
        for start in range(0, len(runs), CHUNK):
            fresh = [msgspec.json.decode(run, type=Trajectory) for run in runs[start : start + CHUNK]]
            begun = time.process_time()
            for trajectory in fresh:
                function(trajectory)
            spent += time.process_time() - begun
        best = max(best, len(runs) / spent)
    return best


def stage_rate(runs: Sequence[bytes], *names: str) -> float:
    """The whole stage on records: decode, graders, facts, encode."""
    stage = GradingStage(GraderSet([builtin(name) for name in names]), topic_id="bench")
    records = [Record("trajectories", 0, n, n, str(n), run, {"kind": "trajectory"}) for n, run in enumerate(runs)]
    best = 0.0
    for _ in range(REPEATS):
        begun = time.process_time()
        for record in records:
            stage.feed(record)
        best = max(best, len(records) / (time.process_time() - begun))
    return best


def main() -> int:
    draw = random.Random(7)
    numbers = [draw.uniform(-900, 900) for _ in range(2000)]
    by_number = [msgspec.json.encode(made(n, f"{value:.4f}", value)) for n, value in enumerate(numbers)]
    plain = [msgspec.json.encode(made(n, f"{value:.4f}", value, "{}")) for n, value in enumerate(numbers)]
    by_text = [msgspec.json.encode(made(n, f"Paris {n}", f"Paris {n}")) for n in range(2000)]
    slow = 0
    print(f"graders, trajectories a second a core (best of {REPEATS}; {len(by_number[0])} bytes each)")
    graded = [("numeric", plain, "a bare number"), ("numeric", by_number, "a number in a sentence")]
    graded += [
        ("correct", plain, "a bare number"),
        ("exact", by_text, "a sentence"),
        ("contains", by_text, "a sentence"),
    ]
    for name, runs, kind in graded:
        found = rate(builtin(name), runs)
        slow += found < TARGET
        print(f"    {name:14} {found:10,.0f}   {found / TARGET:5.2f} of the target {TARGET:,}; {kind}")
    for name in ("format", "efficiency", "safety", "groundedness"):
        print(f"    {name:14} {rate(builtin(name), by_number):10,.0f}")
    print(f"    {'facts':14} {rate(lambda t: facts_of(t, 0), by_number):10,.0f}")
    for size in SIZES:
        found = own_rate(by_number, size, REPEATS)
        slow += size == SIZES[-1] and found < TARGET
        share = f"{found / TARGET:5.2f} of the target; " if size == SIZES[-1] else ""
        print(f"    {'own, in child':14} {found:10,.0f}   {share}{size} in a call, both processes")
    one, five = stage_rate(by_number, "numeric"), stage_rate(by_number, *DEMO)
    print(f"    {'grade stage':14} {one:10,.0f}   decode, numeric, facts, encode: {one * EVENTS:,.0f} events/s")
    print(f"    {'grade stage':14} {five:10,.0f}   with {', '.join(DEMO)}: {five * EVENTS:,.0f} events/s")
    print(f"    {'grade stage':14} {own_stage_rate(by_number, REPEATS):10,.0f}   with one of one's own, both processes")
    if shutil.which("bwrap") is None:
        print("sandbox: not measured, bubblewrap is not installed")
        return 1 if slow else 0
    print("sandbox, one grade by the clock (bar: 10 ms in the median, warm)")
    for line in sandbox_lines():
        print(f"    {line}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
