"""What may be wrong with a call of a model, through every door: the same conversation as events, as rows of each format
that tells calls, and as spans of each dialect becomes the same steps. Case numbers are those of the case list.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from spans import TRACE

from millstream.capture.importers.base import import_paths
from millstream.capture.importers.reading import RowProblem
from millstream.codec import encode_lines
from millstream.events import CLOSE_OPEN, Tick
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory

ASK, DONE = "What is 12 % of 250?", "It is 30."


class Talk:
    """A conversation: the question, a turn with calls (id, name, arguments as the provider sent them), results (call
    id, output; None: the run ends with the calls), and the answer.
    """

    def __init__(self, calls, results=(), *, content=None, finish="tool_calls"):
        self.calls, self.results, self.content, self.finish = calls, results, content, finish

    @property
    def asked(self):
        """The turn as the chat API tells it."""
        calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in self.calls]
        return {"role": "assistant", "content": self.content, **({"tool_calls": calls} if calls else {})}

    @property
    def turns(self):
        """(prompt, answer, finish reason) of each call of the model, as the chat API tells them."""
        first = [{"role": "user", "content": ASK}]
        told = [(first, self.asked, self.finish)]
        if self.results is not None:
            answered = [{"role": "tool", "tool_call_id": i, "content": output} for i, output in self.results]
            told.append(([*first, self.asked, *answered], {"role": "assistant", "content": DONE}, "stop"))
        return told

    @property
    def messages(self):
        """All of it, once."""
        prompt, answer, _ = self.turns[-1]
        return [*prompt, answer]


def chat(talk):
    return {"messages": talk.messages}


def responses(talk):
    return {"responses_create_params": {"input": [{"role": "user", "content": ASK}]}, "response": _items(talk)}


def _items(talk):
    output = [{"type": "function_call", "call_id": i, "name": n, "arguments": a} for i, n, a in talk.calls]
    if talk.content:
        output.insert(0, _said(talk.content))
    if talk.results is not None:
        output += [{"type": "function_call_output", "call_id": i, "output": out} for i, out in talk.results]
        output.append(_said(DONE))
    return {"object": "response", "id": "r", "output": output, "status": "completed"}


def _said(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def run_state(talk):
    items = []
    for raw in _items(talk)["output"]:
        kind = {"function_call": "tool_call_item", "function_call_output": "tool_call_output_item"}
        name = kind.get(raw["type"], "message_output_item")
        items.append({"type": name, "raw_item": raw, "agent": {"name": "a"}})
    return {"$schemaVersion": "1.17", "current_agent": {"name": "a"}, "original_input": ASK, "generated_items": items}


def cassette(talk):
    interactions = []
    for prompt, answer, finish in talk.turns:
        body = {"id": "r", "choices": [{"message": answer, "finish_reason": finish}]}
        request = {"uri": "https://api.openai.com/v1/chat/completions", "body": json.dumps({"messages": prompt})}
        interactions.append({"request": request, "response": {"body": {"string": json.dumps(body)}}})
    return {"interactions": interactions}


def cassette_streamed(talk):
    """Each call in two fragments, the fragments of all calls in turn (T26)."""
    interactions = []
    for prompt, answer, finish in talk.turns:
        deltas = [{"role": "assistant", "content": answer["content"]}]
        calls = list(enumerate(answer.get("tool_calls") or ()))
        for place, call in calls:
            head = {"name": call["function"]["name"], "arguments": call["function"]["arguments"][:3]}
            deltas.append({"tool_calls": [{"index": place, "id": call["id"], "function": head}]})
        for place, call in calls:
            deltas.append(
                {"tool_calls": [{"index": place, "function": {"arguments": call["function"]["arguments"][3:]}}]}
            )
        chunks = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        told = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        asked = json.dumps({"messages": prompt, "stream": True})
        request = {"uri": "https://api.openai.com/v1/chat/completions", "body": asked}
        interactions.append({"request": request, "response": {"body": {"string": told}}})
    return {"interactions": interactions}


def spans(root, tell):
    """OTLP/JSON of a root span and a span for each call of the model."""

    def document(talk):
        told = [_span(1, "", root)]
        told += [_span(n, f"{1:016x}", tell(*turn)) for n, turn in enumerate(talk.turns, 2)]
        return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": told}]}]}

    return document


def _span(number, parent, attributes):
    pairs = [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]
    start = 1_754_000_000_000_000_000 + number
    ids = {"traceId": TRACE, "spanId": f"{number:016x}", "parentSpanId": parent}
    return {**ids, "name": "s", "startTimeUnixNano": str(start), "endTimeUnixNano": str(start), "attributes": pairs}


def genai(prompt, answer, finish):
    sides = {"gen_ai.input.messages": json.dumps([_parts(one) for one in prompt])}
    sides["gen_ai.output.messages"] = json.dumps([{**_parts(answer), "finish_reason": finish}])
    return {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": finish, **sides}


def _parts(message):
    parts = [{"type": "text", "content": message["content"]}] if message.get("content") is not None else []
    parts += [{"type": "tool_call", "id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()]
    if message["role"] == "tool":
        parts = [{"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}]
    return {"role": message["role"], "parts": parts}


def openinference(prompt, answer, finish):
    told = {"openinference.span.kind": "LLM", "llm.finish_reason": finish}
    for side, messages in (("input", prompt), ("output", [answer])):
        for n, message in enumerate(messages):
            told |= _flat(f"llm.{side}_messages.{n}.message", message, ".tool_call.function.", ".tool_call.id")
    return told


def openllmetry(prompt, answer, finish):
    told = {"llm.request.type": "chat", "gen_ai.completion.0.finish_reason": finish}
    for n, message in enumerate(prompt):
        told |= _flat(f"gen_ai.prompt.{n}", message, ".", ".id")
    return told | _flat("gen_ai.completion.0", answer, ".", ".id")


def _flat(prefix, message, function, identity):
    told = {f"{prefix}.role": message["role"]}
    if message.get("content") is not None:
        told[f"{prefix}.content"] = message["content"]
    if "tool_call_id" in message:
        told[f"{prefix}.tool_call_id"] = message["tool_call_id"]
    for m, call in enumerate(message.get("tool_calls") or ()):
        told[f"{prefix}.tool_calls.{m}{identity}"] = call["id"]
        told |= {f"{prefix}.tool_calls.{m}{function}{name}": value for name, value in call["function"].items()}
    return told


def vercel(prompt, answer, finish):
    calls = [_vercel_call(call) for call in answer.get("tool_calls") or ()]
    told = {"ai.operationId": "ai.generateText.doGenerate", "ai.response.finishReason": finish}
    told["ai.prompt.messages"] = json.dumps([_vercel_message(one) for one in prompt])
    if calls:
        told["ai.response.toolCalls"] = json.dumps(calls)
    if answer.get("content") is not None:
        told["ai.response.text"] = answer["content"]
    return told


def _vercel_call(call):
    return {"toolCallId": call["id"], "toolName": call["function"]["name"], "input": call["function"]["arguments"]}


def _vercel_message(message):
    if message["role"] == "tool":
        output = {"type": "text", "value": message["content"]}
        return {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": message["tool_call_id"], "output": output}],
        }
    parts = [{"type": "text", "text": message["content"]}] if message.get("content") is not None else []
    parts += [{"type": "tool-call", **_vercel_call(call)} for call in message.get("tool_calls") or ()]
    return {"role": message["role"], "content": parts}


def mlflow(prompt, answer, finish):
    gave = {"id": "r", "choices": [{"message": answer, "finish_reason": finish}]}
    sides = {"mlflow.spanInputs": json.dumps({"messages": prompt}), "mlflow.spanOutputs": json.dumps(gave)}
    return {"mlflow.spanType": '"CHAT_MODEL"', **sides}


DOORS = {
    "chat": chat,
    "responses": responses,
    "run state": run_state,
    "cassette": cassette,
    "cassette, streamed": cassette_streamed,
    "genai": spans({"gen_ai.operation.name": "invoke_agent"}, genai),
    "openinference": spans({"openinference.span.kind": "AGENT"}, openinference),
    "openllmetry": spans({"traceloop.span.kind": "workflow"}, openllmetry),
    "vercel": spans({"ai.operationId": "ai.generateText"}, vercel),
    "mlflow": spans({"mlflow.spanType": '"AGENT"'}, mlflow),
}


@pytest.fixture(params=DOORS)
def through(request, tmp_path):
    """The trajectory of a conversation that came through a door."""

    def assembled(talk):
        path = tmp_path / "rows.json"
        path.write_text(json.dumps(DOORS[request.param](talk)))
        items = list(import_paths([path]))
        assert [item for item in items if isinstance(item, RowProblem)] == []
        stage = Assembler(Assembly())
        outputs = []
        for offset, item in enumerate(items):
            outputs += stage.feed(Record("telemetry", 0, offset, 1, item.key, item.value, item.headers))
        tick = encode_lines([Tick(id="t", trajectory_id="-", flags=(CLOSE_OPEN,))])
        outputs += stage.feed(Record("telemetry", 0, len(items), 1, "", tick, {}))
        (made,) = [output.value for output in outputs if output.headers.get("kind") == "trajectory"]
        json.loads(made.decode("utf-8"), parse_constant=pytest.fail)
        return msgspec.json.decode(made, type=Trajectory)

    return assembled


@pytest.mark.parametrize("arguments", ['{"q": "a" "b"', "total = 2+2", "[3, 4]", "7", '"s"', '{"amount": 12', "true"])
def test_t21_t22_t23_arguments_that_are_none(through, arguments):
    """No JSON, no object, cut off: the step stays, its words are kept, and the call beside it is untouched."""
    found = through(Talk([("c1", "f", arguments), ("c2", "g", '{"x": 1}')], [("c1", "no"), ("c2", "1")]))
    bad, good = found.responses[0].tool_calls
    assert (bad.malformed, bad.arguments, bad.arguments_raw) == (True, None, arguments)
    assert (good.malformed, good.arguments) == (False, {"x": 1})
    assert [result.output for result in found.steps[0].results] == ["no", "1"]
    assert found.status == "complete"


@pytest.mark.parametrize("arguments", ["", "null", "{}", " "])
def test_t22_t23_no_arguments_are_an_empty_object(through, arguments):
    """Null and an empty text mean that the tool takes none."""
    found = through(Talk([("c1", "f", arguments)], [("c1", "1")]))
    (call,) = found.responses[0].tool_calls
    assert (call.malformed, call.arguments) == (False, {})


def test_t23_a_turn_that_was_cut_off_says_so(through):
    """The finish reason is the model's, where the door tells one."""
    found = through(Talk([("c1", "f", '{"amount": 12')], [("c1", "no")], finish="length"))
    assert found.responses[0].tool_calls[0].malformed
    assert found.responses[0].finish_reason in ("length", "")


def test_t24_content_null_beside_calls_is_an_empty_text(through):
    """The turn stays, and no word `None` enters."""
    found = through(Talk([("c1", "f", "{}")], [("c1", "1")], content=None))
    assert [turn.text for turn in found.responses] == ["", DONE]
    assert "None" not in json.dumps([turn.text for turn in found.responses])


def test_t24_a_text_beside_calls_stays(through):
    """And so does what was said with them."""
    found = through(Talk([("c1", "f", "{}")], [("c1", "1")], content="Let me see."))
    assert [turn.text for turn in found.responses] == ["Let me see.", DONE]


def test_t26_parallel_calls_keep_their_arguments(through):
    """In the order of the turn, each with its own, its id and its result."""
    calls = [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}'), ("c", "f", '{"x": 3}')]
    found = through(Talk(calls, [("b", "two"), ("a", "one"), ("c", "three")]))
    asked = found.responses[0].tool_calls
    assert [(call.name, call.arguments) for call in asked] == [("f", {"x": 1}), ("g", {"y": 2}), ("f", {"x": 3})]
    assert [result.output for result in found.steps[0].results] == ["one", "two", "three"]


def test_t29_a_call_without_a_result_is_open(through):
    """One of two is answered and the run goes on: the other one is kept as a call that nothing answers."""
    found = through(Talk([("c1", "f", "{}"), ("c2", "g", "{}")], [("c2", "2")]))
    assert len(found.unanswered) == 1
    assert (found.status, found.reason) == ("interrupted", "unanswered_call")
    assert len(found.responses) == 2


def test_t30_a_result_without_a_call_is_an_orphan(through):
    """It is kept beside the steps, and belongs to none."""
    found = through(Talk([("c1", "f", "{}")], [("c1", "1"), ("c9", "lost")]))
    assert [result.output for result in found.orphans] == ["lost"]
    assert [result.output for result in found.steps[0].results] == ["1"]


@pytest.mark.parametrize("output", ["ok \ud83d", "\ud83d\ude00 ok", "\x00", "\u2028", "x" * 300_000])
def test_t14_t19_any_text_of_a_tool_is_stored(through, output):
    """Half an emoji becomes U+FFFD, a whole one stays, a text of 300 kB is bounded and says how long it was."""
    found = through(Talk([("c1", "f", "{}")], [("c1", output)]))
    (result,) = found.steps[0].results
    if len(output) > 1000:
        assert len(result.output) < 100_000
        assert result.truncated.length == len(output)
    else:
        whole = output.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert result.output == whole
