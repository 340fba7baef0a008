"""Make the example files: ``python -m millstream.examples.data.make [FOLDER]``. The same bytes each time.

A small agent answers questions about the invented company Larkspur with a calculator. Its attempts are
told in two formats, ``runs.ndjson`` (Millstream events) and ``chats.jsonl`` (OpenAI chat messages with
rewards), and its answers stand alone in ``answers.jsonl`` beside ``tasks.jsonl``, for `millstream grade`.
``hosted_rows.jsonl`` and ``hosted_grader.json`` are what people have who come from the hosted grading service.
The other files tell some of the attempts as other tools would (`others`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

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
from millstream.examples.data import others, recorded
from millstream.examples.data.cases import CASES, REPORT, SYSTEM, TOOL, Attempt, Case

FOLDER = Path(__file__).parent
_BEGAN_NS = 1_750_000_000_000_000_000


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
        tools=(TOOL,),
        source="example",
    )
    tell(MessageReceived, role="system", content=SYSTEM)
    tell(MessageReceived, role="user", content=f"{REPORT}\n{case.question}")
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
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{REPORT}\n{case.question}"},
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
        "tools": [TOOL],
        "messages": messages,
    }


def hosted_row(case: Case) -> dict[str, Any]:
    """A case as a training row of the hosted service, with what the model said each time beside it."""
    said = [attempt.answer or "Let me look at the staff of each year" for attempt in case.attempts]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{REPORT}\n{case.question}"}]
    return {"messages": messages, "question": case.question, "reference_answer": str(case.reference), "samples": said}


def hosted_grader() -> dict[str, Any]:
    """A grader's JSON as people wrote it for the hosted service."""
    said, right = "{{ sample.output_text }}", "{{ item.reference_answer }}"
    exact = {"type": "string_check", "name": "exact", "input": said, "reference": right, "operation": "ilike"}
    close = {
        "type": "text_similarity",
        "name": "close",
        "input": said,
        "reference": right,
        "evaluation_metric": "fuzzy_match",
    }
    graders = {"exact": exact, "close": close}
    return {"type": "multi", "name": "answer", "graders": graders, "calculate_output": "0.8 * exact + 0.2 * close"}


def _attempts() -> Iterator[tuple[Case, int, Attempt]]:
    for case in CASES:
        for number, attempt in enumerate(case.attempts):
            yield case, number, attempt


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def _document(value: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


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
        "hosted_rows.jsonl": _json_lines([hosted_row(case) for case in CASES]),
        "hosted_grader.json": _document(hosted_grader()),
        "responses.jsonl": _json_lines([others.responses_row(*attempt) for attempt in _attempts()]),
        "inspect.json": _document(others.inspect_log(list(_attempts()))),
        "langfuse.json": _document(others.langfuse_export(CASES[0], 0, CASES[0].attempts[0])),
        "swe_agent.traj": _document(others.swe_agent_trajectory(CASES[1], 0, CASES[1].attempts[0])),
        "run_state.json": _document(recorded.run_state(CASES[0], 0, CASES[0].attempts[0])),
        "cassette.yaml": recorded.as_yaml(recorded.cassette(CASES[0], 0, CASES[0].attempts[0])).encode(),
        "who_and_when.json": _document(others.who_and_when_log(CASES[0], CASES[0].attempts[1])),
    }


def main() -> None:
    """Write the files into the folder named on the command line, else beside this script."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents().items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
