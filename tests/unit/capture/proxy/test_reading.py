"""The bytes of a call, whatever is wrong with them, as what was asked and answered."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.proxy.reading import Seen, read
from millstream.errors import Undecodable

from .conftest import Desk, user

MOST = 1_000_000
ASKED = {"model": "m", "messages": [user("hi")]}
DONE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ho"}, "finish_reason": "stop"}]}


def seen(came, *, sent=None, status=200, kind="application/json", coding="", ending="whole", api="chat", headers=()):
    coded = [(b"Content-Encoding", coding.encode())] if coding else []
    told = json.dumps(ASKED).encode() if sent is None else sent
    return Seen(
        api=api,
        headers=headers,
        began_ns=1,
        sent=[told[:7], told[7:]],
        status=status,
        answer_headers=[(b"Content-Type", kind.encode()), *coded],
        came=[came[n : n + 5] for n in range(0, len(came), 5)],
        ended_ns=2,
        ending=ending,
    )


def sse(*documents, end=b"data: [DONE]\n\n"):
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in documents) + end


def chunk(finish=None, **delta):
    return {"id": "c", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("coding", ["", "identity", "gzip", "deflate"])
@pytest.mark.parametrize("streamed", [False, True])
def test_codings_are_undone(coding, streamed):
    """Of the answer, streamed or not."""
    body = sse(chunk(content="h"), chunk("stop", content="o")) if streamed else json.dumps(DONE).encode()
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}.get(coding, bytes)(body)
    found = read(seen(packed, coding=coding, kind="text/event-stream" if streamed else "application/json"), MOST)
    assert (found.failure, found.answered.messages[0]["content"]) == ("", "ho")


def test_a_request_may_be_coded():
    """As its own header says."""
    packed = gzip.compress(json.dumps(ASKED).encode())
    found = read(seen(json.dumps(DONE).encode(), sent=packed, headers=[(b"content-encoding", b"gzip")]), MOST)
    assert found.asked.messages == [user("hi")]


@pytest.mark.parametrize(
    ("sent", "coding"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", ""),
        (b"\xff\xfe", ""),
        (b"[" * 200_000, ""),
        (b'{"messages":' + b"[" * 200_000, ""),
        (gzip.compress(b" " * 5_000_000), "gzip"),
        (b"no gzip", "gzip"),
        (b"{}", "br"),
    ],
)
def test_a_request_that_is_none_is_said_to_be(sent, coding):
    """No JSON, no object, nested without end, a bomb, another coding: `Undecodable`, and nothing else."""
    headers = [(b"content-encoding", coding.encode())] if coding else []
    with pytest.raises(Undecodable):
        read(seen(b"{}", sent=sent, headers=headers), MOST)


@pytest.mark.parametrize(
    "came",
    [
        b"",
        b"{",
        b"[1]",
        b"<html>",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        gzip.compress(b" " * 5_000_000),
        b"\x1f\x8b\x08",
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_an_answer_that_is_none_is_a_failed_call(came, kind, coding):
    """The request is kept."""
    found = read(seen(came, kind=kind, coding=coding), MOST)
    assert found.failure in ("unreadable", "error")
    assert found.asked.messages == [user("hi")]


@pytest.mark.parametrize("ending", ["left", "broken"])
def test_a_stream_that_broke_off_keeps_what_came(ending):
    """Its text, not its half of a call."""
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a'}}
    body = sse(chunk(content="half of"), chunk(tool_calls=[call]), end=b'data: {"choi')
    desk = Desk()
    desk.call("chat", ASKED, body, ending=ending)
    (run,) = desk.runs().values()
    (response,) = (event for event in run.events if hasattr(event, "tool_calls"))
    assert (response.text, response.tool_calls, run.responses) == ("half of", (), ())
    assert response.flags[:2] == ("call_failed", "client_left" if ending == "left" else "broken_off")
    assert response.usage.output_tokens == 2


@pytest.mark.parametrize("ending", ["left", "broken"])
def test_a_stream_that_said_it_was_over_is_whole(ending):
    """Clients leave when they have what they want."""
    assert read(seen(sse(chunk("stop", content="ho")), kind="text/event-stream", ending=ending), MOST).failure == ""
    last = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
    found = read(seen(sse(last, end=b""), kind="text/event-stream", ending=ending, api="responses"), MOST)
    assert (found.failure, found.answered.response_id) == ("", "r")


def test_an_error_inside_a_stream_is_a_failed_call():
    """Servers that have begun to answer can tell a fault no other way."""
    found = read(seen(sse(chunk(content="h"), {"error": {"message": "out of memory"}}), kind="text/event-stream"), MOST)
    assert (found.failure, found.trouble) == ("error", "out of memory")


def test_usage_is_recorded_also_where_the_stream_lacks_it():
    """What is told counts; else tokens that can be counted; else a guess from the lengths, which says so."""
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    logprobs = {"content": [{"token": t, "logprob": -0.5} for t in "abc"]}
    counted = chunk("stop", content="a b c")
    counted["choices"][0]["logprobs"] = logprobs
    cases = {
        (9, 3, 4, False): sse(chunk("stop", content="ho"), {"id": "c", "choices": [], "usage": usage}),
        (1, 3, 0, True): sse(counted),
        (1, 2, 0, True): sse(chunk("stop", content="12345678")),
    }
    for wanted, body in cases.items():
        desk = Desk()
        desk.call("chat", ASKED, body)
        (run,) = desk.runs().values()
        (one,) = run.responses
        guessed = "usage_estimated" in one.flags
        assert (one.usage.input_tokens, one.usage.output_tokens, one.usage.cached_tokens, guessed) == wanted


def test_what_a_server_tells_of_tokens_is_kept():
    """Ids and log-probs, of the kind that the settings say; sampling settings; finish reason; response id."""
    told = {
        "id": "c-1",
        "model": "m-1",
        "prompt_token_ids": [1, 2],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ab", "reasoning_content": "hm"},
                "token_ids": [3, 4],
                "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]},
                "finish_reason": "length",
            },
            {"index": 1, "message": {"role": "assistant", "content": "other"}, "finish_reason": "stop"},
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 2},
    }
    for kind in ("raw", "processed", "unknown"):
        desk = Desk(logprob_kind=kind)
        desk.chat([user("q")], body=told, temperature=0.7, top_p=0.9, top_k=5)
        (one,) = next(iter(desk.runs().values())).responses
        assert (one.prompt_token_ids, one.token_ids, one.reasoning) == ((1, 2), (3, 4), "hm")
        assert (one.temperature, one.top_p, one.top_k) == (0.7, 0.9, 5)
        assert (one.finish_reason, one.response_id, one.model) == ("length", "c-1", "m-1")
        assert one.logprobs == (None if kind == "unknown" else (-0.5, -0.25))
        assert one.logprob_kind == (None if kind == "unknown" else kind)
        assert "other_choices" in one.flags


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from(["chat", "responses"]), st.booleans())
def test_no_bytes_raise(sent, came, api, streamed):
    """A recorder takes anything."""
    desk = Desk()
    one = seen(came, sent=sent, api=api, kind="text/event-stream" if streamed else "application/json")
    desk.recorder.record(one)
    desk.runs()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_MEMBERS = """
role content tool_calls id function name arguments type output call_id messages input choices message delta index usage
prompt_tokens logprobs token_ids finish_reason metadata previous_response_id conversation tools model response
"""
SHAPED = st.recursive(
    JSON | st.sampled_from(["user", "assistant", "tool", "system", "message", "function_call", "response.completed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_MEMBERS.split()), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries({"messages": SHAPED, "input": SHAPED}, optional={"metadata": SHAPED, "tools": SHAPED}),
    st.fixed_dictionaries(
        {"choices": SHAPED, "output": SHAPED, "usage": SHAPED}, optional={"error": SHAPED, "id": SHAPED}
    ),
    st.sampled_from(["chat", "responses"]),
)
def test_no_json_is_lost(asked, told, api):
    """Whatever JSON stands where something else is meant: no fault, and events that assembly can take."""
    desk = Desk()
    desk.call(api, asked, told)
    assert desk.sink.events
    assert len(desk.runs()) == 1
