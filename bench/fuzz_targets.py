"""What bench/fuzz.py feeds: each decoder with what may come out of it. Anything else that comes out is a find, and so
is JSON of ours that a strict reader refuses.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf import json_format
from kafka.errors import UnsupportedCodecError
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from millstream import metrics
from millstream.adapters.kafka_records import unpack
from millstream.adapters.otlp_requests import decoded as protobuf_decoded
from millstream.adapters.prometheus import PrometheusMeter
from millstream.capture import otlp
from millstream.capture.edge import Edge
from millstream.capture.gateway import unzipped
from millstream.capture.importers.base import Options, import_paths
from millstream.capture.importers.reading import RowProblem, decoded
from millstream.capture.proxy.reading import Seen
from millstream.capture.proxy.recorder import Recorder
from millstream.capture.raw import RawEdge
from millstream.codec import decode, decode_lines, encode
from millstream.console import dead_letters
from millstream.dialects import openai_calls
from millstream.dialects.reading import DIALECTS, lines_of, mapped
from millstream.errors import EventError, PositionLost, SettingsError, Unavailable
from millstream.events import CLOSE_OPEN, NO_RUN, AnyEvent, EventId, FeedbackGiven, Tick
from millstream.graders.files import grade_lines, read_tasks
from millstream.graders.hosted.parsing import parse
from millstream.graders.judges import reading as judging
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.ledger import policy_events
from millstream.ndjson import filled
from millstream.ports import Output, Record
from millstream.serving import Refusal, Request
from millstream.settings import Assembly, BufferSettings, Capture, RewardSettings, Settings
from millstream.streams import assembly_state
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.dead_letters import DeadLetter, Origin, dead_letter, whole
from millstream.streams.dead_letters import Place as LetterPlace
from millstream.streams.grading import GradingStage

ROOT: Final = Path(__file__).resolve().parent.parent
CAPTURE: Final = Capture(max_text_bytes=2000, max_event_bytes=20_000)
UNZIPPED: Final = 1_000_000


class Target(NamedTuple):
    """A decoder; ``seeds`` takes a folder of files, or None, and gives what to begin from."""

    run: Callable[[bytes], None]
    seeds: Callable[[Path | None], Sequence[bytes]]


def strict(line: bytes) -> Any:
    """A JSON value as the strictest reader takes it: no NaN, UTF-8."""

    def refused(word: str) -> Any:
        raise AssertionError(f"we wrote a bare {word}")

    return json.loads(line.decode("utf-8"), parse_constant=refused)


def events(data: bytes) -> None:
    """Events as NDJSON: the codec, and the edge that bounds and redacts what the gateway takes."""
    edge = Edge(CAPTURE)
    for event, _ in decode_lines(data):
        if not isinstance(event, EventError):
            strict(encode(event))
            assert decode(encode(event)).id == event.id
            strict(edge.encode(event))


def _parts(document: Any) -> None:
    edge = RawEdge(CAPTURE)
    signals = otlp.signals_of(document)
    for signal in signals:
        headers = otlp.headers(signal, CAPTURE)
        for part in otlp.parts(document, signal, edge):
            if isinstance(part, otlp.Part):
                strict(part.line)
                assert len(part.line) <= CAPTURE.max_event_bytes
                _mapped(part.line, headers)


def _mapped(line: bytes, headers: dict[str, str]) -> None:
    with contextlib.suppress(EventError):
        for event in mapped(line, headers).events:
            assert decode(encode(event)).trajectory_id == event.trajectory_id


def otlp_json(data: bytes) -> None:
    """A request in OTLP/JSON, through the edge, each line read."""
    with contextlib.suppress(EventError):
        document = decoded(data)[0]
        if isinstance(document, dict):
            _parts(document)


def otlp_protobuf(data: bytes) -> None:
    """The same in protobuf."""
    for signal in ("spans", "logs"):
        with contextlib.suppress(EventError):
            _parts(protobuf_decoded(data, signal))  # type: ignore[arg-type]


def bodies(data: bytes) -> None:
    """A body in gzip: what comes out is bounded, however much is inside."""
    with contextlib.suppress(Refusal):
        headers = {"content-encoding": "gzip"}
        assert len(unzipped(Request(method="POST", path="/", body=data, headers=headers), UNZIPPED)) <= UNZIPPED


def spans(data: bytes) -> None:
    """Lines of a record of spans and of logs, in every dialect."""
    for dialect in sorted(DIALECTS):
        for _, line in lines_of(data):
            _mapped(line, {"dialect": dialect})


@functools.cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="millstream-fuzz-"))


def imports(data: bytes) -> None:
    """A file of any format, imported: rows that are none are told, and nothing else happens."""
    _imported(_scratch() / "rows.json", data)


def yaml(data: bytes) -> None:
    """A file of YAML, imported."""
    _imported(_scratch() / "rows.yaml", data)


def _imported(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for item in import_paths([path], Options(capture=CAPTURE)):
        if isinstance(item, RowProblem):
            str(item)
            continue
        strict_lines(item.value or b"")


def hosted(data: bytes) -> None:
    """The JSON of a hosted grader."""
    with contextlib.suppress(SettingsError):
        parse(data)


def judges(data: bytes) -> None:
    """What a judge answers: a number in its range, a label, a document."""
    text = data.decode("utf-8", "replace")
    for read in (
        lambda: judging.number(text, 0, 1),
        lambda: judging.number(text, -5, 5, "score"),
        lambda: judging.label(text, ["yes", "no"]),
        lambda: judging.document(text, "verdict", lambda _: ""),
    ):
        with contextlib.suppress(judging.Unreadable):
            read()


_CRC: Final = struct.Struct(">I")


def kafka(data: bytes) -> None:
    """The bytes of a fetch: as they are, and with a checksum that holds, so that what lies behind it is read."""
    for value in (data, _checked(data)):
        with contextlib.suppress(PositionLost, UnsupportedCodecError):
            for record in unpack(MemoryRecords(value), "telemetry", 0, 0, 1 << 20):
                assembled_record(record)


def _checked(data: bytes) -> bytes:
    from kafka.record.util import calc_crc32c

    if len(data) < 61:
        return data
    return data[:17] + _CRC.pack(calc_crc32c(data[21:])) + data[21:]


def assembled_record(record: Record) -> None:
    """A record of telemetry through assembly: outputs are sound, the state survives, and nothing is left uncounted."""
    assembler = Assembler(Assembly(max_events=50, max_bytes=100_000))
    outputs = list(assembler.feed(record))
    again = Assembler(Assembly(max_events=50, max_bytes=100_000))
    again.restore(assembler.snapshot())
    assert again.snapshot() == assembler.snapshot()
    tick = encode(Tick(id=EventId("end"), trajectory_id=NO_RUN, flags=(CLOSE_OPEN,)))
    outputs += again.feed(Record("telemetry", 0, record.offset + 1, record.log_ms, "", tick, {}))
    assert again.ledger.balance == 0
    for output in outputs:
        strict(output.value)
        if output.headers.get("kind") == "trajectory":
            _graded(Record("trajectories", 0, 0, 1, output.key, output.value, output.headers))


def assembly(data: bytes) -> None:
    """Any value in any dialect."""
    for dialect in ("millstream", *sorted(DIALECTS)):
        assembled_record(Record("telemetry", 0, 0, 1000, "k", data, {"dialect": dialect}))


def snapshots(data: bytes) -> None:
    """A snapshot of assembly that is none."""
    with contextlib.suppress(Unavailable):
        assembly_state.load(data)


@functools.cache
def _graders() -> GraderSet:
    return GraderSet([Grader("correct", lambda t: float(t.final_answer == "30"), epoch="correct@1")])


def _graded(record: Record) -> list[Output]:
    outputs = list(GradingStage(_graders()).feed(record))
    for output in outputs:
        strict_lines(output.value)
    return outputs


def grading(data: bytes) -> None:
    """A record of trajectories: graded, or a dead letter."""
    for kind in ("trajectory", "feedback"):
        for output in _graded(Record("trajectories", 0, 0, 1, "k", data, {"kind": kind})):
            if output.topic == "grades":
                _buffered(Record("grades", 0, 0, 1, "k", output.value))


def _buffered(record: Record) -> None:
    stage = BufferingStage(BufferSettings(), RewardSettings(formula="correct"))
    for output in stage.feed(record):
        strict_lines(output.value)


def strict_lines(value: bytes) -> None:
    """NDJSON of ours."""
    for line in filled(value):
        strict(line)


def buffering(data: bytes) -> None:
    """Records of grades and of policy events."""
    _buffered(Record("grades", 0, 0, 1, "k", data))
    _buffered(Record("policy-events", 0, 0, 1, "k", data))
    policy_events(Record("policy-events", 0, 0, 1, "k", data))


class _OneRecord:
    """A log that holds one record of dead letters."""

    def __init__(self, value: bytes) -> None:
        self._record = Record("dead-letters", 0, 0, 1, "k", value)

    def partitions(self, _topic: str) -> int:
        return 1

    def bounds(self, _topic: str, _partition: int = 0) -> tuple[int, int]:
        return 0, 1

    def read(self, _topic: str, _partition: int, _offset: int, _max_bytes: int = 0) -> list[Record]:
        return [self._record]


def letters(data: bytes) -> None:
    """A record of dead letters, as the command line reads it; where it came from; and the letter of these bytes."""
    log: Any = _OneRecord(data)
    for row in dead_letters.rows(log):
        with contextlib.suppress(SettingsError):
            whole(dead_letters.show(log, row.id))
    Origin.read(data.decode("utf-8", "replace"))
    record = Record("telemetry", 0, 7, 1, "k", data)
    made = dead_letter("assemble", record, LetterPlace(7, 0), data, reason="undecodable", detail="d")
    strict(made.value)
    letter = msgspec.json.decode(made.value, type=DeadLetter)
    assert whole(letter) in (None, data)


def openai(data: bytes) -> None:
    """Answers of the chat and the Responses API, streamed and not, and requests."""
    for api in ("chat", "responses"):
        reader = openai_calls.stream_reader(api)  # type: ignore[arg-type]
        for first in range(0, len(data), 997):
            reader.feed(data[first : first + 997])
        openai_calls.answered(api, reader.finish())  # type: ignore[arg-type]
        with contextlib.suppress(EventError):
            document = decoded(data)[0]
            if isinstance(document, dict):
                openai_calls.answered(api, document)  # type: ignore[arg-type]
                openai_calls.asked(api, document)  # type: ignore[arg-type]


class _Sink:
    """Takes events of a recorder as a log's edge would."""

    def __init__(self) -> None:
        self.edge = Edge(CAPTURE)

    def put(self, event: AnyEvent, size: int) -> bool:
        assert size > 0
        decode(self.edge.encode(event))
        return True

    def close(self) -> bool:
        return True


def proxy(data: bytes) -> None:
    """A call that passed the proxy: its request, its answer, both, in every coding."""
    counted = PrometheusMeter(metrics.CAPTURED)
    recorder = Recorder(_Sink(), Settings(), counted)
    asked, told = b'{"model":"m","messages":[{"role":"user","content":"q"}]}', b'data: {"choices":[]}\n\n'
    for api, kind, coding in itertools.product(
        ("chat", "responses"), (b"application/json", b"text/event-stream"), (b"", b"gzip")
    ):
        answer = [(b"content-type", kind), (b"content-encoding", coding)]
        for sent, came in ((data, told), (asked, data), (data, data)):
            headers = [(b"content-encoding", coding), (b"x-millstream-trajectory", data[:40])]
            recorder.record(
                Seen(api=api, headers=headers, began_ns=1, sent=[sent], status=200, answer_headers=answer, came=[came])  # type: ignore[arg-type]
            )
    assert b'why="error"' not in counted.page()


def rows(data: bytes) -> None:
    """Files of tasks and of answers to grade."""
    with contextlib.suppress(SettingsError):
        read_tasks(data)
    for row in grade_lines(data.splitlines(), lambda t: _graders().grade(t)[0][0].grade, {}):
        strict(msgspec.json.encode(row))


def _files(folder: Path | None, *patterns: str) -> list[bytes]:
    places = [ROOT / "examples" / "data", *([folder] if folder else [])]
    found = [
        path for place in places for pattern in patterns for path in sorted(place.rglob(pattern)) if path.is_file()
    ]
    return [path.read_bytes() for path in found if path.stat().st_size < 200_000]


def _golden() -> list[bytes]:
    """The lines of spans of every dialect."""
    folder = ROOT / "tests" / "golden" / "dialects"
    cases = [case for path in sorted(folder.glob("*.json")) for case in json.loads(path.read_text())["cases"]]
    return [json.dumps(case["line"]).encode() for case in cases]


def _event_seeds(_folder: Path | None) -> list[bytes]:
    whole_file = (ROOT / "examples" / "data" / "runs.ndjson").read_bytes()
    golden = [path.read_bytes() for path in sorted((ROOT / "tests" / "golden" / "events").rglob("*.json"))]
    return [*golden, *whole_file.splitlines()[:20], b"\n".join(whole_file.splitlines()[:12])]


def _trajectory_seeds(folder: Path | None) -> list[bytes]:
    made: list[bytes] = []
    for dialect, values in (("millstream", [_event_seeds(folder)[-1]]), ("otlp/spans", _golden())):
        assembler = Assembler(Assembly())
        assembler.feed(Record("telemetry", 0, 0, 1, "k", b"\n".join(values), {"dialect": dialect}))
        tick = encode(Tick(id=EventId("end"), trajectory_id=NO_RUN, flags=(CLOSE_OPEN,)))
        made += [output.value for output in assembler.feed(Record("telemetry", 0, 1, 1, "", tick, {}))]
    return [*made, encode(FeedbackGiven(id=EventId("f"), trajectory_id=msgspec.convert("t", str), value=0.5))]  # type: ignore[arg-type]


def _grade_seeds(folder: Path | None) -> list[bytes]:
    made = [
        output.value
        for seed in _trajectory_seeds(folder)
        for output in _graded(Record("trajectories", 0, 0, 1, "k", seed, {"kind": "trajectory"}))
    ]
    policy = {"kind": "PolicyPromoted", "lineage": "l", "version": 1, "id": "p", "reason": "bootstrap"}
    return [*made, json.dumps(policy).encode()]


def _otlp(line: bytes) -> dict[str, Any]:
    """The document of a golden line, with lists of key and value again."""
    told = json.loads(line)
    holds, things, groups, inner = (
        ("span", "spans", "resourceSpans", "scopeSpans")
        if "span" in told
        else ("log", "logRecords", "resourceLogs", "scopeLogs")
    )
    thing = told[holds] | {"attributes": _pairs(told[holds].get("attributes") or {})}
    if holds == "log":
        thing["body"] = _value(thing.get("body"))
    resource = {"attributes": _pairs(told["resource"])}
    return {groups: [{"resource": resource, inner: [{"scope": {}, things: [thing]}]}]}


def _pairs(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in told.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _pairs(value)}}
    return {"stringValue": "" if value is None else value}


def _documents(folder: Path | None) -> list[bytes]:
    found = _files(folder / "otlp_examples" if folder else None, "*otlp*.json")
    return [*(json.dumps(_otlp(line)).encode() for line in _golden()), *found]


def _requests(_folder: Path | None) -> list[bytes]:
    import base64

    made = []
    for line in _golden():
        document = _otlp(line)
        for group in document.values():
            for inner in group[0].values():
                for told in (inner[0].get("spans") or inner[0].get("logRecords")) if isinstance(inner, list) else ():
                    for name in ("traceId", "spanId", "parentSpanId"):
                        told[name] = base64.b64encode(bytes.fromhex(told.get(name) or "")).decode()
                    for name in ("startTimeUnixNano", "endTimeUnixNano", "eventName"):
                        if "logRecords" in inner[0] and name.endswith("Nano"):
                            told.pop(name, None)
        kind = ExportTraceServiceRequest if "resourceSpans" in document else ExportLogsServiceRequest
        made.append(json_format.ParseDict(document, kind(), ignore_unknown_fields=True).SerializeToString())
    return made


def _zipped(_folder: Path | None) -> list[bytes]:
    bomb = gzip.compress(b"0" * 30_000_000)
    small = gzip.compress(b'{"resourceSpans": []}')
    return [small, small + small, bomb, gzip.compress(bomb), small[:-4], gzip.compress(b"")]


def _fetches(folder: Path | None) -> list[bytes]:
    """Batches as a broker gives them, with keys and headers that others wrote."""
    made = []
    for value in (*_event_seeds(folder)[:4], None, b"\xff\xfe\x00"):
        for headers in ([], [("dialect", b"millstream")], [("kind", b"\xff"), ("n", b"1")]):
            builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
            for number in range(3):
                builder.append(timestamp=1000 + number, key=b"k\xff", value=value, headers=headers)
            builder.close()
            made.append(bytes(builder.buffer()))
    return made


def _letters(_folder: Path | None) -> list[bytes]:
    record = Record("telemetry", 0, 7, 1, "k", b"x")
    place = LetterPlace(7, 0)
    made = [
        dead_letter("assemble", record, place, raw, reason="undecodable", detail="d", topic_id="t").value
        for raw in (b"{bad", b"\xff\xfe\x00", b"x" * 70_000)
    ]
    return [*made, str(Origin("t", 0, 1, 2)).encode()]


def _replies(_folder: Path | None) -> list[bytes]:
    return [
        *(b'{"result": 0.5, "reason": "r"}', b"<think>3 issues</think> Score: 2/5", b"[[0.7]]", b"Verdict: yes"),
        *(
            b'{"verdict": {"a": 1}, "steps": [{"conclusion": "c"}]} {"verdict": 2}',
            b"Rating: 40 %",
            b'{"result": "yes"}',
        ),
    ]


def _streams(folder: Path | None) -> list[bytes]:
    chunks = (
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"a","function":'
        b'{"name":"f","arguments":"{\\"x\\":"}}]}}]}\n\ndata: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,'
        b'"function":{"arguments":"1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}\n\n'
        b"data: [DONE]\n\n"
    )
    responses = (
        b'event: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":0,"item":'
        b'{"type":"message","content":[]}}\n\ndata: {"type":"response.output_text.delta","output_index":0,'
        b'"content_index":0,"delta":"hi"}\n\ndata: {"type":"response.completed","response":{"id":"r","output":[]}}\n\n'
    )
    answer = {"id": "r", "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
    asked = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}], "stream": True}
    kept = _files(folder / "openai_cassettes" if folder else None, "*.json") if folder else []
    return [chunks, responses, json.dumps(answer).encode(), json.dumps(asked).encode(), *kept]


def _lines(_folder: Path | None) -> list[bytes]:
    golden = _golden()
    return [*golden, b"\n".join(golden[:4])]


def _snapshots(folder: Path | None) -> list[bytes]:
    assembler = Assembler(Assembly())
    assembler.feed(Record("telemetry", 0, 0, 1, "k", _event_seeds(folder)[-1], {}))
    assembler.feed(Record("telemetry", 0, 1, 1, "k", b"\n".join(_golden()), {"dialect": "otlp/spans"}))
    return [assembler.snapshot(), Assembler(Assembly()).snapshot()]


def _any(*kinds: str) -> Callable[[Path | None], Sequence[bytes]]:
    return lambda folder: _files(folder, *kinds)


def _mixed(*makers: Callable[[Path | None], Iterable[bytes]]) -> Callable[[Path | None], Sequence[bytes]]:
    return lambda folder: [seed for maker in makers for seed in maker(folder)]


TARGETS: Final[dict[str, Target]] = {
    "events": Target(events, _event_seeds),
    "otlp-json": Target(otlp_json, _documents),
    "otlp-protobuf": Target(otlp_protobuf, _requests),
    "gzip": Target(bodies, _zipped),
    "spans": Target(spans, _lines),
    "imports": Target(imports, _mixed(_any("*.json", "*.jsonl", "*.ndjson", "*.traj"), _documents)),
    "yaml": Target(yaml, _any("*.yaml", "run_state.json")),
    "hosted": Target(hosted, _any("hosted_grader.json")),
    "judges": Target(judges, _replies),
    "kafka": Target(kafka, _fetches),
    "assembly": Target(assembly, _mixed(_event_seeds, _lines)),
    "snapshots": Target(snapshots, _snapshots),
    "grading": Target(grading, _trajectory_seeds),
    "buffering": Target(buffering, _grade_seeds),
    "letters": Target(letters, _letters),
    "openai": Target(openai, _streams),
    "proxy": Target(proxy, _streams),
    "rows": Target(rows, _any("tasks.jsonl", "answers.jsonl", "chats.jsonl")),
}
