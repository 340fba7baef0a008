"""A call of the chat or the Responses API, from the bodies of its request and its response.

Read the same way wherever they were seen: beside a client in the agent's process, or in a proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from millstream import values
from millstream.dialects import items
from millstream.dialects.openai_streams import ChatStream, ResponseStream, StreamReader
from millstream.dialects.told import Message
from millstream.errors import Undecodable
from millstream.events import Usage

Api: TypeAlias = Literal["chat", "responses"]

_SAMPLING = (
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "stop",
    "n",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_p",
    "logit_bias",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "text",
    "verbosity",
    "truncation",
)


class Asked(Struct, frozen=True, kw_only=True):
    """What a model was asked. ``messages`` are chat messages, the system's first; of Responses they follow those of
    ``previous`` (a response id) or ``conversation``, where one is named. ``sampling``: the other settings that shape
    the answer, under the names of the API.
    """

    api: Api
    messages: list[Message] = field(default_factory=list)
    model: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    previous: str = ""
    conversation: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    stream: bool = False


class Answered(Struct, frozen=True, kw_only=True):
    """What it answered. ``messages``: its turns, and between them the results of tools that the provider ran itself;
    usually one turn. ``tokens``: of the last turn, where the server told them. ``over``: no more will come of it.
    """

    messages: list[Message] = field(default_factory=list)
    model: str = ""
    response_id: str = ""
    finish_reason: str = ""
    usage: Usage = field(default_factory=Usage)
    token_ids: Any = None
    prompt_token_ids: Any = None
    logprobs: list[float] | None = None
    choices: int = 1
    error: str = ""
    over: bool = True


def api_of(path: str) -> Api | None:
    """Which API a request's path names, under whatever prefix; None: none of these."""
    end = path.partition("?")[0].rstrip("/")
    if end.endswith("/chat/completions"):
        return "chat"
    return "responses" if end.endswith("/responses") else None


def stream_reader(api: Api) -> StreamReader:
    """What puts together a streamed answer."""
    return StreamReader(ChatStream() if api == "chat" else ResponseStream())


def asked(api: Api, body: Mapping[str, Any]) -> Asked:
    """The request. What is missing or odd is left out; nothing raises."""
    given = body.get("messages") if api == "chat" else body.get("input")
    top_k = values.number(body.get("top_k"))
    return Asked(
        api=api,
        messages=_told(given) if api == "chat" else [*_instructions(body), *_input(given)],
        model=values.word(body.get("model")),
        tools=tuple(_objects(body.get("tools"))) or tuple(_objects(body.get("functions"))),
        temperature=values.number(body.get("temperature")),
        top_p=values.number(body.get("top_p")),
        top_k=None if top_k is None else int(top_k),
        sampling={name: body[name] for name in _SAMPLING if body.get(name) not in (None, "")},
        previous=values.word(body.get("previous_response_id")),
        conversation=_conversation(body.get("conversation")),
        metadata=values.mapping(body.get("metadata")),
        stream=body.get("stream") is True,
    )


def answered(api: Api, body: Mapping[str, Any]) -> Answered:
    """The response, streamed or not; of several choices the first. Nothing raises."""
    if not body:
        return Answered(finish_reason="error", error="the answer is empty", messages=[_EMPTY])
    return _completion(body) if api == "chat" else _response(body)


_EMPTY: Message = {"role": "assistant", "content": ""}


def _completion(body: Mapping[str, Any]) -> Answered:
    choices = _objects(body.get("choices"))
    first = choices[0] if choices else {}
    message = values.mapping(first.get("message"))
    turn = {**_EMPTY, **_without_nulls(message)}
    turn["reasoning"] = values.word(message.get("reasoning_content") or message.get("reasoning"))
    turn["content"] = message.get("content") or message.get("refusal") or ""
    if isinstance(message.get("function_call"), dict) and not message.get("tool_calls"):
        turn["tool_calls"] = [{"function": message["function_call"]}]
    error = _error(body.get("error"))
    finish = values.word(first.get("finish_reason")) or ("error" if error or not choices else "")
    ids = first.get("token_ids") or message.get("generation_token_ids")
    return Answered(
        messages=[turn],
        model=values.word(body.get("model")),
        response_id=values.word(body.get("id")),
        finish_reason=finish,
        usage=values.usage_of(_dict(body.get("usage"))),
        token_ids=ids,
        prompt_token_ids=body.get("prompt_token_ids") or message.get("prompt_token_ids"),
        logprobs=_logprobs(first.get("logprobs")) or message.get("generation_log_probs"),
        choices=max(1, len(choices)),
        error=error,
    )


def _response(body: Mapping[str, Any]) -> Answered:
    output = _objects(body.get("output"))
    turns = _chat(output) or [_EMPTY]
    if turns[-1]["role"] != "assistant":
        turns.append(_EMPTY)
    status = values.word(body.get("status"))
    why = values.word(values.mapping(body.get("incomplete_details")).get("reason"))
    called = any(turn.get("tool_calls") for turn in turns[-1:])
    done = "tool_calls" if called else "stop"
    return Answered(
        messages=turns,
        model=values.word(body.get("model")),
        response_id=values.word(body.get("id")),
        finish_reason={"completed": done, "failed": "error", "incomplete": why}.get(status, status),
        usage=values.usage_of(_dict(body.get("usage"))),
        token_ids=turns[-1].get("token_ids"),
        prompt_token_ids=turns[-1].get("prompt_token_ids"),
        logprobs=turns[-1].get("logprobs") or _item_logprobs(output),
        error=_error(body.get("error")),
        over=status not in ("queued", "in_progress"),
    )


def _told(given: Any) -> list[Message]:
    return [{**one, "role": values.word(one.get("role")) or "user"} for one in _objects(given)]


def _input(given: Any) -> list[Message]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}] if given else []
    listed = _objects(given)
    return _chat([{**one, "role": one.get("role") or "user"} if _is_message(one) else one for one in listed])


def _is_message(item: Mapping[str, Any]) -> bool:
    return bool(item.get("type", "message") == "message")


def _chat(listed: list[dict[str, Any]]) -> list[Message]:
    try:
        return items.chat_messages(listed)
    except Undecodable:
        return []


def _instructions(body: Mapping[str, Any]) -> list[Message]:
    told = body.get("instructions")
    return [{"role": "system", "content": told}] if isinstance(told, str) and told else []


def _conversation(told: Any) -> str:
    return values.word(told.get("id")) if isinstance(told, dict) else values.word(told)


def _logprobs(told: Any) -> list[float] | None:
    """The log-prob of each token of the answer, in order."""
    return _numbers([one.get("logprob") for one in _objects(_dict(told).get("content"))])


def _item_logprobs(output: list[dict[str, Any]]) -> list[float] | None:
    parts = [part for item in output for part in _objects(item.get("content"))]
    return _numbers([one.get("logprob") for part in parts for one in _objects(part.get("logprobs"))])


def _numbers(told: list[Any]) -> list[float] | None:
    found = [value for value in map(values.number, told) if value is not None]
    return found if found and len(found) == len(told) else None


def _error(told: Any) -> str:
    if not told:
        return ""
    return values.word(_dict(told).get("message")) or values.text_of(told)[0]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _without_nulls(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None}
