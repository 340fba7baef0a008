"""Epochs change with what can change an outcome, and with nothing else."""

from __future__ import annotations

import json

import msgspec
import pytest

from millstream.adapters.sandbox import NoSandbox
from millstream.errors import SettingsError
from millstream.events import Task
from millstream.graders.answers import final_number
from millstream.graders.builtin import BUILTINS, builtin
from millstream.graders.epochs import base_epoch, builtin_epoch, judge_epoch, user_epoch, with_model
from millstream.graders.files import answered
from millstream.settings import SandboxSettings

SOURCE = "import millstream as ms\nfrom helper import value\n@ms.grader\ndef g(t):\n    return value\n"


@pytest.fixture
def grader_file(tmp_path):
    """A grader with a module, a package and a data file beside it."""
    (tmp_path / "graders.py").write_text(SOURCE)
    (tmp_path / "helper.py").write_text("from package.deep import value\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "deep.py").write_text("from . import other\nvalue = other.value\n")
    (tmp_path / "package" / "other.py").write_text("value = 0.5\n")
    (tmp_path / "unused.py").write_text("x = 1\n")
    (tmp_path / "prices.csv").write_text("a,1\n")
    return tmp_path / "graders.py"


def epoch(file, **changes):
    return user_epoch("g", file, **{"options": {}, "data": ("prices.csv",), "libraries": ("msgspec",), **changes})


def test_layout_and_comments_do_not_count(grader_file):
    """The syntax tree is hashed, not the text."""
    before = epoch(grader_file)
    grader_file.write_text("# a comment\n" + SOURCE.replace("return value", "return (value)  # the same"))
    (grader_file.parent / "unused.py").write_text("x = 2\n")
    assert epoch(grader_file) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("graders.py", SOURCE.replace("return value", "return value / 2")),
        ("helper.py", "value = 1.0\n"),
        ("package/deep.py", "value = 0.25\n"),
        ("package/other.py", "value = 0.75\n"),
        ("package/__init__.py", "x = 1\n"),
        ("prices.csv", "a,2\n"),
    ],
)
def test_the_file_what_it_imports_and_its_data_count(grader_file, name, text):
    """However deep the local import."""
    before = epoch(grader_file)
    (grader_file.parent / name).write_text(text)
    assert epoch(grader_file) != before


def test_parameters_libraries_and_the_name_count(grader_file):
    """The order of parameters does not."""
    plain = epoch(grader_file)
    assert epoch(grader_file, options={"a": 1, "b": 2}) == epoch(grader_file, options={"b": 2, "a": 1}) != plain
    assert epoch(grader_file, libraries=()) != plain
    assert user_epoch("h", grader_file, {}, ("prices.csv",), ("msgspec",)) != plain


def test_a_module_inside_a_package_reaches_its_package(grader_file):
    """As an entry point is: absolute imports of its own package are local."""
    inside = grader_file.parent / "package" / "grading.py"
    inside.write_text("import package.other\nfrom package import deep\n")
    before = user_epoch("g", inside, {})
    (grader_file.parent / "package" / "other.py").write_text("value = 0.9\n")
    assert user_epoch("g", inside, {}) != before


def test_the_folder_does_not_count(grader_file, tmp_path_factory):
    """The same files elsewhere are the same epoch."""
    import shutil

    elsewhere = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(grader_file.parent, elsewhere)
    assert epoch(elsewhere / "graders.py") == epoch(grader_file)


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"data": ("missing.csv",)}, "missing.csv"), ({"libraries": ("no-such-library",)}, "no-such-library")],
)
def test_what_is_named_must_be_there(grader_file, changes, told):
    """`SettingsError` names it."""
    with pytest.raises(SettingsError, match=told):
        epoch(grader_file, **changes)


def test_a_builtins_epoch_is_its_version_and_its_parameters():
    """Readable, and the same on every machine."""
    assert builtin_epoch("numeric", 1, {}) == "numeric@1"
    assert builtin_epoch("numeric", 1, {"low": 0.1}).startswith("numeric@1:")
    assert builtin("numeric").epoch == f"numeric@{BUILTINS['numeric'].version}"


def test_the_content_of_a_named_file_counts(tmp_path):
    """A schema in a file: its content, not its place."""
    (tmp_path / "s.json").write_text('{"type": "array"}')
    before = builtin("schema", {"file": "s.json"}, tmp_path).epoch
    (tmp_path / "s.json").write_text('{"type": "object"}')
    assert builtin("schema", {"file": "s.json"}, tmp_path).epoch != before


@pytest.fixture(scope="module")
def sandbox():
    """What runs code under test here; the outcomes are those of the sandbox proper (tests/contracts)."""
    made = NoSandbox(SandboxSettings())
    yield made
    made.close()


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_golden_outcomes_hold_the_version(name, root, make, sandbox):
    """An outcome that changes needs a higher version: raise VERSION in the grader's file, then write the
    golden file anew with `python tests/golden/graders/write.py`.
    """
    golden = json.loads((root / "tests" / "golden" / "graders" / f"{name}.json").read_text())
    cases = [(builtin(name, case.get("options"), None, sandbox), make_case(case, make)) for case in golden["cases"]]
    found = [msgspec.json.decode(msgspec.json.encode(grader(trajectory))) for grader, trajectory in cases]
    changed = [c for c, grade in zip(golden["cases"], found, strict=True) if outcome(c["grade"]) != outcome(grade)]
    if golden["version"] == BUILTINS[name].version:
        assert not changed, f"outcomes of {name} changed: raise its VERSION"
    else:
        pytest.fail(f"golden outcomes of {name} are of version {golden['version']}: write them anew")


def outcome(grade):
    """What of a grade a version promises: its status, score, kind and label; the words of a reason may change."""
    return {key: value for key, value in grade.items() if key != "reason"}


def make_case(case, make):
    """The trajectory of a golden case."""
    if "actions" in case:
        actions = [tuple(a) if isinstance(a, list) else a for a in case["actions"]]
        return make(*actions, **{k: case[k] for k in ("answer", "reference", "metadata", "tools") if k in case})
    task = Task(**{k: case[k] for k in ("reference", "metadata", "question") if k in case})
    return answered("case", case.get("answer"), task)


def test_the_golden_cases_cover_the_number_reader(root):
    """The numeric golden file holds at least 60 answers, most of them numbers."""
    cases = json.loads((root / "tests" / "golden" / "graders" / "numeric.json").read_text())["cases"]
    assert len(cases) >= 60
    assert sum(final_number(c.get("answer") or "") is not None for c in cases) > 40


def test_an_installed_grader_does_not_hash_the_packages_beside_it(tmp_path):
    """Its own package counts; what else is installed counts where ``libraries`` names it."""
    site = tmp_path / "lib" / "site-packages"
    for name in ("mine", "theirs"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("")
    (site / "mine" / "graders.py").write_text("import theirs\nfrom mine import rules\n")
    (site / "mine" / "rules.py").write_text("value = 1\n")
    before = user_epoch("g", site / "mine" / "graders.py", {})
    (site / "theirs" / "__init__.py").write_text("x = 1\n")
    assert user_epoch("g", site / "mine" / "graders.py", {}) == before
    (site / "mine" / "rules.py").write_text("value = 2\n")
    assert user_epoch("g", site / "mine" / "graders.py", {}) != before


def test_a_checkout_of_millstream_beside_the_file_does_not_count(tmp_path):
    """``import millstream`` in a grader never hashes Millstream, wherever it lies."""
    (tmp_path / "graders.py").write_text("import millstream as ms\n")
    before = user_epoch("g", tmp_path / "graders.py", {})
    (tmp_path / "millstream").mkdir()
    (tmp_path / "millstream" / "__init__.py").write_text("x = 1\n")
    assert user_epoch("g", tmp_path / "graders.py", {}) == before


PROMPT = [{"role": "user", "content": "rate {{ answer }}"}]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"prompt": [{"role": "user", "content": "rate {{ answer }}!"}]},
        {"parameters": {"model": "judge-1", "temperature": 1}},
        {"model": "judge-1-2026-02-02"},
        {"model": ""},
    ],
)
def test_a_judges_epoch_is_its_prompt_parameters_and_the_model_that_answered(changed):
    """Each of them alone makes another epoch; the order of the parameters does not."""
    given = {
        "name": "j",
        "prompt": PROMPT,
        "parameters": {"temperature": 0, "model": "judge-1"},
        "model": "judge-1-2026-01-01",
    }
    turned = {**given, "parameters": {"model": "judge-1", "temperature": 0}}
    assert judge_epoch(**given) == judge_epoch(**turned)
    assert judge_epoch(**{**given, **changed}) != judge_epoch(**given)


def test_what_is_known_of_a_judges_epoch_before_it_answers():
    """The model's name is set apart, and taken off again."""
    before = judge_epoch("j", "rate it", {})
    assert with_model(before, "m 1") == judge_epoch("j", "rate it", {}, model="m 1")
    assert base_epoch(with_model(before, "m 1")) == before
    assert with_model(before, " ") == before
    assert base_epoch(builtin_epoch("correct", 1, {"a": 1})) == builtin_epoch("correct", 1, {"a": 1})
