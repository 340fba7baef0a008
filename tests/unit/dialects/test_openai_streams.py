"""Streams of the chat and the Responses API: put together they are what the call would have answered unstreamed."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from millstream.dialects.openai_calls import answered, api_of, asked, stream_reader
from millstream.dialects.openai_streams import StreamReader
from millstream.dialects.sse import EventStream


def sse(*told, end="\n\n"):
    """Events as bytes, `[DONE]` last."""
    return "".join(f"data: {json.dumps(one)}{end}" for one in told).encode() + f"data: [DONE]{end}".encode()


def read(api, *pieces):
    """What pieces of a stream make."""
    reader = stream_reader(api)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()


def chunk(delta=None, **fields):
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta or {}, **fields}]}


def fragment(index, **call):
    return chunk({"tool_calls": [{"index": index, **call}]})


INTERLEAVED = [
    fragment(0, id="a", type="function", function={"name": "f", "arguments": '{"x":'}),
    fragment(1, id="b", type="function", function={"name": "g", "arguments": '{"y":'}),
    fragment(0, function={"arguments": "1}"}),
    fragment(1, function={"arguments": "2}"}),
    chunk(finish_reason="tool_calls"),
    {"id": "c1", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
]


def test_fragments_of_parallel_calls_go_by_their_index():
    """T26: fragments that interleave, and a last chunk with usage and no choice (T28)."""
    told = answered("chat", read("chat", sse(*INTERLEAVED)))
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in told.messages[0]["tool_calls"]
    ]
    assert calls == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]
    assert (told.usage.input_tokens, told.usage.output_tokens) == (10, 5)
    assert told.finish_reason == "tool_calls"


@pytest.mark.parametrize("identified", [True, False], ids=["each whole with an id", "told on without an id"])
def test_fragments_without_an_index_find_their_call(identified):
    """Servers leave the index out: a new id begins a call, no id goes on with the last one."""
    parts = [{"id": "a", "function": {"name": "f", "arguments": '{"x":1}' if identified else '{"x"'}}]
    if not identified:
        parts.append({"function": {"arguments": ":1}"}})
    parts.append({"id": "b", "function": {"name": "g", "arguments": "{}"}})
    whole = read("chat", sse(*(chunk({"tool_calls": [part]}) for part in parts)))
    calls = whole["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [("a", '{"x":1}'), ("b", "{}")]


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("body", [b"", b"data: [DONE]\n\n", b": ping\n\n"], ids=["nothing", "done", "comment"])
def test_a_stream_without_events_is_an_empty_turn(api, body):
    """T28: no exception, an empty turn that ended in an error."""
    told = answered(api, read(api, body))
    assert told.messages == [{"role": "assistant", "content": ""}]
    assert told.finish_reason == "error"


def test_reasoning_tokens_and_log_probs_of_chunks_are_joined():
    """What servers of open models stream beside the text: reasoning, token ids, log-probs; the last usage counts."""
    first = chunk(
        {"role": "assistant", "reasoning_content": "Hm, "}, token_ids=[7], logprobs={"content": [{"logprob": -0.1}]}
    )
    whole = read(
        "chat",
        sse(
            {**first, "prompt_token_ids": [1, 2, 3], "usage": {"completion_tokens": 1}},
            chunk(
                {"reasoning_content": "yes.", "content": "4"},
                token_ids=[8, 9],
                logprobs={"content": [{"logprob": -0.2}, {"logprob": -0.3}]},
            ),
            {**chunk(finish_reason="stop"), "usage": {"completion_tokens": 3}},
        ),
    )
    told = answered("chat", whole)
    assert told.messages[0]["reasoning"] == "Hm, yes."
    assert told.messages[0]["content"] == "4"
    assert (told.prompt_token_ids, told.token_ids, told.logprobs) == ([1, 2, 3], [7, 8, 9], [-0.1, -0.2, -0.3])
    assert told.usage.output_tokens == 3


def test_a_response_that_breaks_off_keeps_what_came():
    """Deltas of items that never ended: text, arguments and reasoning as far as they were told."""
    events = [
        {"type": "response.created", "response": {"id": "r1", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Let me "},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "see"},
        {"type": "response.output_item.added", "output_index": 1,
         "item": {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}},
        {"type": "response.output_item.added", "output_index": 2,
         "item": {"type": "function_call", "call_id": "b", "name": "g", "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"x"'},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"y"'},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ":1}"},
    ]  # fmt: skip
    told = answered("responses", read("responses", sse(*events)))
    turn = told.messages[0]
    assert turn["reasoning"] == "Let me see"
    assert [(c["id"], c["arguments"]) for c in turn["tool_calls"]] == [("a", '{"x":1}'), ("b", '{"y"')]
    assert not told.over


def test_an_error_in_a_stream_is_the_answer():
    """Both APIs tell an error as an event in an answer of 200."""
    chat = answered("chat", read("chat", sse({"error": {"message": "overloaded", "code": 500}})))
    assert (chat.finish_reason, chat.error) == ("error", "overloaded")
    failed = {"type": "error", "code": "server_error", "message": "overloaded"}
    told = answered("responses", read("responses", sse(failed)))
    assert (told.finish_reason, told.error) == ("error", "overloaded")


def test_bytes_that_are_no_events_are_counted():
    """No JSON, JSON that is no object, deep nesting: nothing raises."""
    reader = stream_reader("chat")
    reader.feed(b"data: {\n\ndata: 3\n\ndata: " + b"[" * 100_000 + b"\n\n\xff\xfe\n\ndata: \xff\n\n")
    assert reader.finish() == {}
    assert reader.broken == 4


@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_events_are_the_same_wherever_the_bytes_are_cut(payloads, end, data):
    """Any cutting of the bytes, with any of the three line ends, gives the same events."""
    clean = [payload.replace(b"\r", b"").replace(b"\n", b"") for payload in payloads]
    whole = b"".join(b"data: " + payload + end + end for payload in clean)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    stream = EventStream()
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += stream.feed(whole[start:stop])
    assert [*found, *stream.rest()] == clean


@pytest.mark.parametrize("line", [b"data:\n", b"data: x\n", b"data: " + b"x" * 900 + b"\n"])
def test_an_event_of_lines_without_end_is_not_held(line):
    """Memory is bounded in lines of any size; the event is left out, and the next one comes."""
    stream = EventStream(max_bytes=1000)
    most = 0
    for _ in range(3000):
        assert list(stream.feed(line)) == []
        most = max(most, sum(len(one) + 1 for one in stream._data))
    assert most <= 1000
    assert list(stream.feed(b"\ndata: next\n\n")) == [b"next"]
    assert stream.left_out == 1


def test_an_event_without_end_is_not_held():
    """What has no end is dropped at the bound, in one line or in many, and the next event is read."""
    for piece in (b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"):
        stream = EventStream(max_bytes=10_000)
        assert [*stream.feed(b"data: ")] == []
        for _ in range(100):
            assert [*stream.feed(piece)] == []
        assert len(stream._line) <= 10_000
        assert [*stream.feed(b"\n\ndata: next\n\n")] == [b"next"]
        assert stream.left_out == 1


def interactions(data, api):
    """(request body, response text) of the recorded calls of an API."""
    found = []
    for path in sorted((data / "openai_cassettes").glob("*.yaml")):
        told = yaml.safe_load(path.read_text(encoding="utf-8"))["interactions"]
        calls = [one for one in told if api_of(one["request"]["uri"]) == api]
        found += [(json.loads(one["request"]["body"]), one["response"]["body"]["string"]) for one in calls]
    assert found
    return found


def test_recorded_chat_streams_equal_the_completion(data):
    """The client library's own accumulator makes the same completion of the recorded chunks."""
    compared = 0
    for request, text in interactions(data, "chat"):
        if not request.get("stream"):
            continue
        state = ChatCompletionStreamState()
        for event in EventStream().feed(text.encode()):
            if event != b"[DONE]":
                state.handle_chunk(ChatCompletionChunk.model_validate_json(event))
        theirs = state.get_final_completion().to_dict(mode="json")
        ours = read("chat", *(text.encode()[n : n + 7] for n in range(0, len(text.encode()), 7)))
        for choice in theirs["choices"]:
            for call in choice["message"].get("tool_calls") or ():
                call.pop("index", None)
                call["function"].pop("parsed_arguments", None)
            choice["message"].pop("parsed", None)
        assert answered("chat", ours) == answered("chat", theirs)
        assert [c["message"].get("content") for c in ours["choices"]] == [
            c["message"].get("content") for c in theirs["choices"]
        ]
        compared += 1
    assert compared == 5


def test_recorded_response_streams_equal_the_response(data):
    """Put together from its items alone, a response has the output that its last event tells whole."""
    compared = 0
    for request, text in interactions(data, "responses"):
        if not request.get("stream"):
            continue
        events = [json.loads(event) for event in EventStream().feed(text.encode())]
        final = events[-1]
        assert final["type"] == "response.completed"
        whole = read("responses", text.encode())
        assert whole == final["response"]
        cut_off = read("responses", sse(*events[:-1]))
        assert cut_off["output"] == final["response"]["output"]
        compared += 1
    assert compared == 4


def test_recorded_requests_are_read(data):
    """Every recorded call: its messages, its tools, its settings, and an answer that says something."""
    for api in ("chat", "responses"):
        for request, text in interactions(data, api):
            told = asked(api, request)
            assert told.messages
            assert told.model == request["model"]
            assert len(told.tools) == len(request.get("tools", ()))
            body = read(api, text.encode()) if told.stream else json.loads(text)
            answer = answered(api, body)
            turn = answer.messages[-1]
            assert turn.get("content") or turn.get("tool_calls")
            assert answer.finish_reason in ("stop", "tool_calls")
            assert answer.response_id
            assert answer.over


def test_a_reader_of_odd_events_makes_something_of_them():
    """Events whose members have other types than the API says do not raise."""
    odd = [None, 3, "x", [], {}, [3], {"a": 3}]
    for api in ("chat", "responses"):
        names = ("choices", "usage", "response", "item", "output_index", "delta", "error")
        events = [{"type": "response.output_item.done", name: value} for name in names for value in odd]
        events += [chunk(value) for value in odd] + [chunk({"tool_calls": value}) for value in odd]
        events += [chunk({"tool_calls": [{"index": value, "function": value}]}) for value in odd]
        reader: StreamReader = stream_reader(api)
        reader.feed(sse(*events))
        answered(api, reader.finish())
        for name in ("messages", "input", "tools", "top_k", "conversation", "metadata", "instructions"):
            for value in odd:
                asked(api, {name: value})
