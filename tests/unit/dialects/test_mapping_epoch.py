"""What the dialects read in golden lines: a change of it raises `MAPPING_EPOCH`, so that history is read again."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from millstream.dialects import reading
from millstream.dialects.spans import decoded

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "dialects"
NAMES = ("genai", "mlflow", "openinference", "openllmetry", "vercel")


def told(case):
    """What the writer of the golden files writes."""
    spec = importlib.util.spec_from_file_location("write", GOLDEN / "write.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.told(case)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_is_of_this_epoch(name):
    """The events of each line to the byte. When a reading is mended: raise the epoch, run the writer, `millstream
    replay` revises what history tells otherwise.
    """
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert golden["mapping_epoch"] == reading.MAPPING_EPOCH, "run tests/golden/dialects/write.py"
    for case in golden["cases"]:
        assert told(case) == case["told"], "a reading changed: raise MAPPING_EPOCH in dialects/reading.py"


def test_every_dialect_has_golden_lines():
    """Each of the five reads lines of its own file."""
    found = {}
    for name in NAMES:
        for case in json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))["cases"]:
            span = decoded(json.dumps(case["line"]).encode(), "log" if case["dialect"] == "otlp/logs" else "span")
            speaker = next((one for one in reading._SPEAKERS if one.reads(span)), None)
            found.setdefault(speaker, set()).add(name)
    assert {module for module in found if module} == set(reading._SPEAKERS)
