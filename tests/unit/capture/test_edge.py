"""The edge: what an event is when it leaves for the log. Case numbers are those of the case list."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.bounds import cut, shallow
from millstream.capture.edge import Edge
from millstream.codec import decode_lines
from millstream.events import (
    EventId,
    MessageReceived,
    ModelResponded,
    Task,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.settings import Capture
from millstream.values import plain, tool_call


def event(kind, **fields):
    return kind(id=EventId("e"), trajectory_id=TrajectoryId("t"), **fields)


def through(edge, one):
    line = edge.encode(one)
    assert b"\n" not in line

    def refuse(text):
        raise AssertionError(f"a bare {text} was written")

    json.loads(line, parse_constant=refuse)
    return decode_lines(line)[0][0]


def test_a_clean_event_passes_unchanged():
    """What needs nothing gets nothing."""
    one = event(ModelResponded, text="4", tool_calls=(ToolCall(id="c", name="calc", arguments={"e": "2+2"}),))
    assert through(Edge(Capture()), one) == one


def test_t14_a_huge_tool_output_keeps_head_and_tail():
    """3 MiB become at most the bound, with the original's length and hash beside it."""
    text = "head" + "x" * (3 << 20) + "tail"
    kept = through(Edge(Capture()), event(ToolReturned, output=text))
    assert len(kept.output.encode()) <= 65_536
    assert kept.output.startswith("head")
    assert kept.output.endswith("tail")
    assert str(len(text)) in kept.output
    assert kept.truncated.length == len(text)
    assert kept.truncated.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert kept.flags == ("truncated",)


def test_t18_nan_becomes_null():
    """Values of any JSON part are finite when they are written."""
    made = plain({"score": math.nan, "cost": [-math.inf], "n": 1})
    assert made == {"score": None, "cost": [None], "n": 1}
    kept = through(Edge(Capture()), event(TrajectoryStarted, task=Task(metadata={"score": math.nan})))
    assert kept.task.metadata == {"score": None}


def test_t19_half_an_emoji_is_replaced_and_flagged():
    """Text that UTF-8 cannot hold is stored with U+FFFD, in whatever part it is."""
    kept = through(Edge(Capture()), event(ToolReturned, output="ok \ud83d", name="\udc00"))
    assert kept.output == "ok \ufffd"
    assert kept.name == "\ufffd"
    assert kept.flags == ("surrogate_replaced",)


@pytest.mark.parametrize("raw", ['{"q": "a" "b"', "total = 2+2", "[3, 4]", "7", '"s"', '{"amount": 12'])
def test_t21_t22_t23_arguments_that_are_no_object_are_kept_as_text(raw):
    """The call stays, marked malformed; a call beside it is not touched."""
    call = tool_call({"id": "c", "function": {"name": "f", "arguments": raw}})
    assert (call.arguments, call.arguments_raw, call.malformed) == (None, raw, True)


@pytest.mark.parametrize("raw", ["", "null", None])
def test_t22_t23_no_arguments_are_an_empty_object(raw):
    """Providers write it in three ways."""
    call = tool_call({"id": "c", "function": {"name": "f", "arguments": raw}})
    assert (call.arguments, call.malformed) == ({}, False)


def test_long_strings_inside_arguments_and_other_texts_are_cut_and_flagged():
    """Arguments, reasoning and the final answer are bounded as the main text is."""
    edge = Edge(Capture(max_text_bytes=1000))
    call = ToolCall(id="c", name="write", arguments={"path": "a", "body": "x" * 5000})
    response = through(edge, event(ModelResponded, text="ok", reasoning="r" * 5000, tool_calls=(call,)))
    assert response.tool_calls[0].arguments["path"] == "a"
    assert len(response.tool_calls[0].arguments["body"]) <= 1000
    assert len(response.reasoning) <= 1000
    assert set(response.flags) == {"arguments_cut", "reasoning_cut"}
    ended = through(edge, event(TrajectoryEnded, final_answer="y" * 5000))
    assert len(ended.final_answer) <= 1000
    assert ended.flags == ("final_answer_cut",)


def test_a_secret_across_the_cut_does_not_survive_in_part():
    """Secrets are taken out before the text gets its final size."""
    secret = "sk-" + "S" * 200
    for place in range(340, 700, 7):
        text = "a" * place + " " + secret + " " + "b" * 5000
        kept = through(Edge(Capture(max_text_bytes=1000)), event(ToolReturned, output=text))
        assert "SSSS" not in kept.output


def test_token_ids_that_would_spell_a_secret_go_with_it():
    """The ids of a redacted answer, and every later prompt of that run, are dropped; other runs keep theirs."""
    edge = Edge(Capture())
    leaky = event(ModelResponded, text="password=hunter22", token_ids=(1, 2), logprobs=(-0.1, -0.2))
    kept = through(edge, leaky)
    assert (kept.text, kept.token_ids, kept.logprobs) == ("password=[REDACTED:password]", None, None)
    assert kept.flags == ("token_ids_dropped", "redacted")
    later = through(edge, event(ModelResponded, text="ok", token_ids=(3,), prompt_token_ids=(1, 2)))
    assert (later.token_ids, later.prompt_token_ids, later.flags) == ((3,), None, ("prompt_token_ids_dropped",))
    other = ModelResponded(id=EventId("o"), trajectory_id=TrajectoryId("other"), prompt_token_ids=(1, 2))
    assert through(edge, other) == other


def test_a_secret_member_of_arguments_goes():
    """Objects are redacted by the names of their members, too; ids of the event never are."""
    call = ToolCall(id="c", name="login", arguments={"user": "ann", "password": "two words"})
    kept = through(Edge(Capture()), event(ModelResponded, tool_calls=(call,)))
    assert kept.tool_calls[0].arguments == {"user": "ann", "password": "[REDACTED:named]"}


@pytest.mark.parametrize(
    ("one", "flag"),
    [
        (event(ModelResponded, text="ok", prompt_token_ids=tuple(range(10_000))), "prompt_token_ids_dropped"),
        (event(ModelResponded, text="ok", token_ids=tuple(range(10_000))), "token_ids_dropped"),
        (event(TrajectoryStarted, task=Task(metadata={str(n): n for n in range(5000)})), "metadata_dropped"),
        (event(TrajectoryStarted, tools=tuple({"n": n} for n in range(9000))), "tools_dropped"),
        (event(MessageReceived, content="x" * 60_000), "truncated"),
        (event(TrajectoryEnded, last_seq={str(n): n for n in range(9000)}), "too_large_emptied"),
    ],
)
def test_an_event_over_the_limit_gives_up_its_largest_parts(one, flag):
    """Whatever it holds, an event fits the limit, keeps its identity and says what it lost."""
    edge = Edge(Capture(max_event_bytes=20_000))
    assert len(edge.encode(one)) <= 20_000
    kept = through(edge, one)
    assert (kept.id, kept.trajectory_id) == ("e", "t")
    assert flag in kept.flags


@given(st.text(max_size=120), st.integers(50, 120))
def test_a_cut_text_fits_and_keeps_both_ends(text, limit):
    """Any text of any letters: within the bound, valid, and made of its own head and tail."""
    text = text.encode("utf-8", "ignore").decode()
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    if len(text.encode()) <= limit:
        assert short is text
    else:
        head, _, rest = short.partition("\n[… cut: ")
        assert text.startswith(head)
        assert text.endswith(rest.partition("…]\n")[2])


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_value_can_be_written(value):
    """Metadata with NaN, surrogates and deep nesting always becomes an event that can be read again."""
    kept = through(Edge(Capture()), event(TrajectoryStarted, task=Task(metadata={"v": plain(value)})))
    assert kept.trajectory_id == "t"


def test_large_sampling_settings_are_bounded():
    """A schema or a bias that is too large: its texts are cut, then all of it goes, never the step."""
    edge = Edge(Capture(max_text_bytes=2000, max_event_bytes=8000))
    bias = {str(number): -100 for number in range(5000)}
    long = event(ModelResponded, text="4", sampling={"stop": "x" * 5000})
    cut_short = through(edge, long)
    assert (cut_short.text, cut_short.flags) == ("4", ("sampling_cut",))
    assert len(cut_short.sampling["stop"]) < 2100
    dropped = through(edge, event(ModelResponded, text="4", sampling={"logit_bias": bias}))
    assert (dropped.text, dropped.sampling, dropped.flags) == ("4", {}, ("sampling_dropped",))


def nested(levels, leaf):
    value = leaf
    for number in range(levels):
        value = {"a": value} if number % 2 else [value]
    return {"x": value}


@pytest.mark.parametrize("levels", [30, 200, 450, 600, 900, 940, 5000])
@pytest.mark.parametrize(
    "leaf", ["word", "password=hunter2hunter", "x" * 200_000, "data:image/png;base64," + "A" * 400]
)
def test_what_is_nested_too_deeply_becomes_a_text_and_its_secrets_go(levels, leaf):
    """No depth that a process can make raises or lets a secret through; what is told is told as far as it can be."""
    one = event(ModelResponded, text="4", tool_calls=(ToolCall(id="c", name="calc", arguments=nested(levels, leaf)),))
    made = through(Edge(Capture()), one)
    line = Edge(Capture()).encode(one)
    assert b"hunter2" not in line
    assert b"A" * 400 not in line
    assert (made.id, made.trajectory_id) == ("e", "t")
    if levels == 30:
        assert not {"flattened", "unreadable_emptied"} & set(made.flags)
    if "flattened" in made.flags:
        assert (made.text, made.tool_calls[0].name) == ("4", "calc")


def test_flattened_values_are_as_shallow_as_they_are_told_to_be():
    """Above the cut nothing changes; below it the value is the text of its JSON."""
    assert shallow({"a": [1, {"b": [2]}], "c": "x"}, 2) == {"a": [1, '{"b":[2]}'], "c": "x"}
    assert shallow([[1]], 0) == "[[1]]"
    assert shallow(5, 0) == 5
