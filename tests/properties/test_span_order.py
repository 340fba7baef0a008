"""Any permutation and duplication of the spans of a captured run gives the same trajectory.

The runs are those of files that no one here wrote: the Langfuse exports, their observations told as GenAI spans, and,
a trace each, the spans of the Vercel AI SDK, of the coding agents of LangWatch and of OpenTelemetry's own examples; and
the golden lines of every dialect.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from spans import HEADERS, TRACE, a_run, line

from millstream.capture.importers.langfuse import nanoseconds
from millstream.capture.importers.otlp_files import _as_otlp as as_otlp
from millstream.capture.otlp import things
from millstream.codec import encode_lines
from millstream.events import Tick
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "dialects"
OPERATIONS = {"GENERATION": "chat", "AGENT": "invoke_agent", "TOOL": "execute_tool"}


def number(name, known):
    """The id of a span for the name of an observation."""
    return known.setdefault(name, f"{len(known) + 1:016x}")


def as_span(told, known):
    """An observation as a span of the GenAI conventions."""
    operation = OPERATIONS.get((told.get("type") or "").upper())
    attributes = {"gen_ai.operation.name": operation} if operation else {}
    if operation == "chat":
        attributes |= {"gen_ai.request.model": told.get("model") or "m"}
        sides = {"gen_ai.input.messages": told.get("input"), "gen_ai.output.messages": told.get("output")}
        attributes |= {name: value if isinstance(value, str) else json.dumps(value) for name, value in sides.items()}
    if operation == "execute_tool":
        attributes |= {"gen_ai.tool.name": told.get("name"), "gen_ai.tool.call.result": json.dumps(told.get("output"))}
    parent = told.get("parentObservationId")
    return {
        "traceId": TRACE,
        "spanId": number(told["id"], known),
        "parentSpanId": number(parent, known) if parent else "",
        "name": told.get("name") or "",
        "startTimeUnixNano": nanoseconds(told.get("startTime")),
        "endTimeUnixNano": nanoseconds(told.get("endTime")),
        "attributes": attributes,
    }


@cache
def runs(folder):
    """Lines of spans, by the name of their file."""
    found = {}
    for path in sorted((folder / "langfuse").glob("*.json")):
        document = json.loads(path.read_text())
        if isinstance(document, dict) and document.get("observations"):
            known: dict[str, str] = {}
            found[path.stem] = [line(as_span(one, known)) for one in document["observations"]]
    listed = json.loads((folder / "vercel_ai_spans/spans-by-operation.json").read_text()).values()
    spans = [as_otlp(span) | {"traceId": TRACE} for some in listed for span in some]
    found["vercel"] = [line(span) for span in spans]
    for name in ("langwatch", "otlp_examples"):
        documents = [document for path in sorted((folder / name).glob("*.json")) for document in parsed(path)]
        found[name] = one_trace([told for document in documents for told in things(document, "spans")])
    for path in sorted(GOLDEN.glob("*.json")):
        cases = json.loads(path.read_text())["cases"]
        found[f"golden {path.stem}"] = one_trace([case["line"] for case in cases if "span" in case["line"]])
    return found


def parsed(path):
    """The documents of a file; none of one that is no JSON."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        return []
    return [found] if isinstance(found, dict) else []


def one_trace(told):
    """Lines of spans put into one trace; those without an id of their own get one."""
    made = []
    for number, one in enumerate(told, 1):
        span = one["span"]
        known = span.get("spanId", "").strip("0")
        made.append(
            {**one, "span": {**span, "traceId": TRACE, "spanId": span["spanId"] if known else f"{number:016x}"}}
        )
    return [json.dumps(one).encode() for one in made]


def assembled(lines):
    """The trajectory of lines that arrive one by one, in this order; None where no line tells an event."""
    assembler = Assembler(Assembly())
    for offset, one in enumerate(lines):
        assembler.feed(Record("telemetry", 0, offset, 1000, TRACE, one, HEADERS))
    tick = encode_lines([Tick(id="t", trajectory_id="-", flags=("close_open",))])
    outputs = assembler.feed(Record("telemetry", 0, len(lines), 1000, TRACE, tick, {}))
    assert assembler.ledger.balance == 0
    made = [output.value for output in outputs if output.headers["kind"] == "trajectory"]
    assert len(made) == (assembler.ledger.accepted > 0)
    return msgspec.json.decode(made[0], type=Trajectory) if made else None


@given(choose=st.data())
def test_the_order_of_arrival_means_nothing(choose):
    """Shuffled and repeated, the same events remain, in the same order, with the same hash."""
    shuffle([line(one) for one in a_run()], choose)


@given(choose=st.data())
def test_the_order_means_nothing_in_captured_runs(data, choose):
    """The same over files that no one here wrote."""
    found = runs(data)
    assert len(found) == 12 + 3 + 5
    assert min(map(len, found.values())) >= 1
    shuffle(found[choose.draw(st.sampled_from(sorted(found)))], choose)


def shuffle(lines, choose):
    """One drawn order, with repetitions, against the order of the file."""
    again = choose.draw(st.lists(st.sampled_from(lines), max_size=3))
    shuffled = choose.draw(st.permutations([*lines, *again]))
    expected, got = assembled(lines), assembled(shuffled)
    assert (got is None) == (expected is None)
    assert got is None or (got.content_hash, got.events) == (expected.content_hash, expected.events)
