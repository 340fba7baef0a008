"""Every message in the GenAI conventions that this repository writes satisfies the schemas that they publish."""

from __future__ import annotations

import importlib.util
import json
import re

import jsonschema
import pytest
from spans import a_run, call, chat, result, said

from millstream.grade import GradeGiven, Scored, fail
from millstream.streams.evaluations import attributes

SIDES = {
    "gen_ai.input.messages": "input-messages",
    "gen_ai.output.messages": "output-messages",
    "gen_ai.system_instructions": "system-instructions",
    "gen_ai.tool.definitions": "tool-definitions",
    "gen_ai.retrieval.documents": "retrieval-documents",
}
CONVENTIONS = {
    "gen_ai.evaluation.name",
    "gen_ai.evaluation.score.value",
    "gen_ai.evaluation.score.label",
    "gen_ai.evaluation.explanation",
    "gen_ai.conversation.id",
    "gen_ai.response.id",
    "error.type",
}
"""What may stand on an evaluation's event, beside names of our own."""


@pytest.fixture
def valid(data):
    """Checks the messages of a span's attributes; how many it saw."""
    schemas = {
        name: json.loads((data / f"otel_genai_schema/gen-ai-{file}.json").read_text()) for name, file in SIDES.items()
    }

    def check(found):
        told = {name: json.loads(value) for name, value in found.items() if name in schemas}
        for name, value in told.items():
            jsonschema.validate(value, schemas[name])
        return len(told)

    return check


def test_spans_of_the_tests(valid):
    """Calls, results and texts, as tests make them."""
    assert sum(valid(span["attributes"]) for span in a_run()) == 4
    parts = chat(2, 1, [said("tool", result("c", {"a": 1}))], [said("assistant", "x", call("f", n=1))])
    assert valid(parts["attributes"]) == 2


def test_spans_of_the_bench(valid, root):
    """Those that the gateway's figures are measured with."""
    spec = importlib.util.spec_from_file_location("gateway_bench", root / "bench" / "gateway.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    assert sum(valid(span["attributes"]) for span in bench.spans(1, "genai")) > 0


def test_golden_lines(valid, root):
    """The lines that hold each reading to its epoch."""
    golden = json.loads((root / "tests/golden/dialects/genai.json").read_text())["cases"]
    told = [case["line"].get("span") or case["line"]["log"] for case in golden]
    assert sum(valid(one.get("attributes") or {}) for one in told) >= 4


@pytest.mark.parametrize("grade", [Scored(score=0.5, label="good", reason="r"), fail("late", "timeout")])
def test_evaluations(grade):
    """What we emit of grades holds names of the conventions, and ours under ``millstream.``; none is a message."""
    given = GradeGiven(
        id="g", trajectory_id="t", revision=1, grader="correct", epoch="e", grade=grade, cost=0.5, flags=("cached",)
    )
    names = {name for name in attributes(given) if not name.startswith("millstream.")}
    assert names <= CONVENTIONS
    assert ("gen_ai.evaluation.score.value" in names) != ("error.type" in names)


def test_nothing_else_writes_messages(root):
    """The product reads GenAI messages in its dialects and writes none: whoever adds a writer adds it here."""
    rooms = ("capture", "streams", "graders", "console", "deploy", "trainer", "examples", "millstream")
    names = re.compile("|".join(re.escape(name) for name in SIDES))
    found = {
        path.relative_to(root).as_posix()
        for room in rooms
        for path in (root / room).rglob("*.py")
        if names.search(path.read_text(encoding="utf-8"))
    }
    assert {name for name in found if not name.startswith("millstream/dialects/")} == set()
