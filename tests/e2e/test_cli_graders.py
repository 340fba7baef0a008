"""`millstream graders`: hosted grader files checked and tried, and one that grades the stream."""

import json

import pytest

MULTI = {
    "type": "multi",
    "name": "answer is",
    "calculate_output": "0.5*a + 0.5*max(b, 0.2)",
    "graders": {
        "a": {
            "type": "string_check",
            "name": "a",
            "operation": "ilike",
            "input": "{{sample.output_text}}",
            "reference": "{{item.gold}}",
        },
        "b": {
            "type": "string_check",
            "name": "b",
            "operation": "eq",
            "input": "{{sample.output_text}}",
            "reference": "{{item.gold}}",
        },
    },
}
JUDGE = {"type": "score_model", "name": "j", "model": "big", "input": [{"role": "user", "content": "x"}]}


@pytest.fixture
def file(mill):
    def written(body, name="hosted.json"):
        (mill.folder / name).write_text(json.dumps(body), encoding="utf-8")
        return name

    return written


def test_validate_says_what_a_file_is(mill, file):
    """A sound file is valid, and what this version can't run of it is told."""
    assert mill.json("graders", "validate", file(MULTI)) == {
        "schema": "millstream.grader-validation/1",
        "valid": True,
        "name": "answer is",
        "type": "multi",
        "runs": True,
        "missing": [],
        "error": "",
    }
    found = mill.json("graders", "validate", file(JUDGE))
    assert (found["valid"], found["runs"], len(found["missing"])) == (True, False, 1)
    told = mill.run("graders", "validate", "hosted.json")
    assert (told.returncode, "not run here" in told.stdout) == (0, True)


def test_validate_refuses_with_the_place_and_the_mend(mill, file):
    """A fault is the verdict no: exit 1, in words and as JSON."""
    name = file({**MULTI, "calculate_outptu": "a"})
    told = mill.run("graders", "validate", name)
    assert told.returncode == 1
    assert told.stdout == "hosted.json: unknown field 'calculate_outptu'; did you mean 'calculate_output'?\n"
    assert mill.json("graders", "validate", name, code=1)["valid"] is False


def test_run_answers_as_the_service_did(mill, file):
    """ilike 1 and eq 0: .5 + .5·max(0, .2) = .6."""
    found = mill.json("graders", "run", file(MULTI), "--item", '{"gold": "paris"}', "--sample", "It is Paris")
    assert found["reward"] == pytest.approx(0.6)
    assert found["sub_rewards"] == {"a": 1.0, "b": 0.0}
    assert not any(found["metadata"]["errors"].values())


def test_run_without_a_grade_is_null_and_exit_1(mill, file):
    """A missing field of the item is an error with its flag, never a reward of 0."""
    found = mill.json("graders", "run", file(MULTI), "--sample", "x", code=1)
    assert found["reward"] is None
    assert found["metadata"]["errors"]["invalid_variable_error"] is True
    told = mill.run("graders", "run", "hosted.json", "--sample", "x")
    assert "reward = none" in told.stdout
    assert "no 'gold' here" in told.stdout


@pytest.mark.parametrize(
    ("item", "told"), [("{", "--item is no JSON"), ("[]", "--item must be a JSON object, not list")]
)
def test_a_bad_item_is_bad_usage(mill, file, item, told):
    """Exit 2, and which option it was."""
    done = mill.run("graders", "run", file(MULTI), "--item", item, "--sample", "x")
    assert done.returncode == 2
    assert told in done.stderr


def test_a_hosted_file_of_the_settings_is_listed(mill, file):
    """Its name as a formula can write it, its epoch, its range; one that can't run is refused at the start."""
    file(MULTI)
    mill.settings('[graders]\nenabled = []\nfiles = ["hosted.json"]\n[reward]\nformula = "answer_is"\n')
    rows = mill.json("graders", "list")["items"]
    assert [(row["name"], row["low"], row["high"]) for row in rows] == [("answer_is", 0.0, 1.0)]
    file(JUDGE)
    refused = mill.run("graders", "list")
    assert refused.returncode == 2
    assert "there is no judge" in refused.stderr


def test_run_on_rows_prints_the_first_table(mill, examples):
    """The example's rows and grader: every kind of sample, its mean, and which items teach."""
    found = mill.json(
        "graders", "run", examples / "hosted_grader.json", "--rows", examples / "hosted_rows.jsonl", "--limit", "3"
    )
    means = {line["source"]: line["mean"] for line in found["lines"]}
    assert means["own reference"] == 1.0
    assert means["another's reference"] < 0.3
    assert means["empty"] == 0.0
    told = mill.run("graders", "run", examples / "hosted_grader.json", "--rows", examples / "hosted_rows.jsonl")
    assert "own reference" in told.stdout
    assert (told.returncode, told.stderr) == (0, "")


def test_run_on_rows_that_cannot_be_read_is_partly_done(mill, file):
    """Exit 4 and the line; without any score, 1; with neither rows nor a sample, usage."""
    name = file(MULTI)
    (mill.folder / "rows.jsonl").write_text('{"gold": "x", "sample": "x"}\n{\n')
    done = mill.run("graders", "run", name, "--rows", "rows.jsonl")
    assert (done.returncode, "line 2" in done.stderr) == (4, True)
    (mill.folder / "rows.jsonl").write_text('{"sample": "x"}\n')
    assert mill.run("graders", "run", name, "--rows", "rows.jsonl").returncode == 1
    assert mill.run("graders", "run", name).returncode == 2
