"""No door lets a secret through: not to the log, not to the spool; each counts what it took out."""

from __future__ import annotations

import asyncio
import json

import pytest
from spans import chat, said

from millstream.adapters.otlp_requests import decoded
from millstream.adapters.prometheus import PrometheusMeter
from millstream.adapters.sqlite import open_sqlite
from millstream.capture.client import Client
from millstream.capture.gateway import JSON, Gateway
from millstream.capture.importers.base import Options, import_into
from millstream.capture.proxy.reading import Seen
from millstream.capture.proxy.recorder import Recorder
from millstream.codec import encode
from millstream.events import EventId, ToolReturned, TrajectoryId
from millstream.serving import Request
from millstream.settings import Capture, GatewaySettings, Settings

SECRET = "sk-proj-abcdefGHIJ0123456789"
MAIL = "ann.secretive@example.com"
RULES = Capture(redact=("secrets", "email"), flush_ms=5)
TEXT = f"the key {SECRET} of {MAIL}"


@pytest.fixture
def kept(tmp_path):
    """Every byte that lies in the folder of the log and the spool."""
    return lambda: b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "given" not in path.name
    )


def assert_clean(bytes_kept):
    assert b"REDACTED:openai_key" in bytes_kept
    assert b"REDACTED:email" in bytes_kept
    assert SECRET.encode() not in bytes_kept
    assert MAIL.encode() not in bytes_kept


def test_the_sdk(log, tmp_path, kept):
    """Into the log, and into the spool while the log is away."""
    client = Client(log, RULES, tmp_path / "spool")
    with client.start_run({"id": "t", "question": TEXT}) as run:
        run.model(text=TEXT, tool_calls=[{"id": "c", "name": "f", "arguments": json.dumps({"x": TEXT})}])
    assert client.flush(10)
    assert_clean(kept())
    before = client.redacted
    assert before == {"openai_key": 3, "email": 3}
    log.away = True
    with client.start_run({"id": "t2", "question": TEXT}) as run:
        run.tool(output=TEXT)
    client.close(5)
    assert list((tmp_path / "spool").glob("*.ndjson"))
    assert_clean(kept())


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/events"])
def test_the_gateway(log, kept, path):
    """Spans as they were told, and events."""
    gateway = Gateway(log, GatewaySettings(), RULES, decoded)
    told = chat(1, None, [said("user", TEXT)], [said("assistant", TEXT)])
    attributes = [{"key": key, "value": {"stringValue": str(value)}} for key, value in told["attributes"].items()]
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [{**told, "attributes": attributes}]}]}]}
    event = ToolReturned(id=EventId("e"), trajectory_id=TrajectoryId("t"), output=TEXT)
    body = json.dumps(spans).encode() if path == "/v1/traces" else encode(event)
    answer = gateway.otlp if path == "/v1/traces" else gateway.events
    request = Request(method="POST", path=path, body=body, headers={"content-type": JSON})
    assert asyncio.run(answer(request)).status == 200
    assert_clean(kept())
    assert gateway.shared.tally.counts.keys() == {"openai_key", "email"}


def test_importers(tmp_path, kept):
    """Of a row that is chat, and of one that is an event."""
    event = ToolReturned(id=EventId("e"), trajectory_id=TrajectoryId("t"), output=TEXT)
    chat_row = json.dumps({"messages": [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "ok"}]})
    (tmp_path / "given.jsonl").write_text(f"{chat_row}\n{encode(event).decode()}\n")
    embedded = open_sqlite(tmp_path / "log.db")
    done = import_into(embedded.log, [tmp_path / "given.jsonl"], Options(capture=RULES))
    embedded.close()
    assert done.redacted == {"openai_key": 3, "email": 3}  # the question is told twice: as task and as message
    assert_clean(kept())


def test_what_a_server_takes_out_is_a_metric(log):
    """By kind, as it happens."""
    meter = PrometheusMeter()
    gateway = Gateway(log, GatewaySettings(), RULES, decoded, None, meter)
    event = ToolReturned(id=EventId("e"), trajectory_id=TrajectoryId("t"), output=TEXT + TEXT)
    request = Request(method="POST", path="/v1/events", body=encode(event), headers={"content-type": JSON})
    assert asyncio.run(gateway.events(request)).status == 200
    for kind in ("openai_key", "email"):
        assert meter.registry.get_sample_value("millstream_redacted_total", {"kind": kind}) == 2


def test_the_proxy(log, tmp_path, kept):
    """What a call sent and what came back, and neither the caller's key nor its cookie."""
    client = Client(log, RULES, tmp_path / "spool")
    recorder = Recorder(client, Settings(capture=RULES))
    answer = {"id": "r", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}}]}
    headers = [(b"authorization", b"Bearer callers-own-key-0123456789"), (b"cookie", b"session=callers-own-cookie")]
    recorder.record(
        Seen(
            api="chat",
            headers=headers,
            began_ns=1,
            ended_ns=2,
            sent=[json.dumps({"model": "m", "messages": [{"role": "user", "content": TEXT}]}).encode()],
            status=200,
            answer_headers=[(b"content-type", b"application/json")],
            came=[json.dumps(answer).encode()],
            ending="whole",
        )
    )
    assert client.flush(10)
    assert_clean(kept())
    assert b"callers-own" not in kept()
    client.close()
