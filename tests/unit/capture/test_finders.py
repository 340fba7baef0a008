"""Redactors of the operator: asked in a child, once an event; what they can't look into goes whole."""

from __future__ import annotations

import json
import os

import pytest

from millstream.adapters.children import Bounds, Child
from millstream.bootstrap import Runtime
from millstream.capture.edge import Edge
from millstream.capture.finders import Finders
from millstream.capture.raw import RawEdge
from millstream.capture.shared import Shared
from millstream.codec import decode_lines
from millstream.errors import SettingsError
from millstream.events import (
    EventId,
    FeedbackGiven,
    MessageReceived,
    ModelResponded,
    Task,
    ToolReturned,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.loading import load
from millstream.settings import Capture
from millstream.values import tool_call

FILE = """
import os, re, time

def find_member_number(text):
    with open(__file__ + ".asked", "a") as file:
        file.write(f"{text!r}\\n")
    if "hang" in text:
        time.sleep(60)
    if "die" in text:
        os._exit(3)
    if "raise" in text:
        raise ValueError(text)
    if "beyond" in text:
        yield 0, 10_000
    for found in re.finditer(r"M-\\d{3}", text):
        yield found.span()

def helper(text):
    return [(0, 1)]
"""


@pytest.fixture
def finders(tmp_path):
    (tmp_path / "own.py").write_text(FILE)
    made = Finders(lambda module: Child(module, bounds=Bounds()), [str(tmp_path / "own.py")], timeout_s=1.0)
    yield made
    made.close()


@pytest.fixture
def asked(tmp_path):
    """The texts that the functions were asked about, in order."""
    return lambda: (tmp_path / "own.py.asked").read_text().splitlines()


def event(kind, **fields):
    return kind(id=EventId("e"), trajectory_id=TrajectoryId("t"), **fields)


def through(finders, one, **rules):
    edge = Edge(Capture(**rules), Shared(finders=finders))
    return decode_lines(edge.encode(one))[0][0], edge.redactor.counts


def test_what_they_find_goes_like_all_else(finders, asked, monkeypatch):
    """Marks, counts, flags and JSON as ever; each text of an event is asked about once, ids are not."""
    assert finders.checked() == ["member_number"]
    call = tool_call({"id": "M-111", "name": "f", "arguments": '{"who": "M-123", "n": 1.50}'})
    made, counts = through(finders, event(ModelResponded, text="of M-123, hunter", tool_calls=(call,), token_ids=(1,)))
    assert made.text == "of [REDACTED:member_number], hunter"
    assert made.tool_calls[0].arguments == {"who": "[REDACTED:member_number]", "n": 1.5}
    assert made.tool_calls[0].id == "M-111"
    assert made.flags == ("token_ids_dropped", "redacted")
    assert counts == {"member_number": 2}
    assert len(asked()) == len(set(asked()))
    monkeypatch.setenv("MILLSTREAM_REDACT_KEY", "k" * 32)
    output = '{"a": "M-123", "password": "pw1", "n": 1.50}'
    made, _ = through(finders, event(ToolReturned, output=output))
    assert made.output.startswith('{"a": "<member_number:')
    assert made.output.endswith('", "n": 1.50}')
    assert "pw1" not in made.output
    line = RawEdge(Capture(), Shared(finders=finders)).line({"span": {"attributes": {"x": '["M-123"]'}}})
    assert b"<member_number:" in line
    assert json.loads(json.loads(line)["span"]["attributes"]["x"])


@pytest.mark.parametrize("word", ["hang", "die", "raise", "beyond"])
def test_what_they_could_not_look_into_goes_whole(finders, word, caplog):
    """All texts of that event, not its ids and not the words of closed lists; the next event is looked into again."""
    one = event(MessageReceived, role="user", content=f"please {word} M-123", name="ann", agent="a")
    made, counts = through(finders, one)
    assert (made.content, made.name, made.role, made.id) == ("[REDACTED:failed]", "[REDACTED:failed]", "user", "e")
    assert counts == {"failed": 3}
    feedback, _ = through(finders, event(FeedbackGiven, source="human", comment=word, name="n", value=0.5))
    assert (feedback.source, feedback.comment, feedback.value) == ("human", "[REDACTED:failed]", 0.5)
    assert "could not look into" in caplog.text
    assert "M-123" not in caplog.text
    made, counts = through(finders, event(ToolReturned, output="M-123 is well", call_id="c"))
    assert made.output == "[REDACTED:member_number] is well"


def test_an_event_too_deep_to_be_looked_into_leaves_nothing_behind(finders):
    """It is looked into as a text, and the next one is counted and looked into as ever."""
    deep = "M-123"
    for _ in range(600):
        deep = {"a": deep}
    edge = Edge(Capture(), Shared(finders=finders))
    assert b"M-123" not in edge.encode(event(TrajectoryStarted, task=Task(metadata=deep)))
    assert b"[REDACTED:member_number]" in edge.encode(event(ToolReturned, output="M-123"))
    assert edge.redactor.counts == {"member_number": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [("x = 1", "has no function find_KIND"), ("def find_x(", "SyntaxError"), ("1/0", "ZeroDivisionError")],
)
def test_a_file_that_can_not_be_used_says_so(tmp_path, text, told):
    """When it is checked; unchecked, everything goes whole."""
    (tmp_path / "bad.py").write_text(text)
    made = Finders(lambda module: Child(module, bounds=Bounds()), [str(tmp_path / "bad.py")], timeout_s=1.0)
    with pytest.raises(SettingsError, match=told):
        made.checked()
    assert through(made, event(ToolReturned, output="all of it"))[0].output == "[REDACTED:failed]"
    made.close()


def test_settings_name_them(tmp_path):
    """From the settings to the log; a file that is not there is refused; the child ends with the runtime."""
    (tmp_path / "own.py").write_text(FILE)
    (tmp_path / "millstream.toml").write_text('[capture]\nredactors = ["own.py"]\nflush_ms = 1\n')
    with Runtime(load(tmp_path / "millstream.toml", environ={})) as runtime:
        client = runtime.client()
        with client.start_run({"id": "t", "question": "who is M-123?"}, trajectory_id="t"):
            pass
        assert client.flush(30)
        stored = b"".join(record.value for record in runtime.log.read("telemetry", 0, 0))
        assert client.redacted == {"member_number": 1}
        shared = client._sender._shared
        pid = shared.finders._child.pid
    assert b"who is [REDACTED:member_number]?" in stored
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    (tmp_path / "millstream.toml").write_text('[capture]\nredactors = ["none.py"]\n')
    with (
        Runtime(load(tmp_path / "millstream.toml", environ={})) as runtime,
        pytest.raises(SettingsError, match="no file"),
    ):
        runtime.client()
