"""Hosted ``python`` graders: what their function does becomes a grade, or a failure with its flag.

They run where a setting allows code without a sandbox; what the sandbox itself holds is in tests/integration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from millstream.adapters.children import Child
from millstream.adapters.sandbox import NoSandbox
from millstream.errors import SettingsError, Unavailable
from millstream.grade import Failed, Scored
from millstream.graders.hosted.code import PythonGraders
from millstream.graders.hosted.means import Means
from millstream.graders.hosted.parsing import checked
from millstream.graders.hosted.running import timed
from millstream.graders.hosted.samples import sample_of
from millstream.graders.hosted.source import imports_of, modules_of
from millstream.graders.hosted.stream import load_hosted
from millstream.graders.loading import load
from millstream.settings import Graders, SandboxSettings

GRADE = "def grade(sample, item):\n    "


@pytest.fixture(scope="module")
def means() -> Iterator[Means]:
    """What runs code here."""
    sandbox = NoSandbox(SandboxSettings(timeout_s=2, memory_bytes=1 << 30))
    yield Means(python=PythonGraders(sandbox))
    sandbox.close()


def graded(means, source, item=None, text="42"):
    definition = checked({"type": "python", "name": "p", "source": source, "image_tag": "2025-05-08"})
    return timed(definition, item or {}, sample_of(text), means)


def test_the_function_sees_the_sample_and_the_item(means):
    """As the service gave them: text, tool calls, choices, JSON where the text is JSON; the row."""
    source = GRADE + (
        "return (sample['output_text'] == '{\"x\": 3}') + (sample['output_json']['x'] == 3)"
        " + (sample['choices'][0]['message']['role'] == 'assistant') + (sample['output_tools'] == [])"
        " + (item['deep']['rows'][1] == 2.5)"
    )
    outcome, found = graded(means, source, {"deep": {"rows": [1, 2.5]}}, '{"x": 3}')
    assert outcome.grade == Scored(score=5.0)
    assert found["reward"] == 5.0
    assert not any(found["metadata"]["errors"].values())


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        ("return item['nothing']", "error", "KeyError: 'nothing'"),
        ("raise ValueError('no figure found')", "error", "ValueError: no figure found"),
        ("import os; os._exit(4)", "error", "exit code 4"),
        ("while True: pass", "timeout", "within 2 s"),
        ("return bytearray(4 << 30)", "error", "MemoryError"),
        ("return '1.0'", "unparsable", "must return a number"),
        ("return True", "unparsable", "must return a number"),
        ("return None", "unparsable", "must return a number"),
        ("return [1.0]", "unparsable", "must return a number"),
        ("return float('nan')", "unparsable", "nan"),
        ("return 10 ** 400", "unparsable", "finite"),
        ("import no_such_package", "error", "ModuleNotFoundError"),
    ],
)
def test_every_failure_has_its_flag_and_no_reward(means, body, kind, told):
    """G24: `python_grader_runtime_error` with the grader's own words; the reward is null, never 0."""
    outcome, found = graded(means, GRADE + body)
    assert isinstance(outcome.grade, Failed)
    assert outcome.grade.kind == kind
    assert told in outcome.grade.reason
    errors = found["metadata"]["errors"]
    assert found["reward"] is None
    assert errors["python_grader_runtime_error"] is True
    assert told in errors["python_grader_runtime_error_details"]
    assert errors["python_grader_server_error"] is False


def test_a_long_traceback_tells_its_last_line_and_its_end():
    """What a person needs comes first and last, within a reason's length."""
    from millstream.graders.hosted.code import _told
    from millstream.sandboxing import Ran

    told = _told(Ran(status="error", detail="Traceback\n" + "  File\n" * 900 + "ValueError: the reason"))
    assert told.startswith("ValueError: the reason\n")
    assert told.endswith("ValueError: the reason")
    assert len(told) < 1000


def test_numbers_of_numpy_are_scores(means):
    """A grader that averages with NumPy gives a score."""
    source = "import numpy as np\n" + GRADE + "return np.mean(np.array([0.25, 0.75], dtype=np.float32))"
    assert graded(means, source)[0].grade == Scored(score=0.5)


class Nowhere:
    """A machine without a sandbox, as the port tells it."""

    def run(self, code, timeout_s=None):
        raise Unavailable("there is no bwrap here; install bubblewrap")

    def check(self):
        self.run(None)

    def missing(self, modules):
        return ()

    def close(self): ...


def test_without_a_sandbox_nothing_is_run_and_nothing_starts(tmp_path):
    """The answer says what to install; a stream that needs it refuses to start."""
    nowhere = Means(python=PythonGraders(Nowhere()))
    outcome, found = graded(nowhere, GRADE + "return 1.0")
    assert outcome.grade.kind == "infrastructure"
    assert found["metadata"]["errors"]["python_grader_server_error"] is True
    assert "install bubblewrap" in found["metadata"]["errors"]["python_grader_server_error_type"]
    (tmp_path / "p.json").write_text(json.dumps({"type": "python", "name": "p", "source": GRADE + "return 1.0"}))
    with pytest.raises(SettingsError, match=r"p\.json: grader 'p'.*install bubblewrap"):
        load_hosted(tmp_path / "p.json", {}, nowhere)


def test_a_package_that_is_not_there_is_told_at_the_start(means, tmp_path):
    """By its name, before the first grade; an import that may fail is not counted."""
    source = "import no_such_package, json\n" + GRADE + "return 1.0"
    (tmp_path / "p.json").write_text(json.dumps({"type": "python", "name": "p", "source": source}))
    with pytest.raises(SettingsError, match="imports no_such_package: not installed"):
        load_hosted(tmp_path / "p.json", {}, means)
    source = "try:\n    import no_such_package\nexcept ImportError:\n    pass\nfrom os import path\nimport a.b\n"
    assert imports_of(source) == ("a", "os")
    assert modules_of("import a.b as c\nfrom d import e, f\nfrom .g import h\nfrom i import *") == (
        *("a.b", "d", "d.e", "d.f", "i", "i.*"),
    )


def test_it_grades_the_stream(means, tmp_path, make, spawned):
    """In `[graders] files` beside others, with its range; a part of a multi as well."""
    python = {"type": "python", "name": "close", "source": GRADE + "return abs(item['reference'] - 4)"}
    multi = {"type": "multi", "name": "both", "calculate_output": "close / 2", "graders": {"close": python}}
    (tmp_path / "close.json").write_text(json.dumps(python))
    (tmp_path / "both.json").write_text(json.dumps(multi))
    settings = Graders(enabled=(), files=("close.json", "both.json"), options={"close": {"high": 2}})
    graders = load(settings, tmp_path, Child, means)
    given = graders.grade(make("so", reference=6.0, answer="y"))
    assert [attempts[0].grade for attempts in given] == [Scored(score=2.0), Scored(score=1.0)]


def test_the_epoch_follows_the_code(means, tmp_path):
    """Another source is another epoch; the same file is the same."""
    epochs = set()
    for n, source in enumerate(
        (GRADE + "return 1.0", GRADE + "return 1.0", GRADE + "return 0.5", "import numpy\n" + GRADE + "return 1.0")
    ):
        (tmp_path / f"{n}.json").write_text(json.dumps({"type": "python", "name": "p", "source": source}))
        epochs.add(load_hosted(tmp_path / f"{n}.json", {}, means).epoch)
    assert len(epochs) == 3
