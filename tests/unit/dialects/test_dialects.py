"""Each dialect's own way to tell the same run: a question, a call of a tool, its result, an answer."""

from __future__ import annotations

import json

import jsonschema
import pytest
from spans import HEADERS, call, chat, line, result, said, span

from millstream.capture.importers.base import import_paths
from millstream.dialects.reading import mapped
from millstream.events import FeedbackGiven, MessageReceived, ModelResponded, ToolReturned, TrajectoryStarted

LOGS = {"dialect": "otlp/logs"}
ASK, SYSTEM = "What is 12 % of 250?", "Be short."
TOOL = {"name": "calc", "parameters": {"type": "object"}}


def read(told, holds="span"):
    """The events of a span."""
    return mapped(line(told, holds), HEADERS if holds == "span" else LOGS).events


def shown(events):
    """What the messages, responses and results among events say."""
    found = []
    for event in events:
        if isinstance(event, MessageReceived):
            found.append((event.role, event.content))
        if isinstance(event, ModelResponded):
            calls = [(one.id, one.name, one.arguments) for one in event.tool_calls]
            found.append(("model", event.text, *calls))
        if isinstance(event, ToolReturned):
            found.append(("tool", event.call_id, event.name, event.output))
    return found


def response(events):
    """The response among events that has usage, or the last one."""
    return next(event for event in reversed(events) if isinstance(event, ModelResponded))


def flat(prefix, messages, name="message."):
    """Messages as flat attributes of OpenInference."""
    made = {}
    for n, message in enumerate(messages):
        for key, value in message.items():
            made[f"{prefix}.{n}.{name}{key}"] = value
    return made


GENAI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "gen_ai.response.model": "m-1",
    "gen_ai.response.id": "r1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.top_p": 0.9,
    "gen_ai.request.top_k": 5,
    "gen_ai.usage.input_tokens": 10,
    "gen_ai.usage.output_tokens": 4,
    "gen_ai.usage.cache_read.input_tokens": 3,
    "gen_ai.usage.reasoning.output_tokens": 2,
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]),
    "gen_ai.tool.definitions": json.dumps([TOOL]),
    "gen_ai.input.messages": json.dumps(
        [said("user", ASK), said("assistant", call("calc", e="250*0.12")), said("tool", result("c1", "30"))]
    ),
    "gen_ai.output.messages": json.dumps([{**said("assistant", "30"), "finish_reason": "stop"}]),
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "m-1",
    "llm.response_id": "r1",
    "llm.finish_reason": "stop",
    "llm.invocation_parameters": json.dumps({"temperature": 0.7, "top_p": 0.9}),
    "llm.token_count.prompt": 10,
    "llm.token_count.completion": 4,
    "llm.token_count.prompt_details.cache_read": 3,
    "llm.token_count.completion_details.reasoning": 2,
    "llm.tools.0.tool.json_schema": json.dumps(TOOL),
    **flat(
        "llm.input_messages",
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "contents.0.message_content.type": "text", "contents.0.message_content.text": ASK},
            {
                "role": "assistant",
                "tool_calls.0.tool_call.id": "c1",
                "tool_calls.0.tool_call.function.name": "calc",
                "tool_calls.0.tool_call.function.arguments": '{"e": "250*0.12"}',
            },
            {"role": "tool", "content": "30", "tool_call_id": "c1"},
        ],
    ),
    **flat("llm.output_messages", [{"role": "assistant", "content": "30"}]),
}
OPENLLMETRY = {
    "llm.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.response.model": "m-1",
    "gen_ai.response.id": "r1",
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.top_p": 0.9,
    "gen_ai.usage.prompt_tokens": 10,
    "gen_ai.usage.completion_tokens": 4,
    "gen_ai.usage.cache_read_input_tokens": 3,
    "gen_ai.usage.reasoning_tokens": 2,
    "llm.request.functions.0.name": "calc",
    "llm.request.functions.0.parameters": '{"type": "object"}',
    **flat(
        "gen_ai.prompt",
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": json.dumps([{"type": "text", "text": ASK}])},
            {
                "role": "assistant",
                "tool_calls.0.id": "c1",
                "tool_calls.0.name": "calc",
                "tool_calls.0.arguments": '{"e": "250*0.12"}',
            },
            {"role": "tool", "content": "30", "tool_call_id": "c1"},
        ],
        name="",
    ),
    **flat("gen_ai.completion", [{"role": "assistant", "content": "30", "finish_reason": "stop"}], name=""),
}
VERCEL = {
    "ai.operationId": "ai.generateText.doGenerate",
    "gen_ai.system": "openai",
    "ai.response.model": "m-1",
    "ai.response.id": "r1",
    "ai.response.finishReason": "stop",
    "ai.settings.temperature": 0.7,
    "gen_ai.request.top_p": 0.9,
    "ai.usage.inputTokens": 10,
    "ai.usage.outputTokens": 4,
    "ai.usage.cachedInputTokens": 3,
    "ai.usage.reasoningTokens": 2,
    "ai.prompt.tools": [json.dumps(TOOL)],
    "ai.prompt.messages": json.dumps(
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": [{"type": "text", "text": ASK}]},
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "calc", "input": {"e": "250*0.12"}}],
            },
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "c1",
                        "toolName": "calc",
                        "output": {"type": "text", "value": "30"},
                    }
                ],
            },
        ]
    ),
    "ai.response.text": "30",
}
SETTINGS = {
    "genai": {
        "gen_ai.request.seed": 7,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.stop_sequences": ["x"],
        "gen_ai.request.frequency_penalty": 0.5,
    },
    "openinference": {
        "llm.invocation_parameters": json.dumps(
            {"seed": 7, "max_tokens": 100, "stop": ["x"], "frequency_penalty": 0.5, "top_k": 5, "secret": "no"}
        )
    },
    "vercel": {
        "ai.settings.seed": 7,
        "ai.settings.maxOutputTokens": 100,
        "ai.settings.stopSequences": ["x"],
        "ai.settings.frequencyPenalty": 0.5,
        "ai.settings.topK": 5,
    },
}
SETTINGS["openllmetry"] = SETTINGS["genai"]
DIALECTS = {"genai": GENAI, "openinference": OPENINFERENCE, "openllmetry": OPENLLMETRY, "vercel": VERCEL}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_call_of_a_model(name):
    """Messages, the call, its result and the answer, with usage, settings and tools, are the same in each dialect."""
    events = read(span(2, 1, attributes=DIALECTS[name]))
    assert shown(events) == [
        ("system", SYSTEM),
        ("user", ASK),
        ("model", "", ("c1", "calc", {"e": "250*0.12"})),
        ("tool", "c1", "calc", "30"),
        ("model", "30"),
    ]
    made = response(events)
    used = made.usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens, used.reasoning_tokens) == (10, 4, 3, 2)
    assert (made.model, made.response_id, made.finish_reason) == ("m-1", "r1", "stop")
    assert (made.temperature, made.top_p) == (0.7, 0.9)
    (start,) = [event for event in events if isinstance(event, TrajectoryStarted)]
    assert (start.tools, start.task.question, bool(start.interface.tools)) == ((TOOL,), ASK, True)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_settings_of_a_call(name):
    """What else shaped the answer, under the names of the chat API; what is no setting stays out."""
    made = response(read(span(2, 1, attributes={**DIALECTS[name], **SETTINGS[name]})))
    assert made.sampling == {"seed": 7, "max_tokens": 100, "stop": ["x"], "frequency_penalty": 0.5}
    assert made.top_k == (None if name == "openllmetry" else 5)


def test_the_settings_of_a_call_in_mlflow():
    """They are members of the provider's request."""
    asked = {"messages": [{"role": "user", "content": ASK}], "seed": 7, "max_tokens": 100, "top_k": 5, "stream": True}
    told = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps(asked)}
    made = response(read(span(2, 1, attributes=told)))
    assert (made.sampling, made.top_k) == ({"seed": 7, "max_tokens": 100}, 5)


@pytest.mark.parametrize(
    ("attributes", "call_id"),
    [
        (
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "calc",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.result": {"value": 30},
            },
            "c1",
        ),
        ({"openinference.span.kind": "TOOL", "tool.name": "calc", "output.value": '{"value":30}'}, ""),
        (
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "calc",
                "traceloop.entity.output": '{"output": {"value": 30}}',
            },
            "",
        ),
        (
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": "calc",
                "ai.toolCall.id": "c1",
                "ai.toolCall.result": '{"value":30}',
            },
            "c1",
        ),
    ],
)
def test_a_run_of_a_tool(attributes, call_id):
    """What a tool gave, and how long it took."""
    (made, *_) = read(span(3, 1, attributes=attributes, took=2))
    assert shown([made]) == [("tool", call_id, "calc", '{"value":30}')]
    assert made.duration_ns == 2_000_000_000


@pytest.mark.parametrize("name", DIALECTS)
def test_without_content(name):
    """A call without messages is a step that says so."""
    words = ("messages", "instructions", "prompt.", "completion.", "response.text")
    bare = {key: value for key, value in DIALECTS[name].items() if not any(word in key for word in words)}
    made = response(read(span(2, 1, attributes=bare)))
    assert (made.text, made.tool_calls, made.flags, made.usage.output_tokens) == ("", (), ("no_content",), 4)


def test_a_failed_call_says_so():
    """An error is the finish reason of an empty turn."""
    told = chat(2, 1, [said("user", "q")], None, status={"code": 2, "message": "overloaded"})
    made = response(read(told))
    assert (made.finish_reason, made.text, made.flags) == ("error", "", ())


def test_a_failed_tool_has_its_error():
    """The status, else the exception inside the span."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "gen_ai.tool.call.id": "c"}
    happened = [{"name": "exception", "attributes": {"exception.message": "no such row"}}]
    (made, *_) = read(span(3, 1, attributes=attributes, status={"code": 2}, events=happened))
    assert (made.error, made.output) == ("no such row", "")


def test_events_of_one_message_each():
    """1.36: each message is a log record; the tool's names its call, the choice is the answer."""
    asked = [{"id": "c1", "type": "function", "function": {"name": "calc", "arguments": "{}"}}]
    told = [
        ("gen_ai.system.message", {"content": SYSTEM}),
        ("gen_ai.user.message", {"content": ASK}),
        ("gen_ai.assistant.message", {"tool_calls": asked}),
        ("gen_ai.tool.message", {"id": "c1", "content": "30"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "30"}}),
    ]
    found = []
    for number, (name, body) in enumerate(told):
        record = span(2, None, at=number) | {"timeUnixNano": str(1_754_000_000_000_000_000 + number)}
        found += read(record | {"eventName": name, "body": body}, "log")
    assert shown(found) == [
        ("system", SYSTEM),
        ("user", ASK),
        ("model", "", ("c1", "calc", {})),
        ("tool", "c1", "", "30"),
        ("model", "30"),
    ]
    assert {event.link.key for event in found if isinstance(event, ModelResponded)} == {"calls:c1:1", f"{2:016x}/out"}


def test_the_details_event_tells_what_a_span_would():
    """1.37 and later: the content stands on an event with the attributes of the span."""
    name = "gen_ai.client.inference.operation.details"
    record = span(2, None) | {"eventName": name, "attributes": GENAI}
    on_span = read(span(2, 1, attributes=GENAI))
    found = read(record, "log")
    assert shown(found) == shown(on_span)
    assert response(found).link.key == response(on_span).link.key
    inside = {key: value for key, value in GENAI.items() if "messages" not in key and "instructions" not in key}
    told = span(2, 1, attributes=inside, events=[{"name": name, "attributes": GENAI}])
    assert shown(read(told)) == shown(on_span)


def test_an_evaluation_is_feedback():
    """A score with its name; an evaluator that failed gives none, and neither does what we export ourselves."""
    attributes = {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.score.label": "partly",
        "gen_ai.evaluation.explanation": "half of it",
        "gen_ai.response.id": "r1",
    }
    record = span(2, None) | {"eventName": "gen_ai.evaluation.result", "attributes": attributes}
    (made,) = read(record, "log")
    assert isinstance(made, FeedbackGiven)
    assert (made.name, made.value, made.label, made.comment) == ("relevance", 0.5, "partly", "half of it")
    ours = json.loads(line(record, "log")) | {"scope": {"name": "millstream.graders"}}
    assert mapped(json.dumps(ours).encode(), LOGS).events == []
    del attributes["gen_ai.evaluation.score.value"], attributes["gen_ai.evaluation.score.label"]
    assert read(record | {"attributes": {**attributes, "error.type": "timeout"}}, "log") == []


def test_calls_without_ids_get_the_same_in_every_telling():
    """A provider without call ids: the answer and its repetition in the next prompt name the same call."""
    asked = {"type": "tool_call", "name": "calc", "arguments": {"e": "1"}}
    answered = {"type": "tool_call_response", "response": "1"}
    first = read(chat(2, 1, [said("user", "q")], [said("assistant", asked)]))
    again = read(
        chat(3, 1, [said("user", "q"), said("assistant", asked), said("tool", answered)], [said("assistant", "1")])
    )
    made, (retold, _) = response(first), [event for event in again if isinstance(event, ModelResponded)]
    assert made.tool_calls == retold.tool_calls
    assert made.tool_calls[0].id
    assert made.link.alias == retold.link.key
    assert [event.call_id for event in again if isinstance(event, ToolReturned)] == [made.tool_calls[0].id]


def test_what_a_run_says_of_itself():
    """``millstream.`` attributes, of the span or its resource, name task, version and split key."""
    told = chat(1, None, [said("user", "q")], [said("assistant", "a")])
    told["attributes"] |= {"millstream.task_id": "t1", "millstream.policy_version": 3, "millstream.reference": 30}
    resource = {"millstream.lineage": "shop", "millstream.split_key": "world 1", "millstream.subject": "user 7"}
    (start,) = [e for e in mapped(line(told, **resource), HEADERS).events if isinstance(e, TrajectoryStarted)]
    assert (start.task.id, start.task.reference, start.task.split_key) == ("t1", 30, "world 1")
    assert (start.lineage, start.policy_version, start.subject) == ("shop", 3, "user 7")
    held = {**HEADERS, "shares": "0,1,0"}
    (start,) = [e for e in mapped(line(told, **resource), held).events if isinstance(e, TrajectoryStarted)]
    assert start.split == "held_out"


def test_both_spellings_of_a_result():
    """The conventions' examples write ``result``, their schema ``response``."""
    for name in ("result", "response"):
        part = {"type": "tool_call_response", "id": "c1", name: {"x": 1}}
        found = read(chat(2, 1, [said("tool", part)], [said("assistant", "a")]))
        assert shown(found)[0] == ("tool", "c1", "", '{"x":1}')


MLFLOW = {
    "CHAT_MODEL": {
        "mlflow.spanInputs": {
            "model": "m",
            "temperature": 0.7,
            "messages": [{"role": "user", "content": ASK}],
            "tools": [{"type": "function", "function": TOOL}],
        },
        "mlflow.spanOutputs": {
            "id": "r1",
            "model": "m-1",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": "c1", "function": {"name": "calc", "arguments": "{}"}}],
                    },
                }
            ],
        },
        "mlflow.chat.tokenUsage": {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14},
    },
    "TOOL": {"mlflow.spanInputs": {}, "mlflow.spanOutputs": "30"},
    "AGENT": {"mlflow.spanInputs": {"question": ASK}, "mlflow.spanOutputs": "30"},
}


def test_a_trace_of_mlflow(tmp_path):
    """`Trace.to_json`: ids in base64, attributes as JSON; one run comes in."""
    spans = [
        {
            "trace_id": "zDUgKh9UiWNAqfGaxCOLZA==",
            "span_id": f"xooYUEKF{letter}Ks=",
            "parent_span_id": None if kind == "AGENT" else "xooYUEKFAKs=",
            "name": "calc" if kind == "TOOL" else kind.lower(),
            "start_time_unix_nano": 1796063496818741851 + number,
            "end_time_unix_nano": 1796063496818741899 + number,
            "status": {"code": "STATUS_CODE_OK", "message": ""},
            "attributes": {
                "mlflow.spanType": json.dumps(kind),
                **{name: json.dumps(value) for name, value in MLFLOW[kind].items()},
            },
        }
        for number, (letter, kind) in enumerate({"A": "AGENT", "B": "CHAT_MODEL", "C": "TOOL"}.items())
    ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"info": {"trace_id": "tr-1", "trace_metadata": {}}, "data": {"spans": spans}}))
    told = [mapped(one.value.strip(), one.headers) for one in import_paths([file])]
    assert {one.trajectory_id for one in told} == {"cc35202a1f54896340a9f19ac4238b64"}
    events = [event for one in told for event in one.events]
    assert shown(events) == [("user", ASK), ("model", "", ("c1", "calc", {})), ("tool", "", "calc", "30")]
    made = response(events)
    assert (made.model, made.response_id, made.usage.output_tokens, made.temperature) == ("m-1", "r1", 4, 0.7)


def test_the_messages_of_these_tests_are_the_conventions(data):
    """What these tests call GenAI messages satisfies the schemas that the conventions publish."""
    schemas = {"input.messages": "input-messages", "output.messages": "output-messages"}
    schemas |= {"system_instructions": "system-instructions"}
    for name, file in schemas.items():
        schema = json.loads((data / f"otel_genai_schema/gen-ai-{file}.json").read_text())
        jsonschema.validate(json.loads(GENAI[f"gen_ai.{name}"]), schema)
