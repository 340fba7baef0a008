"""The codec: what comes in is repaired, upcast or refused; what goes out is sound JSON."""

import json
from pathlib import Path

import pytest

from millstream.codec import content_digest, decode, decode_lines, digest, encode, encode_lines
from millstream.errors import EventError, TooLarge, Undecodable, UnknownSchema
from millstream.events import (
    EVENT_KINDS,
    Event,
    FeedbackGiven,
    Interface,
    Link,
    MessageReceived,
    ModelResponded,
    Task,
    Tick,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
    Truncated,
    Usage,
)
from millstream.repair import MAX_EVENT_BYTES, MAX_TEXT_BYTES, bound_text, bounded, parse_arguments

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "events"
ENVELOPE = {
    "id": "e1",
    "trajectory_id": "01890a5d-ac96-774b-bcce-b302099a8057",
    "producer": "agent-1",
    "seq": 3,
    "time_ns": 1754000000123456789,
    "agent": "analyst",
    "subject": "customer-7",
    "flags": ("sampled",),
}
SAMPLES: dict[str, Event] = {
    "TrajectoryStarted": TrajectoryStarted(
        **ENVELOPE,
        task=Task(
            id="t1", question="What is 2 + 2?", reference=4.0, split_key="w1", family="sum", metadata={"year": 2024}
        ),
        lineage="policy",
        policy_version=7,
        interface=Interface(tools="aa", system="bb", template="cc", tokenizer="dd"),
        split="train",
        group="g1",
        attempt=2,
        group_size=8,
        propensity=0.5,
        tools=({"name": "calc", "parameters": {"type": "object"}},),
        source="sdk",
    ),
    "MessageReceived": MessageReceived(**ENVELOPE, role="system", content="Be brief. „…“ 🙂", name="ops"),
    "ModelResponded": ModelResponded(
        **ENVELOPE,
        text="",
        reasoning="add them",
        tool_calls=(
            ToolCall(id="c1", name="calc", arguments={"a": [1, 2.5, None]}),
            ToolCall(id="c2", name="calc", arguments_raw="2+2", malformed=True),
        ),
        usage=Usage(input_tokens=10, output_tokens=5, cached_tokens=1, reasoning_tokens=2, cost=0.25),
        finish_reason="tool_calls",
        model="tiny",
        response_id="r1",
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        prompt_token_ids=(1, 2),
        token_ids=(3, 4),
        logprobs=(-0.5, -1.25),
        logprob_kind="processed",
    ),
    "ToolReturned": ToolReturned(
        **ENVELOPE,
        call_id="c1",
        name="calc",
        output="4",
        error="",
        duration_ns=12,
        truncated=Truncated(length=9, sha256="ff"),
    ),
    "FeedbackGiven": FeedbackGiven(
        **ENVELOPE,
        source="environment",
        name="reward",
        value=1.0,
        label="ok",
        comment="fine",
        response_id="r1",
        valid_time_ns=5,
    ),
    "TrajectoryEnded": TrajectoryEnded(
        **ENVELOPE, reason="limit", final_answer="4", last_seq={"agent-1": 3}, error="turns"
    ),
    "Tick": Tick(**ENVELOPE, link=Link(key="k", parent="p", after="a", finality=1, root=True)),
}


def tool(extra: bytes = b"", output: bytes = b"x") -> bytes:
    """A line of a ToolReturned with an output and further members."""
    return b'{"kind":"ToolReturned","id":"a","trajectory_id":"t","seq":0,"output":"%s"%s}' % (output, extra)


def one(line: bytes) -> Event:
    """The only event of a line."""
    ((event, _),) = decode_lines(line)
    assert not isinstance(event, EventError), event
    return event


def refusal(line: bytes) -> EventError:
    """Why the only line of a record was refused."""
    ((error, raw),) = decode_lines(line)
    assert isinstance(error, EventError)
    assert raw == line
    return error


@pytest.mark.parametrize("kind", sorted(EVENT_KINDS))
def test_each_kind_has_a_golden_line(kind):
    """The bytes of every kind stay what they were, and mean the same event."""
    golden = (GOLDEN / f"{kind}.json").read_bytes()
    assert encode(SAMPLES[kind]) + b"\n" == golden
    assert decode_lines(golden) == [(SAMPLES[kind], golden.rstrip(b"\n"))]


@pytest.mark.parametrize("old", sorted(GOLDEN.glob("schema-*.json")), ids=lambda path: path.stem)
def test_each_upcaster_has_a_golden_line(old):
    """A line of an older schema becomes exactly this line of today's, and that one stays as it is."""
    new = (GOLDEN / "upcast" / old.name).read_bytes().rstrip(b"\n")
    ((event, raw),) = decode_lines(old.read_bytes())
    assert not isinstance(event, EventError), event
    assert (raw, encode(event)) == (new, new)
    assert decode_lines(new) == [(event, new)]


def test_every_older_schema_has_a_golden_line():
    """No upcaster is without its example."""
    from millstream.upcast import UPCASTERS

    schemas = {path.stem.split("-")[1] for path in GOLDEN.glob("schema-*.json")}
    assert schemas == {str(number) for number in range(len(UPCASTERS))}


def test_lines_round_trip():
    """Encoding and decoding a record gives the same events, with the lines they came as."""
    value = encode_lines(SAMPLES.values())
    decoded = decode_lines(value)
    assert [event for event, _ in decoded] == list(SAMPLES.values())
    assert b"".join(raw + b"\n" for _, raw in decoded) == value
    assert decode(decoded[0][1]) == decoded[0][0]


def test_digest_is_unambiguous():
    """Other parts, other joints and other types give another id; the same give the same."""
    ids = [
        digest("ab", "c"),
        digest("a", "bc"),
        digest("a", "b", "c"),
        digest("abc"),
        digest(b"abc"),
        digest("1"),
        digest(1),
    ]
    assert len(set(ids)) == len(ids)
    assert digest("é", 1, b"\0") == digest("é", 1, b"\0")
    assert len(digest()) == len(content_digest(b"")) == 32


def test_content_digest_keeps_chunks_apart():
    """Moving a line break between chunks changes the hash only when the joined text changes."""
    assert content_digest(b"a", b"b") == content_digest(b"a\nb") != content_digest(b"ab")


def test_t11_nanoseconds_as_text_are_exact():
    """T11: text and number give the same 64-bit integer; {low, high} is refused with its field."""
    assert one(tool(b',"time_ns":"1754000000123456789"')).time_ns == 1754000000123456789
    assert one(tool(b',"time_ns":1754000000123456789')).time_ns == 1754000000123456789
    error = refusal(tool(b',"time_ns":{"low":1,"high":2}'))
    assert isinstance(error, Undecodable)
    assert "time_ns" in str(error)


def test_t13_unknown_fields_are_ignored():
    """T13: a newer sender's extra member does no harm."""
    assert one(tool(b',"colour":"red"')) == one(tool())


@pytest.mark.parametrize("schema", [b'"99.0"', b"2", b'"two"', b"-1"])
def test_t13_unknown_schemas_are_refused(schema):
    """T13: a schema that this version does not know is never guessed at."""
    assert isinstance(refusal(tool(b',"schema":' + schema)), UnknownSchema)


def test_t13_a_missing_schema_is_the_first():
    """T13: the documented default of a missing schema is 1; null means the same."""
    assert one(tool()).schema == one(tool(b',"schema":null')).schema == one(tool(b',"schema":"1.4"')).schema == 1


def test_an_unknown_kind_is_refused():
    """A kind of a later version is a dead letter that names the kinds known."""
    error = refusal(b'{"kind":"PolicyDreamt","id":"a","trajectory_id":"t"}')
    assert isinstance(error, UnknownSchema)
    assert "ToolReturned" in str(error)


def test_t14_a_huge_tool_output_is_cut():
    """T14: head and tail stay, with the original's length and hash; the step is kept."""
    from hashlib import sha256

    text = "head" + "x" * (3 << 20) + "tail"
    ((event, raw),) = decode_lines(tool(output=text.encode()))
    assert isinstance(event, ToolReturned)
    assert event.truncated == Truncated(length=len(text), sha256=sha256(text.encode()).hexdigest())
    assert event.output.startswith("headxx")
    assert event.output.endswith("xxtail")
    assert event.flags == ("truncated",)
    assert len(event.output.encode()) <= MAX_TEXT_BYTES
    assert len(raw) <= MAX_EVENT_BYTES
    assert raw == encode(event)


def test_a_large_line_is_kept_when_it_fits_after_all():
    """Only the limit of an event decides, not the size of its record."""
    line = tool(output=b"x" * 400_000)
    assert [raw for _, raw in decode_lines(b"\n".join([line] * 3))] == [line] * 3


def test_what_can_not_be_cut_is_too_large():
    """An event whose bulk is no text is refused, with its size."""
    numbers = b",".join([b"1"] * MAX_EVENT_BYTES)
    line = b'{"kind":"ModelResponded","id":"a","trajectory_id":"t","token_ids":[' + numbers + b"]}"
    assert isinstance(refusal(line), TooLarge)


def test_texts_are_cut_at_whole_letters():
    """A cut never splits a letter of several bytes, and a short text is left alone."""
    text, truncated = bound_text("ä🙂" * 5000, 1000)
    assert truncated is not None
    assert len(text.encode()) <= 1000
    assert "\ufffd" not in text
    assert bound_text("ä" * 500, 1000) == ("ä" * 500, None)


def test_an_earlier_cut_keeps_its_first_length():
    """What the edge recorded of the original outlives a second cut."""
    first = Truncated(length=10**9, sha256="ab")
    event = ToolReturned(id="a", trajectory_id="t", seq=0, output="x" * 10_000, truncated=first)
    assert bounded(event, 1000).truncated == first


@pytest.mark.parametrize("bare", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'[1, {"a": NaN}]'])
def test_t18_nothing_non_finite_goes_out(bare):
    """T18: a bare NaN or Infinity becomes null with a flag, and what is written passes a strict parser."""

    def refuse(name):
        raise AssertionError(name)

    line = b'{"kind":"TrajectoryStarted","id":"a","trajectory_id":"t","task":{"metadata":{"score":%s}}}' % bare
    ((event, raw),) = decode_lines(line)
    assert isinstance(event, TrajectoryStarted)
    assert event.flags == ("non_finite",)
    json.loads(raw, parse_constant=refuse)
    json.loads(encode(event), parse_constant=refuse)


def test_t18_a_feedback_value_of_nan_is_unknown():
    """T18: a value that is no number is no value, never 0."""
    event = one(b'{"kind":"FeedbackGiven","id":"a","trajectory_id":"t","value":NaN}')
    assert isinstance(event, FeedbackGiven)
    assert event.value is None


def test_t18_log_probs_with_a_hole_are_dropped():
    """T18: one infinite log-prob makes the whole list unusable; the answer stays."""
    event = one(b'{"kind":"ModelResponded","id":"a","trajectory_id":"t","text":"x","logprobs":[-1.0,-Infinity]}')
    assert isinstance(event, ModelResponded)
    assert (event.text, event.logprobs, event.flags) == ("x", None, ("non_finite",))


@pytest.mark.parametrize("half", [b"ok \\ud83d", b"ok \xed\xa0\xbd"])
def test_t19_half_an_emoji_is_replaced(half):
    """T19: a lone surrogate, escaped or raw, becomes U+FFFD with a flag and can be stored."""
    ((event, raw),) = decode_lines(tool(output=half))
    assert isinstance(event, ToolReturned)
    assert event.output == "ok \ufffd"
    assert event.flags == ("surrogate_replaced",)
    assert raw.decode() == encode(event).decode()


def test_t19_an_event_with_half_an_emoji_encodes():
    """T19: encoding never fails on text; a whole pair of surrogates is joined."""
    event = ToolReturned(id="a", trajectory_id="t", seq=0, output="\ud83d and \ud83d\ude42")
    assert one(encode(event)) == ToolReturned(
        id="a", trajectory_id="t", seq=0, output="\ufffd and 🙂", flags=("surrogate_replaced",)
    )


@pytest.mark.parametrize("raw", ['{"q": "a" "b"', "total = 2+2", '{"amount": 12', "[3, 4]", "7", '"s"', "[" * 100_000])
def test_t21_t22_t23_arguments_that_are_no_object(raw):
    """T21–T23: what is no JSON object is kept as text, marked malformed, never passed on as arguments."""
    assert parse_arguments(raw) == (None, raw, True)


@pytest.mark.parametrize("raw", ["", "null", None, " ", "{}", {}])
def test_t22_t23_no_arguments(raw):
    """T22, T23: null and nothing mean an empty object."""
    assert parse_arguments(raw) == ({}, "", False)


def test_arguments_given_as_text_are_parsed_in_place():
    """An event whose calls carry arguments as providers send them is repaired, call by call."""
    line = (
        b'{"kind":"ModelResponded","id":"a","trajectory_id":"t","finish_reason":"length","tool_calls":['
        b'{"id":"c1","name":"f","arguments":"{\\"x\\": 1}"},{"id":"c2","name":"f","arguments":"{\\"x\\": "}]}'
    )
    event = one(line)
    assert isinstance(event, ModelResponded)
    assert event.finish_reason == "length"
    assert event.tool_calls == (
        ToolCall(id="c1", name="f", arguments={"x": 1}),
        ToolCall(id="c2", name="f", arguments_raw='{"x": ', malformed=True),
    )


def test_t24_null_content_is_empty_text():
    """T24: a turn with calls and content null has empty text."""
    event = one(b'{"kind":"ModelResponded","id":"a","trajectory_id":"t","text":null,"tool_calls":[{"name":"calc"}]}')
    assert isinstance(event, ModelResponded)
    assert event.text == ""
    assert b"None" not in encode(event)


@pytest.mark.parametrize("value", [b"", b"\n", b" \r\n\n"])
def test_t34_a_record_without_lines_holds_nothing(value):
    """T34: blank lines are no events and no errors."""
    assert decode_lines(value) == []


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xfe\x00",
        b"{",
        b"7",
        b"[]",
        b'"x"',
        b"{}",
        b'{"kind":7}',
        b'{"kind":"Tick"}',
        tool(b',"seq":-1'),
        tool(b',"zz":"\xff"'),
    ],
)
def test_t35_a_bad_line_leaves_its_neighbours_alone(bad):
    """T35: in a batch only the bad line is bad, and its place is kept."""
    good = encode(SAMPLES["Tick"])
    events = [event for event, _ in decode_lines(b"\n".join([good, bad, good]))]
    assert events[0] == events[2] == SAMPLES["Tick"]
    assert isinstance(events[1], Undecodable)
    assert str(events[1])


@pytest.mark.parametrize("nested", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"9" * 5000])
def test_absurd_json_is_refused_not_raised(nested):
    """JSON that breaks parsers becomes a value or an error, never an exception."""
    ((event, _),) = decode_lines(tool(b',"zz":' + nested))
    assert isinstance(event, Undecodable | ToolReturned)


def test_a_record_over_the_line_limit_is_not_parsed():
    """A line that is absurdly long is refused by its length alone."""
    assert isinstance(refusal(b"[" + b" " * 64_000_001), TooLarge)


@pytest.mark.parametrize("flags", ['[["a"]]', "[{}]", '[1, "a"]', '"ab"', '{"a": 1}', "[null]", "7"])
def test_flags_that_are_no_words_are_refused(flags):
    """Found by fuzzing: lists within flags were a TypeError in assembly, again at each restart."""
    line = b'{"kind": "Tick", "id": "e", "trajectory_id": "-", "flags": %s}' % flags.encode()
    good = encode(Tick(id="e", trajectory_id="-"))
    (bad, _), (kept, _) = decode_lines(line + b"\n" + good)
    assert isinstance(bad, Undecodable)
    assert kept == Tick(id="e", trajectory_id="-")
