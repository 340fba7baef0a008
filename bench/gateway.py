"""What a span costs: decode only, edge and log (what the gateway does with a request), and reading it in each dialect.

python bench/gateway.py [--traces N] [--json]

CPU time of one process, the best of three; spans of an agent's run of five calls whose prompts grow, 0.9 kB each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from millstream.adapters.otlp_requests import decoded
from millstream.adapters.sqlite import open_sqlite
from millstream.capture.gateway import JSON, PROTOBUF, Gateway
from millstream.dialects.reading import mapped
from millstream.serving import Request
from millstream.settings import Capture, GatewaySettings

TEXT = "The revenue of the year was 482.5 million, up from 455.0 million. "
OPENINFERENCE, OPENLLMETRY, VERCEL, GENAI = "openinference", "openllmetry", "vercel", "genai"
MLFLOW = "mlflow"


def spans(trace: int, dialect: str = GENAI) -> list[dict[str, Any]]:
    """A run: the agent, and five calls of a model, each with a longer prompt."""
    start = 1_754_000_000_000_000_000 + trace * 1_000_000_000
    made = [_span(trace, 1, "", start, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"})]
    told: list[dict[str, str]] = [{"role": "user", "content": f"question {trace}"}]
    for number in range(5):
        answer = {"role": "assistant", "content": f"{TEXT} step {number} of {trace}"}
        attributes = _call(dialect, told, answer)
        made.append(_span(trace, number + 2, f"{1:016x}", start + number * 1000, attributes))
        told = [*told, answer, {"role": "user", "content": f"go on {number}"}]
    return made


def _call(dialect: str, given: list[dict[str, str]], gave: dict[str, str]) -> dict[str, Any]:
    if dialect == OPENINFERENCE:
        sides = {"llm.input_messages": given, "llm.output_messages": [gave]}
        return {"openinference.span.kind": "LLM", "llm.token_count.completion": 7, **_flat(sides, ".message")}
    if dialect == OPENLLMETRY:
        sides = {"gen_ai.prompt": given, "gen_ai.completion": [gave]}
        return {"llm.request.type": "chat", "gen_ai.usage.completion_tokens": 7, **_flat(sides, "")}
    if dialect == VERCEL:
        told = {"ai.prompt.messages": json.dumps(given), "ai.response.text": gave["content"]}
        return {"ai.operationId": "ai.generateText.doGenerate", "ai.usage.outputTokens": 7, **told}
    if dialect == MLFLOW:
        answer = {"choices": [{"message": gave, "finish_reason": "stop"}], "usage": {"completion_tokens": 7}}
        told = {"mlflow.spanInputs": json.dumps({"messages": given}), "mlflow.spanOutputs": json.dumps(answer)}
        return {"mlflow.spanType": '"CHAT_MODEL"', **told}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.input.messages": json.dumps([_parts(one) for one in given]),
        "gen_ai.output.messages": json.dumps([{**_parts(gave), "finish_reason": "stop"}]),
    }


def _flat(sides: dict[str, list[dict[str, str]]], infix: str) -> dict[str, str]:
    return {
        f"{side}.{n}{infix}.{name}": value
        for side, messages in sides.items()
        for n, message in enumerate(messages)
        for name, value in message.items()
    }


def _parts(message: dict[str, str]) -> dict[str, Any]:
    return {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}]}


def _span(trace: int, number: int, parent: str, start: int, attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        "traceId": f"{trace + 1:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": parent,
        "name": "chat m",
        "kind": 3,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 900),
        "attributes": attributes,
    }


def in_json(listed: list[dict[str, Any]]) -> bytes:
    """A request in OTLP/JSON."""
    told = [{**one, "attributes": [_pair(*pair) for pair in one["attributes"].items()]} for one in listed]
    resource = {"attributes": [_pair("service.name", "shop"), _pair("telemetry.sdk.language", "python")]}
    return json.dumps(
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": told}]}]}
    ).encode()


def _pair(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def in_protobuf(listed: list[dict[str, Any]]) -> bytes:
    """The same in protobuf."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for name, value in (("service.name", "shop"), ("telemetry.sdk.language", "python")):
        group.resource.attributes.add(key=name).value.string_value = value
    scoped = group.scope_spans.add()
    for one in listed:
        made = scoped.spans.add(
            trace_id=bytes.fromhex(one["traceId"]),
            span_id=bytes.fromhex(one["spanId"]),
            parent_span_id=bytes.fromhex(one["parentSpanId"]),
            name=one["name"],
            kind=one["kind"],
            start_time_unix_nano=int(one["startTimeUnixNano"]),
            end_time_unix_nano=int(one["endTimeUnixNano"]),
        )
        for name, value in one["attributes"].items():
            told = made.attributes.add(key=name).value
            if isinstance(value, int):
                told.int_value = value
            else:
                told.string_value = value
    return request.SerializeToString()


def rate(work: Callable[[], object], count: int) -> float:
    """Things a CPU second, the best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return round(count / best)


def measured(traces: int) -> dict[str, float]:
    """Spans a CPU second on each way."""
    listed = [one for trace in range(traces) for one in spans(trace)]
    batches = [listed[n : n + 512] for n in range(0, len(listed), 512)]
    texts, binaries = [in_json(batch) for batch in batches], [in_protobuf(batch) for batch in batches]
    lines = {name: [_line(one) for t in range(traces) for one in spans(t, name)] for name in _DIALECTS}
    headers = {"dialect": "otlp/spans"}
    with tempfile.TemporaryDirectory() as folder:
        embedded = open_sqlite(Path(folder) / "log.db", partitions=4)
        gateway = Gateway(embedded.log, GatewaySettings(), Capture(), decoded)
        found = {
            "JSON, decode only": rate(lambda: [msgspec.json.decode(body) for body in texts], len(listed)),
            "JSON into the log": rate(lambda: [_take(gateway, body, JSON) for body in texts], len(listed)),
            "protobuf, decode only": rate(
                lambda: [ExportTraceServiceRequest.FromString(body) for body in binaries], len(listed)
            ),
            "protobuf into the log": rate(lambda: [_take(gateway, body, PROTOBUF) for body in binaries], len(listed)),
        }
        embedded.close()
    for name, told in lines.items():
        events = sum(len(mapped(one, headers).events) for one in told)
        found[f"read {name}"] = rate(lambda told=told: [mapped(one, headers) for one in told], len(told))
        found[f"read {name}, events"] = round(found[f"read {name}"] * events / len(told))
    return found


_DIALECTS = (GENAI, OPENINFERENCE, OPENLLMETRY, VERCEL, MLFLOW)


def _line(span: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"resource": {"service.name": "shop"}, "scope": {}, "span": span})


def _take(gateway: Gateway, body: bytes, encoding: str) -> object:
    return gateway._spans(Request(method="POST", path="/v1/traces", body=body), encoding, "spans")  # noqa: SLF001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measured(asked.traces)
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        what = "events" if name.endswith("events") else "spans"
        print(f"{name:<28} {value:>10,.0f} {what} a CPU second")


if __name__ == "__main__":
    main()
