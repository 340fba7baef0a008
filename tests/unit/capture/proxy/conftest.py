"""Calls of the OpenAI API as a recorder sees them, and the runs that come of them."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from millstream.capture.proxy.reading import Seen
from millstream.capture.proxy.recorder import Recorder
from millstream.codec import encode_lines
from millstream.events import Tick
from millstream.ports import Record
from millstream.settings import Assembly, ProxySettings, Settings
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory


class Sink:
    """Keeps the events."""

    def __init__(self):
        self.events = []

    def put(self, event, size):
        assert size > 0
        self.events.append(event)
        return True


class Desk:
    """A recorder with a clock of its own. `chat` and `respond` are calls that passed."""

    def __init__(self, **rules):
        self.now = 0.0
        self.sink = Sink()
        settings = Settings(proxy=ProxySettings(**{"idle_s": 100.0, **rules}))
        self.recorder = Recorder(self.sink, settings, clock=lambda: self.now, now_ns=lambda: int(self.now * 1e9))
        self._ids = itertools.count(1)

    def chat(self, messages, answer="ok", *, status=200, ending="whole", headers=None, body=None, **asked):
        """A chat call; ``answer``: a text, or the message."""
        message = answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}
        told = {
            "id": f"chatcmpl-{next(self._ids)}",
            "model": "m-1",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2},
        }
        asked = {"model": "m", "messages": messages, **asked}
        self.call("chat", asked, told if body is None else body, status=status, ending=ending, headers=headers)
        return [*messages, message]

    def respond(self, given, *output, **asked):
        """A call of Responses; ``output``: its items, or a text. Returns the response's id."""
        items = [_item(one) for one in output]
        told = {"id": f"resp_{next(self._ids)}", "object": "response", "status": "completed", "output": items}
        self.call("responses", {"model": "m", "input": given, **asked}, told)
        return told["id"], items

    def call(self, api, asked, told, *, status=200, ending="whole", headers=None):
        """Any call; times are a second apart."""
        began = int(self.now * 1e9)
        self.now += 1
        pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        kind = b"text/event-stream" if isinstance(told, bytes) else b"application/json"
        self.recorder.record(
            Seen(
                api=api,
                headers=pairs,
                began_ns=began,
                ended_ns=int(self.now * 1e9),
                sent=[json.dumps(asked).encode()],
                status=status,
                answer_headers=[(b"content-type", kind)] if status else [],
                came=[told if isinstance(told, bytes) else json.dumps(told).encode()],
                ending=ending,
            )
        )

    def wait(self, seconds):
        """Time passes, and the recorder looks who is over."""
        self.now += seconds
        self.recorder.look()

    def runs(self):
        """What assembly makes of the events: trajectories by id, in the order in which they began; those that are
        open are sealed as if idle.
        """
        assembler = Assembler(Assembly(), topic_id="t")
        closing = Tick(id="close", trajectory_id="-", flags=("close_open",))
        found = {}
        for offset, events in enumerate([self.sink.events, [closing]]):
            record = Record("telemetry", 0, offset, offset, "k", encode_lines(events), {})
            for output in assembler.feed(record):
                assert output.headers["kind"] == "trajectory", output.value
                one = msgspec.json.decode(output.value, type=Trajectory)
                found[one.id] = one
        assert assembler.ledger.balance == 0
        return {one.id: one for one in sorted(found.values(), key=lambda run: run.started.time_ns)}

    def told(self):
        """Each run as (reason, [kind and words of each event]), in order of beginning."""
        return [(run.reason, [word(event) for event in run.events]) for run in self.runs().values()]


def _item(one):
    if isinstance(one, dict):
        return one
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": one}]}


def word(event):
    """An event in a word."""
    kind = type(event).__name__
    if kind == "TrajectoryStarted":
        return "start"
    if kind == "TrajectoryEnded":
        return f"end:{event.reason}"
    if kind == "ToolReturned":
        return f"{event.call_id}={event.output}"
    if kind == "ModelResponded":
        failed = "!" * ("call_failed" in event.flags)
        hearsay = "~" * ("history" in event.flags)
        return f"{failed}{hearsay}>{event.text}" + "".join(f"[{call.id}]" for call in event.tool_calls)
    return f"{event.role}:{event.content}"


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def calls(*ids, text=None, name="f"):
    """A turn that calls tools."""
    made = [{"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(call, text):
    return {"role": "tool", "tool_call_id": call, "content": text}


@pytest.fixture
def desk():
    return Desk()
