"""How a run was done, in figures (`Habits`), so that the alarms need no text."""

from __future__ import annotations

import msgspec

from millstream.events import ModelResponded, ToolCall, ToolReturned
from millstream.graders.usage import CHANGING
from millstream.rollout import Habits
from millstream.trajectory import Trajectory

MOST_WORDS = 4096
"""Repetition is looked for in the first so many words."""
ROW = 4
"""Words in a row that count as repeated."""

_encode = msgspec.json.Encoder(order="sorted").encode


def habits_of(t: Trajectory, text: str) -> Habits:
    """The habits of a run whose policy wrote ``text``."""
    responses = t.responses
    calls = [call for response in responses for call in response.tool_calls]
    return Habits(
        calls=len(calls),
        broken=sum(map(_broken, calls)) + sum("malformed_call" in r.flags and not r.tool_calls for r in responses),
        failed=sum(isinstance(event, ToolReturned) and bool(event.error) for event in t.events) if calls else 0,
        repeated=len(calls) - len({(call.name, _arguments(call)) for call in calls}) if len(calls) > 1 else 0,
        chars=len(text),
        repetition=repetition(text),
        asked=_asked(t, responses, calls),
        began_ms=t.evidence.first_log_ms,
    )


def repetition(text: str) -> float:
    """The share of rows of four words that were there before, to three decimals; 0 for a short text."""
    words = text[: MOST_WORDS * 8].lower().split()[:MOST_WORDS]
    rows = len(words) - ROW + 1
    if rows < ROW:
        return 0.0
    return round(1 - len(set(zip(words, words[1:], words[2:], words[3:], strict=False))) / rows, 3)


def _broken(call: ToolCall) -> bool:
    return call.malformed or (call.arguments is None and call.arguments_raw.strip() not in ("", "null"))


def _arguments(call: ToolCall) -> bytes | str:
    return call.arguments_raw or _encode(call.arguments)


def _asked(t: Trajectory, responses: tuple[ModelResponded, ...], calls: list[ToolCall]) -> bool:
    """Whether the run ended in a question of the policy's and none of its calls changed the world."""
    said = t.final_answer or next((r.text for r in reversed(responses) if r.text), "")
    if not said.rstrip().endswith(("?", "\uff1f", "\u061f")):
        return False
    return not any(call.name.replace("-", "_").split("_")[0].lower() in CHANGING for call in calls)
