"""Runs without logged token ids, as the tokenizer's chat template shows them. For imitation only: no log-probs.

The mask comes from known spans: a call's prompt is the template over the messages before it, its output what the
template adds for the answer. Both are tokenised whole and compared as token prefixes; a template that rewrites earlier
turns gives one sequence a call, one that does not even extend its own prompt a counted drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from msgspec import Struct

from millstream.events import MessageReceived, ModelResponded, ToolCall, ToolReturned
from millstream.rollout import Rollout
from millstream.trainer.tokens import (
    Dropped,
    Tokenised,
    TokenLimits,
    TokenSequence,
    extends,
    fitted,
    is_own,
    joined,
    logged_sequences,
    policy_agent,
    policy_responses,
    weighted,
)
from millstream.trajectory import CALL_FAILED, Trajectory

NO_RESULT = "(no result: the call was never answered)"
"""What a template shows for a call without an answer, so that the conversation stays valid."""


class ChatTokenizer(Protocol):
    """What is used of a Hugging Face tokenizer."""

    eos_token_id: int | None

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> Any:
        """Messages → the token ids of the conversation (`tokenize=True`)."""
        ...


class Turn(Struct, frozen=True):
    """One call of the policy: how many messages came before, and its response."""

    before: int
    response: ModelResponded


def conversation(trajectory: Trajectory, agent: str = "") -> tuple[list[dict[str, Any]], list[Turn]]:
    """The messages that the policy's agent saw and wrote, in chat form, and its turns.

    Each call is followed by its result, or by `NO_RESULT`; results that answer no call are left out, and so is what
    other agents did among themselves, and calls that failed. What the caller told of the model is shown and no turn.
    """
    mine = policy_agent(trajectory, agent)
    results: dict[str, ToolReturned] = {}
    for event in trajectory.events:
        if isinstance(event, ToolReturned):
            results.setdefault(event.call_id, event)
    messages: list[dict[str, Any]] = []
    turns = []
    for event in trajectory.events:
        if event.agent not in (mine, ""):
            continue
        if isinstance(event, MessageReceived):
            messages.append({"role": "system" if event.role == "system" else "user", "content": event.content})
        elif isinstance(event, ModelResponded) and CALL_FAILED not in event.flags:
            if is_own(event, trajectory, agent):
                turns.append(Turn(len(messages), event))
            messages.append(_assistant(event))
            messages.extend(_tool(call, results.get(call.id)) for call in event.tool_calls)
    return messages, turns


def _assistant(response: ModelResponded) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": response.text}
    if response.reasoning:
        message["reasoning_content"] = response.reasoning
    if response.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in response.tool_calls
        ]
    return message


def _tool(call: ToolCall, result: ToolReturned | None) -> dict[str, Any]:
    content = NO_RESULT if result is None else result.output or result.error
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def rendered_sequences(
    rollout: Rollout, tokenizer: ChatTokenizer, agent: str = ""
) -> Sequence[TokenSequence] | Dropped:
    """The sequences of a rollout by the chat template, or why there are none."""
    trajectory = rollout.trajectory
    responses = policy_responses(trajectory, agent)
    if not responses:
        return "no_response"
    if any(call.malformed or call.arguments is None for response in responses for call in response.tool_calls):
        return "malformed_call"
    if any(response.truncated is not None for response in responses):
        return "truncated_response"
    messages, turns = conversation(trajectory, agent)
    render = _Renderer(tokenizer, list(trajectory.started.tools) if trajectory.started else [])
    calls = []
    for place, turn in enumerate(turns):
        found = render.call(rollout, place, messages, turn)
        if isinstance(found, str):
            return found
        calls.append(found)
    if all(extends(later, earlier) for earlier, later in pairwise(calls)):
        return (joined(calls),)
    return tuple(weighted(call, 1.0 / len(calls)) for call in calls)


class _Renderer:
    def __init__(self, tokenizer: ChatTokenizer, tools: list[dict[str, Any]]) -> None:
        self.tokenizer = tokenizer
        self.tools = tools or None

    def ids(self, messages: list[dict[str, Any]], *, generation: bool) -> tuple[int, ...]:
        found = self.tokenizer.apply_chat_template(
            messages, tools=self.tools, add_generation_prompt=generation, tokenize=True, return_dict=False
        )
        return tuple(found)

    def call(self, rollout: Rollout, place: int, messages: list[dict[str, Any]], turn: Turn) -> TokenSequence | Dropped:
        """Prompt and output of one call; trained is the output up to its end token, that one if it was sampled."""
        from jinja2 import TemplateError

        try:
            prompt = self.ids(messages[: turn.before], generation=True)
            whole = self.ids(messages[: turn.before + 1], generation=False)
        except (TemplateError, ValueError, TypeError, KeyError):
            return "template_error"
        if whole[: len(prompt)] != prompt:
            return "template_prefix"
        stop = self._end(whole, len(prompt), stopped=turn.response.finish_reason != "length")
        mask = (False,) * len(prompt) + (True,) * (stop - len(prompt))
        return TokenSequence(rollout_id=rollout.id, call=place, ids=whole[:stop], mask=mask)

    def _end(self, ids: tuple[int, ...], start: int, *, stopped: bool) -> int:
        """Where the trained span ends: the template's own end token is the last one of the span."""
        end = self.tokenizer.eos_token_id
        for place in range(len(ids) - 1, start - 1, -1):
            if ids[place] == end:
                return place + 1 if stopped else place
        return len(ids)


def tokenise_rendered(rollouts: Sequence[Rollout], tokenizer: ChatTokenizer, limits: TokenLimits) -> list[Tokenised]:
    """Every rollout with its sequences, in order of rollout id: logged ids where there are any, else rendered."""
    made = []
    for rollout in sorted(rollouts, key=lambda r: r.id):
        found = logged_sequences(rollout, limits.agent)
        if found == "no_logged_tokens":
            found = rendered_sequences(rollout, tokenizer, limits.agent)
        made.append(fitted(rollout, found, limits))
    return made
