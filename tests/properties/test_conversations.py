"""Requests that tell the conversation again and again: however they are written, each message is told once."""

from __future__ import annotations

import json

import httpx2
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.memory import MemoryRecorder
from millstream.capture.watching import watch
from millstream.events import MessageReceived, ModelResponded, ToolReturned

WORDS = st.text('ab "\\é]},', min_size=1, max_size=6)
TURN = st.tuples(
    st.lists(WORDS, min_size=0, max_size=2),
    st.one_of(WORDS, st.integers(1, 3)),
    st.sampled_from(["", "boss", "north"]),
)
"""What the user says, then a text or so many calls by the model, which all get a result; and who acts."""

APIS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}


class Service:
    """Answers what the test says next, in either API."""

    def __init__(self):
        self.next = None

    def __call__(self, request):
        whole = self.next[request.url.path.endswith("/responses")]
        return httpx2.Response(
            200, content=iter([json.dumps(whole).encode()]), headers={"content-type": "application/json"}
        )


def answers(number, act):
    """The model's answer as a completion and as a response, and the messages or items that a client then sends."""
    if isinstance(act, str):
        message = {"role": "assistant", "content": act}
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": act}]}
        return message, [item], [], []
    calls = [(f"call-{number}-{n}", {"n": n}) for n in range(act)]
    asked = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": json.dumps(given)}}
        for one, given in calls
    ]
    items = [
        {"type": "function_call", "call_id": one, "name": "f", "arguments": json.dumps(given)} for one, given in calls
    ]
    results = [{"role": "tool", "tool_call_id": one, "content": f"result {one}"} for one, _ in calls]
    outputs = [{"type": "function_call_output", "call_id": one, "output": f"result {one}"} for one, _ in calls]
    return {"role": "assistant", "content": None, "tool_calls": asked}, items, results, outputs


def told(turns, api, written):
    """The events of a run in which these turns were asked for, each request as ``written`` writes it."""
    service, recorder = Service(), MemoryRecorder()
    with httpx2.Client(transport=httpx2.MockTransport(service), base_url="http://service") as client:
        watch(client, lambda: recorder)
        with recorder.start_run({"id": "t"}) as run:
            sent = [{"role": "user", "content": "begin"}]
            for number, (said, act, agent) in enumerate(turns):
                sent += [{"role": "user", "content": text} for text in said]
                message, items, results, outputs = answers(number, act)
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                service.next = (
                    {"id": f"r{number}", "model": "m", "choices": [choice]},
                    {"id": f"r{number}", "object": "response", "status": "completed", "output": items},
                )
                body = {"model": "m", "messages" if api == "chat" else "input": sent}
                with run.as_agent(agent):
                    client.post(APIS[api], content=written(number, body), headers={"content-type": "application/json"})
                sent = [*sent, *([message, *results] if api == "chat" else [*items, *outputs])]
    return recorder.take()


def seen(events):
    """What the events say, without ids and times."""
    found = []
    for event in events:
        if isinstance(event, MessageReceived):
            found.append((event.agent, event.role, event.content))
        elif isinstance(event, ModelResponded):
            calls = tuple(call.id for call in event.tool_calls)
            found.append((event.agent, "model", event.text, calls, event.flags))
        elif isinstance(event, ToolReturned):
            found.append((event.agent, "tool", event.call_id, event.output, event.flags))
    return found


def compact(_, body):
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def changing(number, body):
    """Another layout each time: no request begins with the bytes of the one before."""
    return json.dumps(body, indent=number % 3 + 1).encode()


@given(st.lists(TURN, min_size=1, max_size=6), st.sampled_from(["chat", "responses"]))
def test_what_is_not_read_again_changes_nothing(turns, api):
    """Requests that go on byte for byte, of which only the end is read, give the events of those read whole."""
    assert seen(told(turns, api, compact)) == seen(told(turns, api, changing))


@given(st.lists(TURN, min_size=1, max_size=6), st.sampled_from(["chat", "responses"]))
def test_each_answer_and_each_result_is_told_once(turns, api):
    """Whoever acts, in whatever order: every act of the model is one step, every call has one result but the last's."""
    events = told(turns, api, compact)
    steps = [event for event in events if isinstance(event, ModelResponded) and not event.flags]
    assert [(event.agent, event.text or len(event.tool_calls)) for event in steps] == [
        (agent, act) for _, act, agent in turns
    ]
    results = [event.call_id for event in events if isinstance(event, ToolReturned)]
    asked = [call.id for step in steps[:-1] for call in step.tool_calls]
    assert sorted(results) == sorted(asked)
