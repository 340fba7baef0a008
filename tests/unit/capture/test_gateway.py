"""The gateway over real connections: what it takes, what it rejects, and when it asks to come back."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import threading
import time
from contextlib import closing
from hashlib import sha256

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context
from spans import TRACE, a_run, chat, said, span

from millstream import metrics
from millstream.adapters.http_server import Server
from millstream.adapters.otlp_requests import decoded
from millstream.adapters.prometheus import PrometheusMeter
from millstream.capture.gateway import routes
from millstream.dialects.reading import mapped
from millstream.errors import Unavailable
from millstream.events import ModelResponded
from millstream.serving import Door
from millstream.settings import GatewaySettings, Settings

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


@pytest.fixture
def served(log):
    """A gateway before a log that can be away."""
    settings = Settings(gateway=GatewaySettings(max_unzipped_bytes=100_000, waiting=2))
    with Server(routes(log, settings, decoded), Door()) as server:
        yield server


def post(server, path, body, kind=JSON, **headers):
    """(status, body, headers) of one request."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        told = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), told)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers


def request_of(*spans):
    """An OTLP/JSON request; attributes are lists of key and value."""
    listed = [
        {**one, "attributes": [{"key": key, "value": _value(value)} for key, value in one["attributes"].items()]}
        for one in spans
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": listed}]}]}


def _value(value):
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def records(log):
    """All of telemetry."""
    found = [record for n in range(4) for record in log.read("telemetry", n, 0)]
    return sorted(found, key=lambda record: record.log_ms)


def lines(log):
    """All lines of telemetry with their record's headers."""
    return [(line, record.headers) for record in records(log) for line in record.value.splitlines()]


def test_spans_in_json_are_in_the_log_when_it_answers(served, log):
    """Each span is a line of its own, with its resource, under the partition of its trace."""
    status, body, headers = post(served, "/v1/traces", request_of(*a_run()))
    assert (status, json.loads(body), headers["content-type"]) == (200, {}, JSON)
    found = [mapped(*line) for line in lines(log)]
    assert [one.trajectory_id for one in found] == [TRACE] * 5
    assert {record.headers["dialect"] for record in records(log)} == {"otlp/spans"}
    assert json.loads(lines(log)[0][0])["resource"] == {"service.name": "shop"}


def as_json(serialized):
    """A request in OTLP/JSON: the JSON of protobuf, but for ids in hex and enums as numbers."""
    document = MessageToDict(ExportTraceServiceRequest.FromString(serialized), use_integers_for_enums=True)
    for group in document["resourceSpans"]:
        for scoped in group["scopeSpans"]:
            for one in scoped["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & one.keys():
                    one[name] = base64.b64decode(one[name]).hex()
    return json.dumps(document).encode()


def test_the_stock_exporter_in_protobuf(served, log):
    """The SDK of OpenTelemetry with its own exporter, gzipped: a run arrives whole."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    exporter = OTLPSpanExporter(endpoint=f"{served.url}/v1/traces", compression=_gzip())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _act(provider.get_tracer("t"))
    provider.shutdown()
    _arrived(log)


def test_the_same_spans_in_json(served, log):
    """What the SDK exports, in OTLP's other encoding: the same events."""
    sent = []

    class Keeping(OTLPSpanExporter):
        def _export(self, serialized_data, *rest, **more):
            sent.append(serialized_data)
            return super()._export(serialized_data, *rest, **more)

    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(Keeping(endpoint=f"{served.url}/v1/traces")))
    _act(provider.get_tracer("t"))
    provider.shutdown()
    before = [mapped(*line) for line in lines(log)]
    for body in sent:
        assert post(served, "/v1/traces", as_json(body))[:2] == (200, b"{}")
    after = [mapped(*line) for line in lines(log)]
    differing = {repr(one) for one in after} ^ {repr(one) for one in before}
    assert not differing
    _arrived(log)


def _gzip():
    from opentelemetry.exporter.otlp.proto.http import Compression

    return Compression.Gzip


def _act(tracer):
    attributes = chat(1, None, [said("user", "hi")], [said("assistant", "ho")])["attributes"]
    with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        tracer.start_span("chat m", attributes=attributes).end()


def _arrived(log):
    told = [event for line in lines(log) for event in mapped(*line).events]
    assert {event.text for event in told if isinstance(event, ModelResponded)} == {"ho"}
    assert {event.usage.output_tokens for event in told if isinstance(event, ModelResponded)} == {7}


def test_a_span_without_a_trace_is_kept_and_said_to_be_useless(served, log):
    """Partial success, in both encodings; the good span beside it is in."""
    bad = span(2, trace="0" * 32)
    status, body, _ = post(served, "/v1/traces", request_of(span(1), bad))
    assert status == 200
    told = json.loads(body)["partialSuccess"]
    assert (told["rejectedSpans"], "dead letter" in told["errorMessage"]) == ("1", True)
    assert len(lines(log)) == 2
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add().scope_spans.add()
    group.spans.add(name="x", trace_id=b"\0" * 16, span_id=b"\1" * 8)
    status, body, headers = post(served, "/v1/traces", request.SerializeToString(), PROTOBUF)
    answer = ExportTraceServiceResponse.FromString(body)
    assert (status, headers["content-type"], answer.partial_success.rejected_spans) == (200, PROTOBUF, 1)
    assert answer.partial_success.error_message == told["errorMessage"]


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("/v1/traces", b"{", JSON, 400),
        ("/v1/traces", b"[]", JSON, 400),
        ("/v1/traces", b"\xff\xff", PROTOBUF, 400),
        ("/v1/traces", b"{}", "text/html", 415),
        ("/v1/logs", b"[" * 100_000, JSON, 400),
        ("/v1/events", b"no event\n", "application/x-ndjson", 400),
        ("/v1/events", b"x", "image/png", 415),
    ],
)
def test_what_is_no_telemetry_is_refused(served, log, path, body, kind, status):
    """A status, a reason, and nothing in the log."""
    found, told, _ = post(served, path, body, kind)
    assert (found, records(log)) == (status, [])
    assert told


def test_gzip_is_taken_and_bombs_are_not(served, log):
    """Within the limit it is read; beyond it, or with something else inside, refused."""
    good = gzip.compress(json.dumps(request_of(span(1))).encode())
    assert post(served, "/v1/traces", good, content_encoding="gzip")[0] == 200
    two = gzip.compress(b'{"resource') + gzip.compress(b'Spans": []}')
    assert post(served, "/v1/traces", two, content_encoding="gzip")[0] == 200
    bomb = gzip.compress(b" " * 50_000_000)
    assert post(served, "/v1/traces", bomb, content_encoding="gzip")[0] == 413
    began = time.process_time()
    assert post(served, "/v1/traces", gzip.compress(b"") * 400_000, content_encoding="gzip")[0] == 400
    assert time.process_time() - began < 2
    assert post(served, "/v1/traces", good[:-9], content_encoding="gzip")[0] == 400
    assert post(served, "/v1/traces", b"{}", content_encoding="gzip")[0] == 400
    assert post(served, "/v1/traces", b"{}", content_encoding="br")[0] == 415
    assert len(lines(log)) == 1


def test_a_resource_told_again_with_each_span_is_bounded(served, log):
    """What would be many times its size in the log is refused whole, before the memory is full of it."""
    told = {"attributes": [{"key": f"k{n}", "value": {"stringValue": "x" * 500}} for n in range(10)]}
    spans = [span(number) for number in range(1, 1500)]
    body = {"resourceSpans": [{"resource": told, "scopeSpans": [{"spans": spans}]}]}
    status, answer, _ = post(served, "/v1/traces", body)
    assert (status, "repeats its resource" in answer.decode()) == (413, True)
    assert records(log) == []
    body["resourceSpans"][0]["scopeSpans"][0]["spans"] = spans[:20]
    assert post(served, "/v1/traces", body)[0] == 200
    assert len(lines(log)) == 20


def test_a_log_that_is_away_is_told(served, log):
    """503 with the time to come back; the same request is taken later."""
    log.away = True
    status, body, headers = post(served, "/v1/traces", request_of(span(1)))
    assert (status, headers["retry-after"], json.loads(body)["code"]) == (503, "1", 14)
    log.away = False
    assert post(served, "/v1/traces", request_of(span(1)))[0] == 200


def test_a_full_house_asks_to_come_back(served, log):
    """Two requests wait for a log that hangs; the third is told 429 at once, and the two are taken in the end."""
    log.free.clear()
    answers = []
    waiting = [
        threading.Thread(target=lambda n=n: answers.append(post(served, "/v1/traces", request_of(span(n)))[0]))
        for n in (1, 2)
    ]
    for thread in waiting:
        thread.start()
    deadline = time.monotonic() + 20
    while log.knocks < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    status, _, headers = post(served, "/v1/events", b"", "application/x-ndjson")
    assert (status, headers["retry-after"]) == (429, "1")
    log.free.set()
    for thread in waiting:
        thread.join()
    assert answers == [200, 200]


def test_the_stock_log_exporter_and_a_token(log, monkeypatch):
    """Log events of the conventions, sent by the SDK's own exporter, which shows the token as its variables say."""
    token = "a-token-of-some-length"
    with Server(routes(log, Settings(), decoded), Door(token=token)) as server:
        for shown, count in ((f"Bearer%20{token}", 1), ("Bearer%20another-token", 1)):
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={shown}")
            provider = LoggerProvider(resource=Resource.create({"service.name": "shop"}))
            exporter = OTLPLogExporter(endpoint=f"{server.url}/v1/logs", timeout=2)
            provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
            context = set_span_in_context(NonRecordingSpan(SpanContext(int(TRACE, 16), 7, is_remote=False)))
            body = {"content": "hi", "role": "user"}
            provider.get_logger("t").emit(timestamp=1, context=context, event_name="gen_ai.user.message", body=body)
            provider.shutdown()
            assert len(lines(log)) == count
        ((line, headers),) = lines(log)
    found = mapped(line, headers)
    assert (found.trajectory_id, headers["dialect"]) == (TRACE, "otlp/logs")
    assert [event.content for event in found.events if hasattr(event, "content")] == ["hi"]


def test_what_it_does_is_counted(log):
    """Requests by status, things by fate, and the time; also what was refused or could not be taken."""
    meter = PrometheusMeter(metrics.CAPTURED)
    with Server(routes(log, Settings(), decoded, meter=meter), Door()) as server:
        post(server, "/v1/traces", request_of(span(1), span(2, trace="0" * 32)))
        post(server, "/v1/traces", b"{")
        log.away = True
        post(server, "/v1/traces", request_of(span(1)))
    page = meter.page().decode()
    for status in (200, 400, 503):
        assert f'millstream_gateway_requests_total{{path="/v1/traces",status="{status}"}} 1.0' in page
    for fate in ("accepted", "rejected"):
        assert f'millstream_gateway_items_total{{fate="{fate}",path="/v1/traces"}} 1.0' in page
    assert "millstream_gateway_seconds_count 3.0" in page


def test_a_part_that_the_log_did_not_take_is_no_200(served, log):
    """A request of many traces goes to many partitions; when one of them fails the whole is told to come again, and
    coming again is right: what is in already is a duplicate.
    """
    spans = [span(n + 1, trace=f"{n + 1:032x}") for n in range(12)]
    took = []

    def append(topic, messages, partition=0):
        if len(took) == 2:
            raise Unavailable("the log is away")
        took.append(partition)
        return log.inner.append(topic, messages, partition)

    log.append = append
    assert post(served, "/v1/traces", request_of(*spans))[0] == 503
    del log.append
    assert len(lines(log)) < 12
    assert post(served, "/v1/traces", request_of(*spans))[0] == 200
    assert len({mapped(*line).trajectory_id for line in lines(log)}) == 12


def test_our_own_events_come_in_by_lines(served, log):
    """Good lines are in the log, the bad one is told with its number; secrets are out."""
    good = {"kind": "MessageReceived", "id": "e", "trajectory_id": "t", "seq": 0, "content": "sk-" + "a" * 30}
    body = (
        json.dumps(good).encode() + b"\n{}\n" + json.dumps({"kind": "Tick", "id": "x", "trajectory_id": "-"}).encode()
    )
    status, told, _ = post(served, "/v1/events", body, "application/x-ndjson")
    answer = json.loads(told)
    assert (status, answer["accepted"], answer["rejected"]) == (200, 1, 2)
    assert answer["why"].startswith("line 2: no kind")
    ((line, headers),) = lines(log)
    assert (json.loads(line)["content"], headers) == ("[REDACTED:openai_key]", {"dialect": "millstream"})


@pytest.mark.parametrize("levels", [500, 900, 100_000])
def test_one_event_nested_too_deeply_costs_no_other_its_place(served, log, levels):
    """Its neighbours are in the log; it is there flattened, or rejected by its line; its secret is nowhere."""
    deep = '{"a":' * levels + '"password=hunter2hunter"' + "}" * levels
    call = '{"id":"c","name":"f","arguments":' + deep + "}"
    first = json.dumps({"kind": "MessageReceived", "id": "e1", "trajectory_id": "t", "content": "one"})
    bad = '{"kind":"ModelResponded","id":"e2","trajectory_id":"t","tool_calls":[' + call + "]}"
    body = "\n".join((first, bad, first.replace("one", "two").replace("e1", "e3"))).encode()
    status, told, _ = post(served, "/v1/events", body, "application/x-ndjson")
    answer = json.loads(told)
    assert (status, answer["accepted"] + answer["rejected"]) == (200, 3)
    stored = b"\n".join(line for line, _ in lines(log))
    assert b'"one"' in stored
    assert b'"two"' in stored
    assert b"hunter2" not in stored


def test_secrets_are_out_and_json_stays_json(served, log):
    """Inside a text that is JSON, too: the messages can still be read, the key is gone."""
    told = chat(1, None, [said("user", "use sk-" + "b" * 30)], [said("assistant", "ok")])
    told["attributes"]["app.password"] = "hunter2hunter2"
    assert post(served, "/v1/traces", request_of(told))[0] == 200
    ((line, headers),) = lines(log)
    assert b"bbbbbbb" not in line
    assert b"hunter2" not in line
    assert [e.content for e in mapped(line, headers).events if hasattr(e, "content")] == ["use [REDACTED:openai_key]"]


def test_long_texts_are_cut_inside_their_json(served, log):
    """T14: a tool's 90 kB come back as head, tail, length and hash, wherever they are told."""
    long = "x" * 90_000
    told = span(3, None, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"})
    told["attributes"] |= {"gen_ai.tool.call.id": "c", "gen_ai.tool.call.result": json.dumps({"rows": long})}
    assert post(served, "/v1/traces", request_of(told))[0] == 200
    result = mapped(*lines(log)[0]).events[0]
    assert len(result.output) < 70_000
    assert json.loads(result.output)["rows"].startswith("xxx")
    assert (result.truncated.length, result.truncated.sha256) == (90_000, sha256(long.encode()).hexdigest())
