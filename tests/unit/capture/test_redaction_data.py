"""Redaction against files that no one here wrote: no answer, no gold and no table changes; finds there are meant."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from millstream.capture.blobs import Blobs
from millstream.capture.importers.base import import_paths
from millstream.capture.importers.reading import Row, RowProblem, rows
from millstream.capture.redaction import Redactor
from millstream.capture.shared import Shared
from millstream.media import references
from millstream.settings import Capture

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
ALL = ("secrets", "entropy", "email", "phone", "card", "iban", "ip")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the public data files are not here")


def values_of(folder, *suffixes):
    for path in sorted((DATA / folder).rglob("*")):
        if path.suffix in (suffixes or (".json", ".jsonl", ".ndjson", ".traj")):
            yield from (row.value for row in rows(path) if isinstance(row, Row))


@pytest.mark.parametrize("folder", ["finqa", "tatqa", "messy_answers"])
def test_no_answer_no_gold_no_program_and_no_table_changes(folder):
    """With every detector on: each value is what it was, as an object, as JSON in a text, and as a table in a text."""
    made, seen = Redactor(Capture(redact=ALL)), 0
    for value in values_of(folder):
        text = json.dumps(value)
        assert made.tree(value) == value
        assert made.text(text) == text
        for table in tables(value):
            assert made.text(table) == table
        seen += 1
    assert seen
    assert not made.counts


def tables(value):
    """The tables in a value as texts: rows with blanks, bars and tabs between their cells."""
    if isinstance(value, dict):
        for item in value.values():
            yield from tables(item)
    elif isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        for between in (" ", " | ", "\t", ", "):
            yield "\n".join(between.join(map(str, row)) for row in value)
    elif isinstance(value, list):
        for item in value:
            yield from tables(item)


def test_what_is_found_in_the_other_files_is_meant():
    """The finds by kind, over all the files of agents: what they are was read by a person."""
    found = Counter()
    for folder in (
        "tau_bench",
        "nemo_gym",
        "swe_agent",
        "who_and_when",
        "langfuse",
        "inspect_ai",
        "langwatch",
        "otlp_examples",
    ):
        made = Redactor(Capture(redact=ALL))
        for value in values_of(folder):
            made.tree(value)
        found.update(
            {kind: number for kind, number in made.counts.items() if kind in ("card", "iban", "token", "password")}
        )
    assert found["card"] == found["iban"] == 0
    assert found["token"] <= 8
    assert found["password"] <= 2


@pytest.mark.parametrize(
    "path", ["nemo_gym/resources_servers/circle_click/example_rollouts.jsonl", "inspect_ai/log_images.json"]
)
def test_images_of_real_runs_become_references(path, tmp_path):
    """No base64 is left, each reference's bytes are those of the file, and they begin as an image of its type does."""
    text = (DATA / path).read_text(encoding="utf-8")
    given = {
        hashlib.sha256(base64.b64decode(one)).hexdigest() for one in re.findall(r";base64,([A-Za-z0-9+/=]+)", text)
    }
    blobs = Blobs(tmp_path)
    lines = [
        item.value for item in import_paths([DATA / path], shared=Shared(blobs)) if not isinstance(item, RowProblem)
    ]
    found = [one for line in lines for one in references(line.decode())]
    assert found
    assert not any(b";base64," in line for line in lines)
    assert {one.sha256 for one in found} <= given
    for one in found:
        data = blobs.get(one.sha256)
        assert len(data) == one.size
        assert data.startswith({"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff"}[one.media_type])
