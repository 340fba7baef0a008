"""Make the example files: ``python -m millstream.examples.data.make [FOLDER]``. The same bytes each time.

A small agent answers questions about the invented company Larkspur with a calculator. Its attempts are
told in two formats, ``runs.ndjson`` (Millstream events) and ``chats.jsonl`` (OpenAI chat messages with
rewards), and its answers stand alone in ``answers.jsonl`` beside ``tasks.jsonl``, for `millstream grade`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from millstream.codec import digest, encode_lines
from millstream.events import (
    AnyEvent,
    EventId,
    FeedbackGiven,
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

FOLDER = Path(__file__).parent
_SYSTEM = "You answer questions about Larkspur Ltd. Use the calculator for arithmetic, then give the number alone."
_REPORT = "Larkspur Ltd, in millions: revenue 2023 482.5, 2022 455.0; costs 2023 371.9, 2022 364.2; staff 2023 1,240."
_BEGAN_NS = 1_750_000_000_000_000_000
_TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


class Attempt(Struct, frozen=True):
    """One try: the call it made (None: none), what the calculator said, the answer, whether it was right."""

    call: str | None
    output: str
    answer: str
    right: bool
    reason: Literal["done", "limit"] = "done"


class Case(Struct, frozen=True):
    """A task and its attempts."""

    id: str
    question: str
    reference: float
    attempts: tuple[Attempt, ...]


CASES = (
    Case(
        "larkspur-growth",
        "By how many percent did revenue grow from 2022 to 2023? One decimal.",
        6.0,
        (
            Attempt('{"expression": "(482.5 - 455.0) / 455.0 * 100"}', "6.043956043956044", "6.0", right=True),
            Attempt('{"expression": "(482.5 - 455.0) / 482.5 * 100"}', "5.699481865284974", "5.7", right=False),
        ),
    ),
    Case(
        "larkspur-profit",
        "What was the profit of 2023, in millions?",
        110.6,
        (
            Attempt('{"expression": "482.5 - 371.9"}', "110.6", "110.6", right=True),
            Attempt('{"expression": "482.5 - 371.9', "error: the arguments are no JSON", "118.3", right=False),
        ),
    ),
    Case(
        "larkspur-per-head",
        "What was the revenue of 2023 for each of the staff, in thousands? One decimal.",
        389.1,
        (
            Attempt('{"expression": "482.5 * 1000 / 1240"}', "389.1129032258065", "389.1", right=True),
            Attempt(None, "", "", right=False, reason="limit"),
        ),
    ),
)


def _task(case: Case) -> Task:
    return Task(
        id=TaskId(case.id),
        question=case.question,
        reference=case.reference,
        split_key="larkspur-2023",
        family="arithmetic",
    )


def _call(case: Case, number: int, attempt: Attempt) -> tuple[ToolCall, ...]:
    if attempt.call is None:
        return ()
    identity = f"call-{case.id}-{number}"
    try:
        arguments = msgspec.json.decode(attempt.call)
    except msgspec.DecodeError:
        return (ToolCall(id=identity, name="calculator", arguments_raw=attempt.call, malformed=True),)
    return (ToolCall(id=identity, name="calculator", arguments=arguments),)


def run_events(case: Case, number: int, attempt: Attempt) -> list[AnyEvent]:
    """The events of one attempt, in order, its feedback last."""
    run = TrajectoryId(f"example-{case.id}-{number}")
    told: list[AnyEvent] = []

    def tell(kind: Any, **fields: Any) -> None:
        seq = len(told)
        stamp = {"id": EventId(digest(run, seq)), "trajectory_id": run, "producer": "example", "seq": seq}
        told.append(kind(**stamp, time_ns=_BEGAN_NS + number * 60_000_000_000 + seq * 1_500_000_000, **fields))

    size = len(case.attempts)
    tell(
        TrajectoryStarted,
        task=_task(case),
        split="train",
        group=case.id,
        attempt=number,
        group_size=size,
        tools=(_TOOL,),
        source="example",
    )
    tell(MessageReceived, role="system", content=_SYSTEM)
    tell(MessageReceived, role="user", content=f"{_REPORT}\n{case.question}")
    calls = _call(case, number, attempt)
    if calls:
        tell(
            ModelResponded, tool_calls=calls, usage=Usage(input_tokens=96, output_tokens=24), finish_reason="tool_calls"
        )
        failed = attempt.output.startswith("error")
        result = {"error": attempt.output} if failed else {"output": attempt.output}
        tell(ToolReturned, call_id=calls[0].id, name="calculator", duration_ns=1_000_000, **result)
    text = attempt.answer or "Let me look at the staff of each year once more, and at"
    finish = "length" if attempt.reason == "limit" else "stop"
    tell(ModelResponded, text=text, usage=Usage(input_tokens=128, output_tokens=12), finish_reason=finish)
    last = {"example": len(told)}
    tell(TrajectoryEnded, reason=attempt.reason, final_answer=attempt.answer or None, last_seq=last)
    told.append(
        FeedbackGiven(
            id=EventId(digest(run, "feedback")),
            trajectory_id=run,
            producer="example",
            time_ns=_BEGAN_NS + 3_600_000_000_000,
            source="environment",
            value=float(attempt.right),
        )
    )
    return told


def chat_row(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    """One attempt as a row of OpenAI chat messages."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": f"{_REPORT}\n{case.question}"},
    ]
    if attempt.call is not None:
        identity = f"call_{case.id}_{number}"
        function = {"name": "calculator", "arguments": attempt.call}
        asked = {"id": identity, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [asked]})
        messages.append({"role": "tool", "tool_call_id": identity, "content": attempt.output})
    messages.append({"role": "assistant", "content": attempt.answer or "Let me look at the staff of each year"})
    return {
        "task_id": case.id,
        "question": case.question,
        "reference": case.reference,
        "split_key": "larkspur-2023",
        "attempt": number,
        "reward": float(attempt.right),
        "end_reason": attempt.reason,
        "tools": [_TOOL],
        "messages": messages,
    }


def _attempts() -> Iterator[tuple[Case, int, Attempt]]:
    for case in CASES:
        for number, attempt in enumerate(case.attempts):
            yield case, number, attempt


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def contents() -> dict[str, bytes]:
    """Every file's name and bytes."""
    tasks = [msgspec.to_builtins(_task(case)) for case in CASES]
    answers = [
        {"id": case.id, "answer": f"The answer is {attempt.answer}."}
        for case, _, attempt in _attempts()
        if attempt.answer
    ]
    return {
        "runs.ndjson": b"".join(encode_lines(run_events(*attempt)) for attempt in _attempts()),
        "chats.jsonl": _json_lines([chat_row(*attempt) for attempt in _attempts()]),
        "tasks.jsonl": _json_lines(tasks),
        "answers.jsonl": _json_lines(answers),
    }


def main() -> None:
    """Write the files into the folder named on the command line, else beside this script."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents().items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
