"""Field names, choices and answers are those of the stock client (PyPI `openai`), read from its own types."""

import types
import typing

import pytest
from openai.types import eval_create_params, graders
from openai.types.fine_tuning.alpha import GraderRunResponse
from pydantic import TypeAdapter

from millstream.graders.hosted import definitions as ours
from millstream.graders.hosted.faults import FLAGS
from millstream.graders.hosted.parsing import checked
from millstream.graders.hosted.running import timed
from millstream.graders.hosted.samples import sample_of

MESSAGE = {"role": "user", "type": "message", "content": "Is {{ sample.output_text }} right?"}
CONTENTS = [
    "plain",
    {"type": "input_text", "text": "{{ item.question }}"},
    {"type": "output_text", "text": "{{ sample.output_text }}"},
    {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
]
STRING = {"type": "string_check", "name": "s", "input": "a", "reference": "a", "operation": "eq"}
TEXT = {"type": "text_similarity", "name": "t", "input": "a", "reference": "a", "evaluation_metric": "rouge_l"}
SCORE = {
    "type": "score_model",
    "name": "j",
    "model": "judge",
    "input": [MESSAGE, {"role": "developer", "content": CONTENTS}],
    "range": [0, 5],
    "sampling_params": {
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 3,
        "max_completions_tokens": 100,
        "reasoning_effort": "low",
    },
}
LABEL = {
    "type": "label_model",
    "name": "l",
    "model": "judge",
    "input": [MESSAGE],
    "labels": ["good", "bad"],
    "passing_labels": ["good"],
}
PYTHON = {
    "type": "python",
    "name": "p",
    "source": "def grade(sample, item):\n    return 1.0\n",
    "image_tag": "2025-05-08",
}
MULTI = {"type": "multi", "name": "m", "graders": STRING, "calculate_output": "s"}
PAIRS = [
    (STRING, graders.StringCheckGraderParam, ours.StringCheck),
    (TEXT, graders.TextSimilarityGraderParam, ours.TextSimilarity),
    (SCORE, graders.ScoreModelGraderParam, ours.ScoreModel),
    (LABEL, graders.LabelModelGraderParam, ours.LabelModel),
    (PYTHON, graders.PythonGraderParam, ours.Python),
    (MULTI, graders.MultiGraderParam, ours.Multi),
]
NAMES = [pair[0]["type"] for pair in PAIRS]


def hints(kind):
    return typing.get_type_hints(kind)


def words(kind):
    """The words of a Literal, also inside Optional."""
    if typing.get_origin(kind) is typing.Literal:
        return set(typing.get_args(kind))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return set().union(*(words(part) for part in typing.get_args(kind)))
    return set()


@pytest.mark.parametrize(("body", "theirs", "mine"), PAIRS, ids=NAMES)
def test_every_field_of_the_client_is_a_field_here(body, theirs, mine):
    """No field of a client's type is unknown here, and none here is unknown there but evals' pass_threshold."""
    known = {"type", *mine.__struct_fields__}
    assert known - {"pass_threshold"} == set(hints(theirs))


@pytest.mark.parametrize(("body", "theirs", "mine"), PAIRS, ids=NAMES)
def test_what_the_client_types_as_sound_parses(body, theirs, mine):
    """One body, with every field there is, passes the client's own type and is read here."""
    TypeAdapter(theirs).validate_python(body)
    assert set(body) == set(hints(theirs))
    assert type(checked(body)) is mine


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (ours.Metric, hints(graders.TextSimilarityGraderParam)["evaluation_metric"]),
        (ours.Operation, hints(graders.StringCheckGraderParam)["operation"]),
        (ours.Effort, hints(graders.score_model_grader_param.SamplingParams)["reasoning_effort"]),
        (ours.Role, hints(graders.score_model_grader_param.Input)["role"]),
    ],
)
def test_choices_are_the_clients(mine, theirs):
    """Metrics, operations, efforts and roles are the same words."""
    theirs = typing.get_args(theirs)[0] if typing.get_origin(theirs) is typing.Required else theirs
    assert words(mine) == words(theirs) != set()


def test_sampling_parameters_are_the_clients():
    """The judge's sampling has the client's names."""
    assert set(ours.SamplingParams.__struct_fields__) == set(hints(graders.score_model_grader_param.SamplingParams))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (eval_create_params.TestingCriterionTextSimilarity, TEXT),
        (eval_create_params.TestingCriterionScoreModel, SCORE),
        (eval_create_params.TestingCriterionPython, PYTHON),
    ],
)
def test_a_testing_criterion_of_an_eval_is_read_too(kind, body):
    """Evals add a pass_threshold; it is kept."""
    body = {**body, "pass_threshold": 0.7}
    TypeAdapter(kind).validate_python(body)
    assert checked(body).pass_threshold == 0.7


def test_the_answer_is_the_clients_answer():
    """The client's model reads an answer whole, every flag of it."""
    _, found = timed(checked(STRING), {}, sample_of("x"))
    read = GraderRunResponse.model_validate(found)
    assert read.reward == 1.0
    assert read.metadata.type == "string_check"
    fields = GraderRunResponse.model_fields["metadata"].annotation.model_fields["errors"].annotation.model_fields
    aliases = {field.alias or name for name, field in fields.items()}
    assert aliases == set(found["metadata"]["errors"]) > set(FLAGS)


def test_an_answer_without_a_grade_reaches_the_client():
    """The client builds answers without checking types: a null reward arrives as None, its flag set."""
    _, found = timed(checked({**STRING, "input": "{{ item.nowhere }}"}), {}, sample_of("x"))
    read = GraderRunResponse.construct(**found)
    assert read.reward is None
    assert read.metadata.errors.invalid_variable_error is True
