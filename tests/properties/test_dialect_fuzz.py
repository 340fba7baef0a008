"""Whatever a line, a request or a body holds: an `EventError`, a `Refusal` or an answer, and nothing else."""

from __future__ import annotations

import contextlib
import gzip
import json

from hypothesis import given
from hypothesis import strategies as st
from spans import line

from millstream.adapters.otlp_requests import decoded
from millstream.capture import otlp
from millstream.capture.gateway import unzipped
from millstream.capture.raw import RawEdge
from millstream.codec import decode, encode
from millstream.dialects.reading import mapped
from millstream.errors import EventError
from millstream.serving import Refusal, Request
from millstream.settings import Capture

NAMES = (
    "gen_ai.operation.name",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.result",
    "gen_ai.request.model",
    "gen_ai.request.top_k",
    "gen_ai.usage.output_tokens",
    "gen_ai.prompt.0.content",
    "gen_ai.prompt.99.tool_calls.0.arguments",
    "gen_ai.completion.0.role",
    "openinference.span.kind",
    "llm.input_messages.0.message.role",
    "llm.input_messages.0.message.contents.0.message_content.type",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id",
    "llm.invocation_parameters",
    "llm.tools.0.tool.json_schema",
    "input.value",
    "output.value",
    "traceloop.span.kind",
    "traceloop.entity.output",
    "llm.request.type",
    "ai.operationId",
    "ai.prompt",
    "ai.prompt.messages",
    "ai.prompt.tools",
    "ai.response.toolCalls",
    "ai.toolCall.result",
    "millstream.policy_version",
    "millstream.reference",
    "event.name",
)
SAID = ["chat", "execute_tool", "invoke_agent", "LLM", "TOOL", "AGENT", "tool", "workflow", "ai.generateText", "user"]
SAID += ["ai.toolCall", "ai.streamText.doStream", "assistant", "", "\ud800", "[", "{}", "null", "1e999", "9" * 400]
WORDS = st.sampled_from(SAID)
KEYS = ["role", "content", "parts", "type", "text", "tool_calls", "id", "name", "arguments", "function", "message"]
KEYS += [
    "index",
    "finish_reason",
    "response",
    "result",
    "output",
    "value",
    "choices",
    "candidates",
    "tools",
    "contents",
]
MEMBERS = st.sampled_from(KEYS) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(MEMBERS, inner, max_size=5),
    max_leaves=12,
)
TOLD = VALUES | VALUES.map(json.dumps)
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), TOLD | WORDS, max_size=8)
HAPPENED = st.fixed_dictionaries({"name": st.sampled_from(NAMES) | VALUES, "attributes": ATTRIBUTES})
EVENTS = ["gen_ai.choice", "gen_ai.tool.message", "gen_ai.client.inference.operation.details"]
SPANS = st.fixed_dictionaries(
    {"traceId": st.just("a" * 32), "spanId": st.just("b" * 16), "attributes": ATTRIBUTES},
    optional={
        "parentSpanId": st.sampled_from(["", "c" * 16, "d"]) | VALUES,
        "startTimeUnixNano": st.integers(0, 2**64) | VALUES,
        "endTimeUnixNano": st.integers(0, 2**64).map(str) | VALUES,
        "status": VALUES,
        "events": st.lists(HAPPENED | VALUES, max_size=3),
        "name": VALUES,
        "eventName": st.sampled_from(EVENTS),
        "body": VALUES,
        "flags": VALUES,
    },
)


def read(told, dialect):
    """The events of a line, each of which survives the log; none of a line that is refused."""
    with contextlib.suppress(EventError):
        for event in mapped(told, {"dialect": dialect}).events:
            assert decode(encode(event)).trajectory_id == "a" * 32


@given(told=SPANS)
def test_any_span_is_read_or_refused(told):
    """Spans and logs with the words of every dialect in any place."""
    read(line(told), "otlp/spans")
    read(line(told, "log"), "otlp/logs")


@given(told=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode("utf-8", "replace")))
def test_any_line_is_read_or_refused(told):
    """Bytes and JSON of any kind."""
    for dialect in ("otlp/spans", "otlp/logs"):
        read(told, dialect)


@given(told=SPANS, other=VALUES)
def test_any_document_passes_the_edge(told, other):
    """What the edge lets through is one line of JSON."""
    edge = RawEdge(Capture(max_text_bytes=200, max_event_bytes=2000))
    whole = {"resourceSpans": [{"scopeSpans": [{"spans": [told, other]}], "resource": other}]}
    for document in (whole, {"resourceSpans": other}):
        for part in otlp.parts(document, "spans", edge):
            if isinstance(part, otlp.Part):
                assert b"\n" not in part.line
                assert len(part.line) <= 2000
                json.loads(part.line, parse_constant=lambda word: 1 / 0)


@given(body=st.binary(max_size=300))
def test_any_body_is_decoded_or_refused(body):
    """Protobuf and gzip of any bytes, and gzip cut anywhere."""
    for signal in ("spans", "logs"):
        with contextlib.suppress(EventError):
            assert decoded(body, signal)
    for told in (body, gzip.compress(body)[: len(body)]):
        with contextlib.suppress(Refusal):
            unzipped(Request(method="POST", path="/", body=told, headers={"content-encoding": "gzip"}), 1000)


def test_deep_nesting_is_refused():
    """10,000 levels in an attribute, in a text of JSON, in a value: no crash, no hang."""
    deep = "[" * 10_000 + "]" * 10_000
    read(b'{"span": {"traceId": "%s", "attributes": {"x": %s}}}' % (b"a" * 32, deep.encode()), "otlp/spans")
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": deep}
    told = {"traceId": "a" * 32, "spanId": "b" * 16, "attributes": attributes}
    read(line(told), "otlp/spans")
    value = {"stringValue": "x"}
    for _ in range(5000):
        value = {"arrayValue": {"values": [value]}}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "k", "value": value}]}]}]}]}
    (part,) = otlp.parts(document, "spans", RawEdge(Capture()))
    assert isinstance(part, otlp.Refused)
