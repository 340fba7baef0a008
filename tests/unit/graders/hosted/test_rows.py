"""A grader tried on the rows that people have: which shapes are read, and what the table says of good and bad ones."""

import json

import pytest

from millstream.graders.hosted.parsing import checked
from millstream.graders.hosted.rows import BadRow, Row, read_rows
from millstream.graders.hosted.trial import EMPTY, FOREIGN, GIVEN, OWN, tried

SAID = {"role": "assistant", "content": "Paris"}
ASKED = {"role": "user", "content": "The capital of France?"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
EXACT = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.gold}}",
}


def read(*rows):
    return list(read_rows(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))


@pytest.mark.parametrize(
    "row",
    [
        {"gold": "Paris", "sample": "Paris"},
        {"gold": "Paris", "samples": ["Paris"]},
        {"gold": "Paris", "model_sample": "Paris"},
        {"gold": "Paris", "output_text": "Paris"},
        {"gold": "Paris", "messages": [ASKED, SAID]},
        {"item": {"gold": "Paris"}, "sample": {"output_text": "Paris", "output_tools": []}},
        {"datasource_item": {"gold": "Paris"}, "sample": {"output": [SAID]}},
        {"gold": "Paris", "sample": {"choices": [{"message": SAID}]}},
        {"gold": "Paris", "output": [{"role": "assistant", "content": [{"type": "output_text", "text": "Paris"}]}]},
    ],
)
def test_a_sample_is_found_wherever_it_stands(row):
    """Training rows, items of evals, and their output items."""
    (found,) = read(row)
    assert [sample["output_text"] for sample in found.samples] == ["Paris"]
    assert found.reference() == "Paris"
    assert "sample" not in found.item


def test_a_training_row_has_no_sample():
    """Its last message is the user's."""
    (row,) = read({"messages": [ASKED], "gold": "Paris"})
    assert row.samples == ()
    assert row.item["messages"] == [ASKED]


def test_tool_calls_come_along():
    """As `sample.output_tools`."""
    (row,) = read({"messages": [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}]})
    assert row.samples[0]["output_tools"] == [CALL]
    assert row.samples[0]["output_text"] == ""


@pytest.mark.parametrize("line", [b"{", b"[1]", b'"x"', b"\xff", b'{"a": NaN}', b'{"a": 1, "a": 2}'])
def test_a_bad_line_is_named_and_the_rest_goes_on(line):
    """With its number; empty lines are none."""
    good = {"gold": "a"}
    found = read(good, b"", line, good)
    assert [type(row) for row in found] == [Row, BadRow, Row]
    assert "line 3" in found[1].told


@pytest.mark.parametrize(
    ("item", "name", "reference"),
    [({"gold": 3}, "", "3"), ({"answer": "x", "gold": "y"}, "gold", "y"), ({"gold": True}, "", None), ({}, "", None)],
)
def test_the_reference_is_a_field_of_the_item(item, name, reference):
    """The first that is known, or the one that is named."""
    (row,) = read(item)
    assert row.reference(name) == reference


def lines_of(trial):
    return {line.source: line for line in trial.lines}


ROWS = (
    {"gold": "Paris", "samples": ["Paris", "Rome"]},
    {"gold": "Rome", "samples": ["Rome", "Rome"]},
    {"gold": "Oslo", "samples": ["x"]},
)


def test_the_table_of_a_good_grader():
    """Its own reference gets all, another's and nothing get none; one item of two teaches."""
    trial = tried(checked(EXACT), read(*ROWS))
    lines = lines_of(trial)
    assert (lines[GIVEN].samples, lines[GIVEN].mean) == (5, pytest.approx(3 / 5))
    assert [lines[source].mean for source in (OWN, FOREIGN, EMPTY)] == [1.0, 0.0, 0.0]
    assert (trial.different, trial.same) == (1, 1)
    assert trial.faults == {}


def test_failures_are_counted_apart_and_never_scored():
    """A row without the field fails; the first fault is told with its line."""
    trial = tried(checked(EXACT), read(*ROWS, {"gild": "x", "samples": ["x"]}))
    lines = lines_of(trial)
    assert (lines[GIVEN].samples, lines[GIVEN].failed, lines[GIVEN].mean) == (6, 1, pytest.approx(3 / 5))
    assert trial.faults == {"invalid_variable_error": 3}
    assert trial.first["invalid_variable_error"].startswith("line 4:")


def test_a_threshold_counts_who_passed():
    """Where the grader has one."""
    grader = {**EXACT, "type": "text_similarity", "evaluation_metric": "fuzzy_match", "pass_threshold": 0.9}
    del grader["operation"]
    assert lines_of(tried(checked(grader), read(*ROWS)))[OWN].passed == 3
    assert lines_of(tried(checked(EXACT), read(*ROWS)))[OWN].passed is None


def test_scores_that_the_service_gave_are_compared():
    """By the grader's name, whose suffix the service made."""
    rows = [
        {"datasource_item": {"gold": "a"}, "sample": {"output": [{**SAID, "content": "a"}]}, "results": results}
        for results in ([{"name": "exact-1f2e", "score": 1.0}], [{"name": "exact", "score": 0.0}], [{"name": "other"}])
    ]
    trial = tried(checked(EXACT), read(*rows))
    assert (trial.compared, trial.agreed) == (2, 1)


def test_no_rows_give_no_figures():
    """None, rather than 0."""
    assert all(line.mean is None and line.samples == 0 for line in tried(checked(EXACT), []).lines)


def test_a_whole_job_is_read_for_its_grader():
    """The body of a fine-tuning job, or of a validate request."""
    job = {"model": "m", "method": {"type": "reinforcement", "reinforcement": {"grader": EXACT}}}
    assert checked(job) == checked({"grader": EXACT}) == checked(EXACT)


SPOKEN = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1767225600, "transcript": "It is Paris."}
ITEM_CALL = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}


@pytest.mark.parametrize(
    "row",
    [
        {"sample": {"output_text": "", "output_audio": SPOKEN}},
        {"sample": {"choices": [{"index": 0, "message": {"role": "assistant", "content": None, "audio": SPOKEN}}]}},
        {"messages": [ASKED, {"role": "assistant", "content": None, "audio": SPOKEN}]},
        {"output": [{"role": "assistant", "content": [{"type": "output_audio", **SPOKEN}]}]},
    ],
)
def test_what_the_model_spoke_comes_along(row):
    """As `sample.output_audio`, and in the message of `sample.choices`; a transcript is not made the text."""
    ((sample,),) = (one.samples for one in read(row))
    assert sample["output_audio"] == SPOKEN
    assert sample["choices"][0]["message"]["audio"] == SPOKEN
    assert sample["output_text"] == ""


@pytest.mark.parametrize("audio", [None, "UklGRg==", {"id": "audio_1"}, [SPOKEN], 3])
def test_what_is_no_audio_leaves_the_name_out(audio):
    """A reference to audio of an earlier turn, or anything else: a path to it fails, and nothing is made up."""
    (row,) = read({"messages": [ASKED, {**SAID, "audio": audio}]})
    assert "output_audio" not in row.samples[0]


def test_choices_stay_as_they_came():
    """All of them, with what is only there, such as log probabilities."""
    choices = [{"index": 0, "message": SAID, "logprobs": {"content": []}}, {"index": 1, "message": SAID}]
    (row,) = read({"sample": {"choices": choices}})
    assert row.samples[0]["choices"] == choices


def test_the_output_of_responses_is_one_sample():
    """Everything after the last item of another: texts joined, calls in the shape of chat messages."""
    output = [
        {"type": "function_call_output", "call_id": "b", "output": "3"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Par"}]},
        ITEM_CALL,
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "is"}]},
    ]
    (row,) = read({"sample": {"output": output}})
    assert (row.samples[0]["output_text"], row.samples[0]["output_tools"]) == ("Paris", [CALL])
    (row,) = read({"messages": [ASKED, {"role": "assistant", "content": "no"}, ASKED, ITEM_CALL]})
    assert (row.samples[0]["output_text"], row.samples[0]["output_tools"]) == ("", [CALL])
