"""The attempts as other tools tell them: OpenAI Responses items, inspect_ai, Langfuse, SWE-agent, Who&When."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.examples.data.cases import REPORT, SYSTEM, TOOL, Attempt, Case

_THOUGHT = "The calculator will do the arithmetic."


def _asked(case: Case) -> str:
    return f"{REPORT}\n{case.question}"


def chat_of(case: Case, number: int, attempt: Attempt) -> list[dict[str, Any]]:
    """System, user, the call and its result if there is one, and the answer."""
    told: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": _asked(case)},
    ]
    if attempt.call is not None:
        name = _name(case, number)
        function = {"name": "calculator", "arguments": attempt.call}
        told.append({"role": "assistant", "content": "", "tool_calls": [{"id": name, "function": function}]})
        told.append({"role": "tool", "tool_call_id": name, "content": attempt.output})
    return [*told, {"role": "assistant", "content": attempt.answer or "Let me look at the staff of each year"}]


def _name(case: Case, number: int) -> str:
    return f"call_{case.id}_{number}"


def responses_row(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    """A rollout of NeMo Gym."""
    *_, last = chat_of(case, number, attempt)
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": f"rs_{case.id}_{number}", "summary": [{"type": "summary_text", "text": _THOUGHT}]}
    ]
    if attempt.call is not None:
        name = _name(case, number)
        output.append(
            {"type": "function_call", "call_id": name, "name": "calculator", "arguments": attempt.call, "id": name}
        )
        output.append({"type": "function_call_output", "call_id": name, "output": attempt.output})
    said = {"type": "output_text", "text": last["content"], "annotations": []}
    output.append({"type": "message", "role": "assistant", "status": "completed", "content": [said]})
    function = TOOL["function"]
    incomplete = {"reason": "max_output_tokens"} if attempt.reason == "limit" else None
    return {
        "_ng_task_index": 0,
        "_ng_rollout_index": number,
        "agent_ref": {"name": "larkspur_agent"},
        "expected_answer": case.reference,
        "responses_create_params": {"instructions": SYSTEM, "input": [{"role": "user", "content": _asked(case)}]},
        "response": {
            "id": f"resp_{case.id}_{number}",
            "object": "response",
            "model": "example",
            "temperature": 1.0,
            "output": output,
            "tools": [{"type": "function", **function}] if isinstance(function, dict) else [],
            "incomplete_details": incomplete,
            "usage": {"input_tokens": 128, "output_tokens": 36},
        },
        "reward": float(attempt.right),
    }


def inspect_log(attempts: list[tuple[Case, int, Attempt]]) -> dict[str, Any]:
    """An evaluation log of inspect_ai: a sample an attempt, the attempts of a case its epochs."""
    return {
        "version": 2,
        "status": "success",
        "eval": {"run_id": "example", "task": "larkspur", "task_id": "larkspur", "model": "example/agent"},
        "samples": [_sample(*attempt) for attempt in attempts],
    }


def _sample(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    messages = chat_of(case, number, attempt)
    for message in messages:
        if "tool_calls" in message:
            call = message["tool_calls"][0]
            given, error = _arguments(call["function"]["arguments"])
            message["tool_calls"] = [{"id": call["id"], "function": "calculator", "arguments": given, **error}]
        if message["role"] == "tool" and attempt.output.startswith("error"):
            message |= {"function": "calculator", "error": {"type": "parsing", "message": "the arguments are no JSON"}}
    letter = "C" if attempt.right else "I"
    return {
        "id": case.id,
        "epoch": number + 1,
        "input": _asked(case),
        "target": str(case.reference),
        "messages": messages,
        "output": {"model": "example", "usage": {"input_tokens": 128, "output_tokens": 12}},
        "scores": {"match": {"value": letter, "answer": attempt.answer}},
        "limit": {"type": "token", "limit": 200} if attempt.reason == "limit" else None,
    }


def _arguments(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]), {}
    except msgspec.DecodeError:
        return {"calculator": text}, {"parse_error": "the arguments are no JSON"}


def langfuse_export(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    """A trace of Langfuse, its observations in the order in which they ended."""
    system, user, asked, result, answer = chat_of(case, number, attempt)
    trace = f"trace-{case.id}"

    def observed(kind: str, name: str, place: int, given: Any, gave: Any) -> dict[str, Any]:
        return {
            "id": f"{name}-{place}",
            "traceId": trace,
            "parentObservationId": None if kind == "AGENT" else "larkspur-0",
            "type": kind,
            "name": name,
            "startTime": f"2025-06-15T15:06:4{place}.000Z",
            "endTime": f"2025-06-15T15:06:4{place + 1}.000Z",
            "level": "DEFAULT",
            "model": "example" if kind == "GENERATION" else None,
            "usageDetails": {"input": 128, "output": 12} if kind == "GENERATION" else {},
            "input": msgspec.json.encode(given).decode(),
            "output": msgspec.json.encode(gave).decode(),
        }

    called = asked["tool_calls"][0]["function"]["arguments"]
    score = {"name": "correct", "value": float(attempt.right), "source": "ANNOTATION", "comment": "as in the report"}
    return {
        "trace": {"id": trace, "name": "larkspur", "scores": [{**score, "observationId": "chat-3"}]},
        "observations": [
            observed("GENERATION", "chat", 3, [system, user, asked, result], answer),
            observed("TOOL", "calculator", 2, called, attempt.output),
            observed("GENERATION", "chat", 1, [system, user], asked),
            observed("AGENT", "larkspur", 0, case.question, attempt.answer),
        ],
    }


def swe_agent_trajectory(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    """A trajectory of SWE-agent."""
    history = [{**message, "agent": "main"} for message in chat_of(case, number, attempt)]
    for entry in history:
        if "tool_call_id" in entry:
            entry["tool_call_ids"] = [entry.pop("tool_call_id")]
    return {
        "environment": "main",
        "trajectory": [],
        "history": history,
        "info": {"exit_status": "submitted", "submission": attempt.answer, "model_stats": {"api_calls": 2}},
        "replay_config": {"problem_statement": {"id": case.id, "text": case.question}},
    }


def who_and_when_log(case: Case, attempt: Attempt) -> dict[str, Any]:
    """A log of Who&When: two agents, a terminal, and the step that people found wrong."""
    return {
        "question": case.question,
        "question_ID": case.id,
        "ground_truth": str(case.reference),
        "is_correct": attempt.right,
        "history": [
            {"role": "human", "content": _asked(case)},
            {"role": "user", "name": "Planner", "content": "Divide the growth by the revenue."},
            {"role": "assistant", "name": "Analyst", "content": attempt.call},
            {"role": "user", "name": "Computer_terminal", "content": attempt.output},
            {"role": "assistant", "name": "Analyst", "content": attempt.answer},
        ],
        "mistake_agent": "Analyst",
        "mistake_step": "2",
        "mistake_reason": "The growth is divided by the revenue of the wrong year.",
        "system_prompt": {"Planner": "You plan.", "Analyst": SYSTEM},
    }
