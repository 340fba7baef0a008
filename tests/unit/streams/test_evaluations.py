"""Grades as OpenTelemetry events: valid OTLP, no score where a grader failed, each grade once."""

import json

import msgspec
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from millstream.adapters.http_client import HttpPoster
from millstream.adapters.otlp import OtlpFile, OtlpHttp, headers_of
from millstream.adapters.sqlite import open_sqlite
from millstream.errors import Unavailable
from millstream.grade import Abstained, Censored, Failed, GradeGiven, Scored
from millstream.ports import Message
from millstream.streams.evaluations import EVENT, EvaluationExporter, attributes, request_of
from millstream.topics import GRADES

SCORED = Scored(score=0.5, label="close", reason="off by one")


def given(name="g1", grade=SCORED, **fields):
    return GradeGiven(
        id=name, trajectory_id="run-1", revision=1, grader="correct", epoch="correct@1", grade=grade, **fields
    )


@pytest.fixture
def log(tmp_path):
    opened = open_sqlite(tmp_path / "log.db")
    yield opened.log
    opened.close()


def append(log, *grades, partition=0):
    lines = b"\n".join(msgspec.json.encode(grade) for grade in grades)
    log.append(GRADES.name, [Message("run-1", lines, {"kind": "grades"})], partition)


def drain(exporter):
    while exporter.step():
        pass


def ids(text):
    """The grade ids of lines of requests, in order."""
    records = [
        record
        for line in text.splitlines()
        for logs in json.loads(line)["resourceLogs"]
        for scope in logs["scopeLogs"]
        for record in scope["logRecords"]
    ]
    found = [{a["key"]: a["value"] for a in record["attributes"]} for record in records]
    return [attribute["millstream.grade.id"]["stringValue"] for attribute in found]


def test_a_request_is_otlp():
    """Protobuf's own reader of OTLP JSON takes it whole, times and types included."""
    body = request_of([(given(known_ms=5, cost=0.25, flags=("cached",)), 7), (given("g2", Abstained(reason="x")), 8)])
    read = json_format.Parse(body, ExportLogsServiceRequest())
    first, second = read.resource_logs[0].scope_logs[0].log_records
    assert (first.event_name, first.time_unix_nano, first.observed_time_unix_nano) == (EVENT, 5_000_000, 7_000_000)
    assert second.time_unix_nano == 8_000_000
    found = {a.key: a.value for a in first.attributes}
    assert found["gen_ai.evaluation.score.value"].double_value == 0.5
    assert found["millstream.grade.attempt"].int_value == 1
    assert found["millstream.grade.cost"].double_value == 0.25


@pytest.mark.parametrize(
    ("grade", "score", "error"),
    [
        (SCORED, 0.5, None),
        (Scored(score=0.0), 0.0, None),
        (Failed(kind="timeout", reason="late"), None, "timeout"),
        (Failed(kind="unparsable", reason="what?"), None, "unparsable"),
        (Abstained(reason="nothing to say"), None, None),
        (Censored(reason="cut short"), None, None),
    ],
)
def test_a_grader_that_failed_has_an_error_and_no_score(grade, score, error):
    """And one that said nothing has neither."""
    found = attributes(given(grade=grade))
    assert found["gen_ai.evaluation.name"] == "correct"
    assert found.get("gen_ai.evaluation.score.value") == score
    assert found.get("error.type") == error


def test_a_file_gets_each_grade_once(log, tmp_path):
    """Repeated records, a restart and a crash between line and offsets leave no grade twice."""
    file, place = tmp_path / "out.jsonl", tmp_path / "place.json"
    append(log, given("a"), given("b"))
    append(log, given("a"))
    exporter = EvaluationExporter(log, OtlpFile(file, place))
    drain(exporter)
    assert ids(file.read_text()) == ["a", "b"]
    kept = place.read_bytes()
    append(log, given("c"))
    drain(exporter)
    place.write_bytes(kept)  # as if it had crashed before the offsets were kept
    append(log, given("d"), partition=log.partitions(GRADES.name) - 1)
    drain(EvaluationExporter(log, OtlpFile(file, place)))
    assert ids(file.read_text()) == ["a", "b", "c", "d"]
    for line in file.read_text().splitlines():
        json_format.Parse(line, ExportLogsServiceRequest())


def test_a_file_that_was_removed_is_written_anew(log, tmp_path):
    """A projection can be dropped; another log begins after what is there."""
    file, place = tmp_path / "out.jsonl", tmp_path / "place.json"
    append(log, given("a"))
    drain(EvaluationExporter(log, OtlpFile(file, place)))
    file.unlink()
    drain(EvaluationExporter(log, OtlpFile(file, place)))
    assert ids(file.read_text()) == ["a"]
    other = open_sqlite(tmp_path / "other.db")
    append(other.log, given("z"))
    drain(EvaluationExporter(other.log, OtlpFile(file, place)))
    other.close()
    assert ids(file.read_text()) == ["a", "z"]


def test_a_line_that_is_no_grade_is_passed_over(log, tmp_path):
    """The other readers make it a dead letter; its neighbours are told."""
    lines = b"\n".join([msgspec.json.encode(given("a")), b"{broken", msgspec.json.encode(given("b"))])
    log.append(GRADES.name, [Message("run-1", lines, {"kind": "grades"})], 0)
    drain(EvaluationExporter(log, OtlpFile(tmp_path / "out.jsonl", tmp_path / "place.json")))
    assert ids((tmp_path / "out.jsonl").read_text()) == ["a", "b"]


def test_a_collector_that_is_away_gets_it_later(log, chat, tmp_path):
    """Nothing is skipped: the same batch comes again, with the headers that the environment names."""
    poster = HttpPoster()
    append(log, given("a"))
    sink = OtlpHttp(poster, f"{chat.url}/logs", headers_of("x-key=secret, y=1"), tmp_path / "place.json")
    exporter = EvaluationExporter(log, sink)
    chat.script(503, 400, {"body": "{}"})
    for _ in range(2):
        with pytest.raises(Unavailable):
            exporter.step()
    drain(exporter)
    assert [ids(json.dumps(body)) for body in chat.asked] == [["a"]] * 3
    assert (chat.headers[0]["x-key"], chat.headers[0]["y"]) == ("secret", "1")
    drain(EvaluationExporter(log, sink))
    assert len(chat.asked) == 3
    poster.close()
