"""Images, sound and files become references with type, size and hash, in every way in which they are written."""

from __future__ import annotations

import base64
import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spans import HEADERS, chat, said

from millstream import values
from millstream.capture.blobs import Blobs
from millstream.capture.edge import Edge
from millstream.capture.media import Extractor, may_hold
from millstream.capture.raw import RawEdge
from millstream.capture.shared import Shared
from millstream.codec import decode_lines, encode
from millstream.dialects.reading import mapped
from millstream.events import EventId, MessageReceived, ModelResponded, ToolReturned, TrajectoryId
from millstream.media import Media, references
from millstream.settings import Capture
from millstream.values import tool_call

PNG = b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(700)
WAV = b"RIFF\x00\x00\x00\x00WAVE" + random.Random(2).randbytes(600)
PDF = b"%PDF-1.7" + random.Random(3).randbytes(500)


def b64(data):
    return base64.b64encode(data).decode()


def uri(kind, data):
    return f"data:{kind};base64,{b64(data)}"


def reference(kind, data):
    return str(Media(kind, len(data), hashlib.sha256(data).hexdigest()))


PARTS = {
    "openai chat": ({"type": "image_url", "image_url": {"url": uri("image/png", PNG)}}, "image/png", PNG),
    "openai audio": ({"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}}, "audio/wav", WAV),
    "openai file": (
        {"type": "file", "file": {"file_data": uri("application/pdf", PDF), "filename": "a.pdf"}},
        "application/pdf",
        PDF,
    ),
    "responses": ({"type": "input_image", "detail": "auto", "image_url": uri("image/png", PNG)}, "image/png", PNG),
    "anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}},
        "image/png",
        PNG,
    ),
    "genai": ({"type": "blob", "modality": "image", "mime_type": "image/png", "content": b64(PNG)}, "image/png", PNG),
    "genai, type untold": ({"type": "blob", "modality": "audio", "content": b64(WAV)}, "audio/wav", WAV),
    "vercel image": ({"type": "image", "image": b64(PNG), "mediaType": "image/png"}, "image/png", PNG),
    "vercel file": ({"type": "file", "data": b64(PDF), "mimeType": "application/pdf"}, "application/pdf", PDF),
    "gemini": ({"inline_data": {"mime_type": "image/png", "data": b64(PNG)}}, "image/png", PNG),
    "mcp": ({"type": "image", "data": b64(PNG), "mimeType": "image/png"}, "image/png", PNG),
    "inspect": ({"type": "image", "image": uri("image/png", PNG)}, "image/png", PNG),
    "url-safe": (
        {"type": "image", "data": base64.urlsafe_b64encode(PNG).decode().rstrip("="), "mimeType": "image/png"},
        "image/png",
        PNG,
    ),
}


@pytest.fixture
def shared(tmp_path):
    return Shared(Blobs(tmp_path / "blobs"))


def event(kind, **fields):
    return kind(id=EventId("e"), trajectory_id=TrajectoryId("t"), **fields)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_message_becomes_a_reference(name, shared):
    """Told to the SDK or by an importer: the event holds the reference, the directory the bytes."""
    part, kind, data = PARTS[name]
    content, flags = values.text_of([{"type": "text", "text": "look"}, part])
    made = decode_lines(Edge(Capture(), shared).encode(event(MessageReceived, content=content, flags=flags)))[0][0]
    assert made.content == f"look\n{reference(kind, data)}"
    assert made.flags == ("non_text_part",)
    (found,) = references(made.content)
    assert shared.blobs.get(found.sha256) == data


@pytest.mark.parametrize("name", PARTS)
def test_a_part_in_a_span_becomes_a_reference(name, shared):
    """Also in JSON inside of an attribute; the span is stored without the bytes and read with the reference."""
    part, kind, data = PARTS[name]
    told = chat(1, None, [said("user", "look", part)], [said("assistant", "a cat")])
    line = RawEdge(Capture(), shared).line({"resource": {}, "scope": {}, "span": told})
    assert b64(data)[:60].encode() not in line
    assert reference(kind, data).encode() in line
    texts = [one.content for one in mapped(line, HEADERS).events if isinstance(one, MessageReceived)]
    assert any(reference(kind, data) in text for text in texts)
    assert shared.blobs.get(hashlib.sha256(data).hexdigest()) == data


@pytest.mark.parametrize("wrapped", ["tree", "json", "json in json"])
def test_media_that_a_tool_gives_or_takes(wrapped, shared):
    """In results and arguments, as JSON of any depth; numbers and other members stay as they were written."""
    given = {"n": 1.50, "content": [PARTS["mcp"][0]], "note": "x"}
    text = json.dumps(given)
    edge = Edge(Capture(), shared)
    if wrapped == "tree":
        call = tool_call({"id": "c", "name": "f", "arguments": text})
        made = decode_lines(edge.encode(event(ModelResponded, tool_calls=(call,))))[0][0]
        assert made.tool_calls[0].arguments["content"][0]["data"] == reference("image/png", PNG)
        return
    outer = text if wrapped == "json" else json.dumps({"inner": text})
    output = decode_lines(edge.encode(event(ToolReturned, output=outer)))[0][0].output
    inner = output if wrapped == "json" else json.loads(output)["inner"]
    assert inner == text.replace(b64(PNG), reference("image/png", PNG))


def test_without_a_directory_the_reference_is_the_same():
    """Only the bytes are gone."""
    made = decode_lines(Edge(Capture()).encode(event(ToolReturned, output=f"see {uri('image/png', PNG)} there")))[0][0]
    assert made.output == f"see {reference('image/png', PNG)} there"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "image_url", "image_url": {"url": "https://h/a.png"}}, "[image_url: https://h/a.png]"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[file: file-1]"),
        ({"type": "uri", "modality": "image", "uri": "gs://b/a.png"}, "[uri: gs://b/a.png]"),
        ({"type": "input_file", "file_id": "f1"}, "[input_file: f1]"),
        ({"type": "image"}, "[image]"),
        (
            {"type": "image", "image": b"\x89PNG" + bytes(9), "mediaType": "image/png"},
            "data:image/png;base64,iVBORwAAAAAAAAAAAA==",
        ),
    ],
)
def test_links_and_short_ones_stay(part, text):
    """What is no long base64 is told as it is."""
    assert values.text_of([part]) == (text, ("non_text_part",))
    assert Extractor().text(text) is text


@pytest.mark.parametrize(
    "value",
    [
        {"format": "A" * 300, "data": "word " * 80},
        {"mime_type": "text/plain", "content": "This is a sentence, with a comma. " * 20},
        {"type": "text", "content": "x" * 5000},
        {"data": "q" * 4000},
        {"text": "data:text/plain;base64," + "!" * 300},
    ],
)
def test_what_is_no_media_stays(value):
    """Words are no base64, and base64 without a type beside it may be anything."""
    assert Extractor().tree(value) == value
    assert Extractor().text(json.dumps(value)) == json.dumps(value)


@given(st.binary(min_size=200, max_size=2000), st.sampled_from(sorted(PARTS)))
def test_any_bytes_come_back(data, name):
    """Whatever they are: type, size and hash are theirs, the look before sees them, and twice is once."""
    part = json.loads(json.dumps(PARTS[name][0]).replace(b64(PARTS[name][2]), b64(data)))
    if name == "url-safe":
        part["data"] = base64.urlsafe_b64encode(data).decode()
    kept = []
    text = json.dumps([part])
    made = Extractor(kept.append).text(text)
    assert kept == [data]
    assert may_hold(encode(event(ToolReturned, output=text)))
    (found,) = references(made)
    assert (found.size, found.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert Extractor().text(made) is made
