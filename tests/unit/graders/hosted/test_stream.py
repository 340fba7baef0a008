"""A hosted grader's JSON as a grader of the stream."""

import json

import pytest

from millstream.adapters.children import Child
from millstream.errors import SettingsError
from millstream.grade import Failed, Scored
from millstream.graders.hosted.samples import item_of_run, sample_of_run
from millstream.graders.hosted.stream import grader_name, load_hosted
from millstream.graders.loading import load
from millstream.settings import Graders

STRING = {
    "type": "string_check",
    "name": "is right",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.reference }}",
    "operation": "ilike",
}


@pytest.fixture
def write(tmp_path):
    def written(body, name="hosted.json"):
        (tmp_path / name).write_text(json.dumps(body), encoding="utf-8")
        return tmp_path / name

    return written


def no_child(module):
    raise AssertionError(f"a hosted grader needs no child process ({module})")


def test_a_json_file_is_a_grader(write, tmp_path, make):
    """`[graders] files` takes it beside built-ins, and no child process is started for it."""
    write(STRING)
    graders = load(Graders(enabled=("exact",), files=("hosted.json",)), tmp_path, no_child)
    assert graders.names == ("exact", "is_right")
    given = graders.grade(make("so", reference="paris", answer="It is Paris"))
    assert [attempts[0].grade for attempts in given][1] == Scored(score=1.0)


def test_it_stands_beside_a_python_file(write, tmp_path, make, spawned):
    """Both kinds of file run; each in its own place."""
    write(STRING)
    (tmp_path / "mine.py").write_text("import millstream as ms\n\n@ms.grader\ndef mine(t):\n    return 0.5\n")

    def spawn(module):
        spawned.append(Child(module))
        return spawned[-1]

    graders = load(Graders(enabled=(), files=("mine.py", "hosted.json")), tmp_path, spawn)
    given = graders.grade(make("so", reference="x", answer="y"))
    assert {g[0].grader.name: g[0].grade for g in given} == {"is_right": Scored(score=0.0), "mine": Scored(score=0.5)}


def test_the_item_is_the_task(make):
    """Metadata and reference by name; metadata stands before our own names."""
    item = item_of_run(make("x", reference=3.5, question="how much?", metadata={"unit": "m", "question": "theirs"}))
    assert item == {
        "task_id": "",
        "question": "theirs",
        "reference": 3.5,
        "reference_answer": 3.5,
        "unit": "m",
    }


def test_the_sample_is_the_final_answer_and_the_calls(make):
    """Tool calls are as in chat messages, malformed ones with their raw text."""
    sample = sample_of_run(make(("look", {"a": 1}, "ok"), ("look", "{broken", "no"), answer='{"x": 2}'))
    assert sample["output_json"] == {"x": 2}
    assert [call["function"]["arguments"] for call in sample["output_tools"]] == ['{"a": 1}', "{broken"]
    assert sample["choices"][0]["message"]["content"] == '{"x": 2}'


def test_a_task_without_a_reference_fails_the_grade(write, make):
    """A missing path is Failed in the stream too, never 0."""
    grade = load_hosted(write(STRING), {})(make("x", answer="y"))
    assert isinstance(grade, Failed)
    assert "reference" in grade.reason


def test_a_formula_outside_its_range_is_failed_until_the_range_is_declared(write, make):
    """`[graders.options.NAME] low, high` declares the range of a multi."""
    body = {"type": "multi", "name": "m", "graders": {"a": STRING}, "calculate_output": "3 * a - 1"}
    run = make("x", reference="y", answer="y")
    assert isinstance(load_hosted(write(body), {})(run), Failed)
    assert load_hosted(write(body), {"m": {"low": -1, "high": 2}})(run) == Scored(score=2.0)


@pytest.mark.parametrize(
    ("body", "options", "told"),
    [
        ({**STRING, "operation": "is"}, {}, "hosted.json.operation"),
        ({"type": "python", "name": "p", "source": "def grade(sample, item): ..."}, {}, "sandbox"),
        (STRING, {"is_right": {"lo": 0}}, "unknown option 'lo'; did you mean 'low'?"),
        (STRING, {"is_right": {"low": "a"}}, "must be numbers, not 'a'"),
        (STRING, {"is_right": {"low": 2}}, "low before high"),
        ({**STRING, "name": "feedback"}, {}, "choose another name"),
    ],
)
def test_what_cannot_run_is_refused_at_the_start(write, body, options, told):
    """A broken file, a kind that has no runner yet, a bad option: said before anything is graded."""
    with pytest.raises(SettingsError) as raised:
        load_hosted(write(body), options)
    assert told in str(raised.value)


def test_a_missing_file_and_twins_are_refused(write, tmp_path):
    """The file that is not there is named; two graders of one name are not told apart by luck."""
    with pytest.raises(SettingsError, match=r"no grader file at .*gone\.json"):
        load(Graders(enabled=(), files=("gone.json",)), tmp_path, no_child)
    write(STRING)
    write(STRING, "again.json")
    with pytest.raises(SettingsError, match="two graders are named 'is_right'"):
        load(Graders(enabled=(), files=("hosted.json", "again.json")), tmp_path, no_child)


def test_the_epoch_is_what_decides_a_grade(write):
    """Layout and defaults written out change nothing; an operation and a range do."""
    first = load_hosted(write(STRING), {})
    laid_out = write(STRING)
    laid_out.write_text(json.dumps(dict(reversed(STRING.items())), indent=4), encoding="utf-8")
    assert load_hosted(laid_out, {}).epoch == first.epoch
    assert first.epoch.startswith("is_right@")
    assert load_hosted(write({**STRING, "operation": "eq"}), {}).epoch != first.epoch
    assert load_hosted(write(STRING), {"is_right": {"high": 2}}).epoch != first.epoch


@pytest.mark.parametrize(
    ("name", "plain"), [("is right", "is_right"), ("a-b", "a_b"), ("2nd", "_2nd"), ("ok", "ok"), ("é", "hosted")]
)
def test_names_become_names_of_a_formula(name, plain):
    """A reward formula can name every hosted grader."""
    assert grader_name(name) == plain
