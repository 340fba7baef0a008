"""Cassettes (VCR.py and its like): recorded calls of the chat and the Responses API, streamed or not, in YAML or JSON.

A call whose messages begin with those of the one before and its answer goes on with that run; any other begins one. A
call of another API is told as a bad row and the others of the file come in. What a streamed answer was is put together
by `millstream.dialects.openai_calls`, as in a proxy.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun
from millstream.dialects.openai_calls import Answered, Api, Asked, answered, api_of, asked, stream_reader
from millstream.errors import Undecodable
from millstream.repair import parsed

_SPEAKS = ("role", "content", "tool_call_id")
_OK = range(200, 300)
_EMPTY = {"role": "assistant", "content": ""}


def is_cassette(row: Any) -> bool:
    """Whether a row is a list of recorded interactions."""
    listed = row.get("interactions") if isinstance(row, dict) else None
    return isinstance(listed, list) and all(isinstance(one, dict) and "request" in one for one in listed)


def runs(row: Any) -> list[list[dict[str, Any]]]:
    """The interactions of each run, in the order of the file."""
    found: list[list[dict[str, Any]]] = []
    known: list[Any] = []
    for one in row["interactions"]:
        try:
            question, answer = _told(one)
        except Undecodable:
            found.append([one])  # its own run, which says why it is none
            known = []
            continue
        shown = [_said(message) for message in question.messages]
        if known and shown[: len(known)] == known and len(shown) > len(known):
            found[-1].append(one)
        else:
            found.append([one])
        known = shown + [_said(message) for message in answer.messages]
    return found


def cassette_run(interactions: list[dict[str, Any]], _attempt: int, _group_size: int) -> ChatRun:
    """The run of calls that continue each other. Raises `Undecodable`."""
    messages: list[dict[str, Any]] = []
    question, answer = Asked(api="chat"), Answered()
    for one in interactions:
        question, answer = _told(one)
        messages += question.messages[len(messages) :]
        messages += _answer(question, answer)
    identity = members.hashed("calls", [_said(message) for message in question.messages[:2]])
    return ChatRun(
        messages=messages,
        task=members.task(identity, members.first_question(messages), "calls"),
        source="import:cassette",
        interface=members.interface(question.tools),
        tools=question.tools,
        model=answer.model or question.model,
        reason="crash" if answer.error else "limit" if answer.finish_reason == "length" else "done",
        error=answer.error,
    )


def _answer(question: Asked, answer: Answered) -> list[dict[str, Any]]:
    """The turns of an answer; what is known of the response stands on its last one."""
    turns = [dict(message) for message in answer.messages]
    told = {"usage": msgspec.to_builtins(answer.usage), "response_id": answer.response_id, "model": answer.model}
    told |= {"finish_reason": answer.finish_reason, "temperature": question.temperature, "top_p": question.top_p}
    turns[-1] |= told
    return turns


def _told(interaction: Mapping[str, Any]) -> tuple[Asked, Answered]:
    """A request and its answer. Raises `Undecodable` for a call of another API, or bodies that are none."""
    request, response = values.mapping(interaction.get("request")), values.mapping(interaction.get("response"))
    place = values.word(request.get("uri") or request.get("url"))
    api = api_of(place)
    if api is None:
        raise Undecodable(f"{place[:200] or 'a request'} is no call of chat completions or responses")
    body = _json(_body(request), "the request's body")
    said = _body(response)
    question = asked(api, body)
    status = _status(response)
    if status not in _OK:
        return question, Answered(messages=[dict(_EMPTY)], finish_reason="error", error=f"HTTP {status}: {said[:500]}")
    return question, answered(api, _stream(api, said) if question.stream else _json(said, "the response's body"))


def _stream(api: Api, said: str) -> dict[str, Any]:
    reader = stream_reader(api)
    reader.feed(said.encode())
    return reader.finish()


def _json(said: str, what: str) -> dict[str, Any]:
    try:
        found, _ = parsed(said)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Undecodable(f"{what} is of type {type(found).__name__}; it must be an object")
    return found


def _body(told: Mapping[str, Any]) -> str:
    """A body, which is a text, or an object with a ``string`` or a ``base64_string``."""
    body = told.get("body")
    if isinstance(body, dict) and "base64_string" in body:
        try:
            return base64.b64decode(values.word(body["base64_string"])).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Undecodable(f"a body is no text: {error}") from None
    return values.word(body.get("string") if isinstance(body, dict) else body)


def _status(response: Mapping[str, Any]) -> int:
    told = response.get("status")
    code = told.get("code") if isinstance(told, dict) else response.get("status_code", told)
    return int(code) if isinstance(code, int | str) and str(code).isdigit() and len(str(code)) < 5 else 200


def _said(message: Mapping[str, Any]) -> Any:
    """What makes two tellings of a message the same."""
    calls = [(call.id, call.name, call.arguments) for call in values.tool_calls(message.get("tool_calls") or [])]
    told = {name: message.get(name) or "" for name in _SPEAKS}
    return [told["role"], values.text_of(told["content"])[0], told["tool_call_id"], calls]
