"""Every fault of a hosted grader is named with its place and the nearest known word."""

import json

import pytest

from millstream.errors import SettingsError
from millstream.graders.hosted.definitions import Endpoint, Limits, Multi
from millstream.graders.hosted.parsing import checked, parse

STRING = {"type": "string_check", "name": "s", "input": "a", "reference": "a", "operation": "eq"}
TEXT = {"type": "text_similarity", "name": "t", "input": "a", "reference": "a", "evaluation_metric": "bleu"}
JUDGE = {"type": "score_model", "name": "j", "model": "m", "input": [{"role": "user", "content": "x"}]}
LABEL = {
    "type": "label_model",
    "name": "l",
    "model": "m",
    "input": [{"role": "user", "content": "x"}],
    "labels": ["a", "b"],
    "passing_labels": ["a"],
}
PYTHON = {"type": "python", "name": "p", "source": "def grade(sample, item):\n    return 1.0"}
MULTI = {"type": "multi", "name": "m", "graders": {"a": STRING, "b": TEXT}, "calculate_output": "(a + b) / 2"}
ENDPOINT = {"type": "endpoint", "name": "e", "url": "https://example.org/grade", "headers": {"Authorization": "k3y"}}

FAULTS = [
    ({"name": "s"}, "'type' is missing"),
    ({"type": "string_chek"}, "did you mean 'string_check'?"),
    ({**STRING, "inputs": "x"}, "grader: unknown field 'inputs'; did you mean 'input'?"),
    ({**STRING, "operation": "equal"}, "grader.operation: 'equal' is no choice; did you mean 'eq'?"),
    ({**STRING, "operation": None}, "grader.operation"),
    ({**STRING, "input": 3}, "grader.input: Expected `str`, got `int`"),
    ({**STRING, "name": " "}, "grader.name is empty"),
    ({k: v for k, v in STRING.items() if k != "reference"}, "missing required field `reference`"),
    ({**STRING, "input": "{{ itm.x }}"}, "grader.input: {{ itm.x }}: no namespace 'itm'; did you mean 'item'?"),
    ({**STRING, "reference": "{{ }}"}, "grader.reference: {{  }} is no path"),
    ({**STRING, "reference": "{{ item.a b }}"}, "is no step of a path"),
    ({**TEXT, "evaluation_metric": "rouge"}, "grader.evaluation_metric: 'rouge' is no choice; did you mean 'rouge_"),
    ({**TEXT, "evaluation_metric": "cosine"}, "existed in evals only"),
    ({**JUDGE, "model": ""}, "grader.model is empty"),
    ({**JUDGE, "input": []}, "grader.input has no message"),
    ({**JUDGE, "range": [1, 0]}, "grader.range [1.0, 0.0] must be finite, the low end first"),
    ({**JUDGE, "range": [0, 1, 2]}, "grader.range"),
    ({**JUDGE, "sampling_params": {"temprature": 1}}, "grader.sampling_params: unknown field 'temprature'; did you"),
    ({**JUDGE, "sampling_params": {"reasoning_effort": "hgh"}}, "did you mean 'high'?"),
    ({**JUDGE, "input": [{"role": "usr", "content": "x"}]}, "grader.input[0].role: 'usr' is no choice; did you mean"),
    ({**JUDGE, "input": [{"role": "user", "contents": "x"}]}, "unknown field 'contents'; did you mean 'content'?"),
    ({**JUDGE, "input": [{"role": "user", "content": [{"type": "input_txt"}]}]}, "did you mean 'input_text'?"),
    ({**JUDGE, "input": [{"role": "user", "content": "{{ x.y }}"}]}, "grader.input[0]: {{ x.y }}: no namespace 'x'"),
    ({**LABEL, "passing_labels": ["c"]}, "grader.passing_labels: 'c' is none of labels"),
    ({**LABEL, "labels": ["a", "a"]}, "each once"),
    ({**LABEL, "labels": [], "passing_labels": []}, "at least one label"),
    ({**PYTHON, "source": "def grade(sample):\n    return 1"}, "grader.source, line 1: grade must take two arguments"),
    ({**PYTHON, "source": "x = (1\n"}, "grader.source, line 1"),
    ({**PYTHON, "source": "class A:\n    def grade(self, a): ..."}, "defines no function grade at its top level"),
    ({**PYTHON, "source": "async def grade(sample, item): ..."}, "not async"),
    ({**PYTHON, "source": "def grade(sample, item, *, seed): ..."}, "must take two arguments"),
    ({**PYTHON, "source": "#" * 256_000}, "256,000 bytes; it must be smaller than 256,000"),
    ({**PYTHON, "source": "\ud800"}, "half a character"),
    ({**PYTHON, "source": "(" * 5000}, "grader.source"),
    ({**MULTI, "calculate_output": "a + c"}, "grader.calculate_output 'a + c': no grader 'c'; known: a, b"),
    ({**MULTI, "calculate_output": "a +"}, "grader.calculate_output 'a +': expected"),
    ({**MULTI, "calculate_output": "sin(a)"}, "no function 'sin'"),
    ({**MULTI, "calculate_output": "__import__('os')"}, "grader.calculate_output"),
    ({**MULTI, "graders": {"a": MULTI}}, "grader.graders.a: a multi holds no multi"),
    ({**MULTI, "graders": {"a": {**STRING, "operation": "is"}}}, "grader.graders.a.operation: 'is' is no choice"),
    ({**MULTI, "graders": {}}, "must hold 1 to 64 graders, not 0"),
    ({**MULTI, "graders": [STRING, STRING]}, "two graders are named 's'"),
    ({**MULTI, "graders": ["s"]}, "grader.graders[0] must be an object with a name"),
    ({**ENDPOINT, "url": "file:///etc/passwd"}, "grader.url must begin with https://"),
    ({**TEXT, "pass_threshold": "high"}, "grader.pass_threshold"),
    ([STRING], "must be a JSON object, not list"),
]


@pytest.mark.parametrize(("body", "told"), FAULTS, ids=[f"{n}" for n in range(len(FAULTS))])
def test_a_fault_is_named_with_its_place(body, told):
    """What is wrong, where, and the nearest word that would be right."""
    with pytest.raises(SettingsError) as raised:
        checked(body)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON"),
        (b"\xff\xfe\x00", "is no JSON"),
        ('{"type": "string_check", "type": "multi"}', "the key 'type' stands twice"),
        ('{"type": "text_similarity", "pass_threshold": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_json_is_said_to_be_none(text, told):
    """Bad bytes, twins, NaN and endless nesting are refused as text."""
    with pytest.raises(SettingsError) as raised:
        parse(text, where="file.json")
    assert str(raised.value).startswith("file.json is no JSON")
    assert told in str(raised.value)


@pytest.mark.parametrize("body", [STRING, TEXT, JUDGE, LABEL, PYTHON, MULTI, ENDPOINT], ids=lambda b: b["type"])
def test_sound_definitions_are_read(body):
    """Each kind, bare and inside the body of a validate request."""
    assert parse(json.dumps(body)) == checked({"grader": body})


def test_graders_of_a_multi_are_a_mapping_a_list_or_one():
    """The mapping's keys name them; in a list and alone their own names do."""
    mapping = checked({**MULTI, "graders": {"x": STRING}, "calculate_output": "x"})
    several = checked({**MULTI, "graders": [STRING, TEXT], "calculate_output": "s + t"})
    single = checked({**MULTI, "graders": STRING, "calculate_output": "s"})
    assert [list(made.graders) for made in (mapping, several, single) if isinstance(made, Multi)] == [
        ["x"],
        ["s", "t"],
        ["s"],
    ]


def test_a_grader_of_a_multi_may_be_named_type():
    """A mapping whose key is `type` is no single grader."""
    made = checked({**MULTI, "graders": {"type": STRING}, "calculate_output": "type"})
    assert list(made.graders) == ["type"]


def test_limits_can_be_set():
    """A smaller limit refuses what the service's limit allows, a larger one allows more."""
    with pytest.raises(SettingsError, match="it must be smaller than 10"):
        checked(PYTHON, Limits(source_bytes=10))
    assert checked({**PYTHON, "source": PYTHON["source"] + "\n#" + "x" * 256_000}, Limits(source_bytes=300_000))


def test_a_regex_in_a_source_is_no_fault():
    """An unknown escape is a warning of Python's, not an error of the grader."""
    checked({**PYTHON, "source": 'import re\n\ndef grade(sample, item):\n    return len(re.findall("\\d", "1"))'})


def test_headers_are_not_shown():
    """The secret of an endpoint is in no representation."""
    made = checked(ENDPOINT)
    assert isinstance(made, Endpoint)
    assert "k3y" not in repr(made)
    assert "Authorization" in repr(made)


@pytest.mark.parametrize(
    "told",
    [
        json.dumps({**STRING, "\ud800": 1}),
        json.dumps({**STRING, "name": "\ud800"}),
        json.dumps({**STRING, "operation": "a\nb"}),
        json.dumps({**STRING, "a`b": 1}),
        json.dumps({**TEXT, "evaluation_metric": {"a\n": 1}}),
        json.dumps({**MULTI, "graders": {"a\nb": {**STRING, "input": 3}}}),
        json.dumps({**MULTI, "graders": {"a`b": {**STRING, "input": 3}, "b": TEXT}}),
    ],
)
def test_odd_texts_are_named_faults(told):
    """Found by fuzzing: half an emoji was an encoding error, a newline in a name an assertion."""
    with pytest.raises(SettingsError, match=r"^grader"):
        parse(told)
