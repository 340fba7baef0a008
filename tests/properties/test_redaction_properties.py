"""Redaction, whatever the text: once is enough, JSON stays JSON, the look before is never wrong, time is linear."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.capture.edge import Edge
from millstream.capture.redaction import Redactor
from millstream.codec import decode
from millstream.events import EventId, ModelResponded, ToolCall, TrajectoryId
from millstream.settings import Capture

ALL = ("secrets", "entropy", "email", "phone", "card", "iban", "ip")
PIECES = (
    *("password=", "password: ", '"api_key": "', "secret=", "Authorization: Bearer ", "://a:", "@", "ann@example.com"),
    *("hunter2", "sk-proj-abcdefGHIJ0123456789", "4111 1111 1111 1111", "4111111111111111", "DE89370400440532013000"),
    *("+1 415 555 0132", "(510) 887-0152", "172.18.0.2", "2001:db8:85a3::8a2e:370:7334", "tel ", "482.5", "1,234"),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "MIIE",
        "-----END PRIVATE KEY-----",
        "[REDACTED:email]",
        "<card:0123456789abcdef>",
    ),
    *(
        "C2br7Phv2Bb3iNMC7kLh7iFZ2g20tUojktZC93nA",
        '"',
        "'",
        "\\",
        " ",
        "\n",
        ",",
        ":",
        "=",
        "{",
        "}",
        "[",
        "]",
        ".",
        "/",
    ),
    *(
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "id",
        "\u00e9",
        "\U0001f600",
        "0",
        "7",
        "+",
        "-",
        "(",
        "\u0664\u0661\u0661",
    ),
)
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)
names = st.sampled_from(["password", "text", "api_key", "id", "n", "value", "name", "authorization"]) | st.text(
    max_size=3
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4) | inner.map(json.dumps),
    max_leaves=12,
)


@pytest.fixture(scope="module", params=["marks", "pseudonyms"])
def redactor(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLSTREAM_REDACT_KEY", "k" * 32 if request.param == "pseudonyms" else "")
        yield Redactor(Capture(redact=ALL, redact_fields=("member no",), redact_allow=("482.5",)))


def storable(text):
    return text.encode("utf-8", "replace").decode()


@given(text=texts)
@example(text="password=password=password=hunter2")
@example(text="a@b.cc@d.ee@f.gg")
def test_twice_is_once(redactor, text):
    """What is clean stays as it is."""
    clean = redactor.text(storable(text))
    assert redactor.text(clean) == clean


@given(value=values)
def test_json_stays_json_and_numbers_stay(redactor, value):
    """Also as a text, a text in a text, and with any blanks: the same shape, the same numbers, only texts differ."""
    value = json.loads(storable(json.dumps(value, ensure_ascii=False)))
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False), json.dumps([json.dumps(value)])):
        if not isinstance(value, dict | list):
            text = f"[{text}]"  # noqa: PLW2901 - a bare value is a text like any other
        clean = redactor.text(text)
        assert bones(json.loads(clean)) == bones(json.loads(text))
        assert redactor.text(clean) == clean


def bones(value):
    """A value without what its texts and names say."""
    if isinstance(value, dict):
        return {"object": [bones(item) for item in value.values()]} if len(value) < 2 else {"object": len(value)}
    if isinstance(value, list):
        return [bones(item) for item in value]
    return "" if isinstance(value, str) else (type(value).__name__, value)


@given(value=values)
def test_the_look_before_is_never_wrong(redactor, value):
    """What it lets pass holds nothing that would go."""
    value = json.loads(storable(json.dumps({"text": value}, ensure_ascii=False)))
    encoded = msgspec.json.encode(value)
    if not redactor.suspects(encoded):
        assert redactor.tree(value) == value


@given(text=texts, value=values, size=st.integers(0, 400))
def test_an_event_that_passed_the_edge_passes_it_unchanged(text, value, size):
    """Redacted, cut or full of media: what is stored is what would be stored again, to the byte."""
    edge = Edge(Capture(redact=ALL, max_text_bytes=500))
    arguments = {"v": json.loads(storable(json.dumps(value, ensure_ascii=False)))}
    image = f"data:image/png;base64,{'iVBORw0K' * 40}" if size % 3 else ""
    one = ModelResponded(
        id=EventId("e"),
        trajectory_id=TrajectoryId("t"),
        text=storable(text) + image + "word " * size,
        tool_calls=(ToolCall(id="c", name="f", arguments=arguments, arguments_raw=storable(text)),),
    )
    line = edge.encode(one)
    assert Edge(Capture(redact=ALL, max_text_bytes=500)).encode(decode(line)) == line


HOSTILE = {
    "letters": "a",
    "digits": "1",
    "capitals and digits": "A1",
    "names": "password",
    "assignments": "password=",
    "options": "--password ",
    "elements": "<password>",
    "long elements": "<password>" + "a" * 390,
    "assigned names": "password=password:",
    "quotes": 'password="',
    "ats": "a@",
    "labels": "a@" + "b-" * 30 + ".",
    "key frames": "-----BEGIN PRIVATE KEY-----",
    "key bodies": "-----BEGIN PRIVATE KEY-----" + "A" * 300,
    "tokens": "eyJ" + "a" * 400 + ".",
    "prefixes": "sk-",
    "long tokens": "sk-" + "a" * 500,
    "groups of four": "4111 ",
    "pluses": "+1 ",
    "phones": "phone " + "1 " * 20,
    "brackets": "(510) ",
    "octets": "1.",
    "colons": "abcd:",
    "bearers": "bearer ",
    "urls": "://a:",
    "ibans": "DE89 3704 ",
    "escapes": "\\",
    "blanks": " ",
    "marks": "[REDACTED:email]",
    "open objects": '{"a":',
    "open lists": "[",
    "lines": '{"a": 1}\n',
    "json in json": '{"password": "\\"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_in_the_worst_texts(name, cpu_s):
    """256 kB of what makes an expression go back and forth take below two seconds, four times the text below ten
    times the time.
    """
    made = Redactor(Capture(redact=ALL))

    def seconds(size):
        text = (HOSTILE[name] * (size // len(HOSTILE[name]) + 1))[:size]
        return cpu_s(lambda: (made.suspects(text.encode()), made.text(text)), enough=0.05)

    short, long = seconds(64_000), seconds(256_000)
    assert long < 2
    assert long < 0.05 or long < 10 * short
