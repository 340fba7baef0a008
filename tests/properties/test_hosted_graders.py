"""Hosted graders on any text: a score in its range or a Failed grade, and never a broken process."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SettingsError
from millstream.grade import Failed, Scored
from millstream.graders.hosted.definitions import KINDS, Metric
from millstream.graders.hosted.parsing import checked, parse
from millstream.graders.hosted.running import run
from millstream.graders.hosted.samples import sample_of
from millstream.graders.hosted.similarity import similarity
from millstream.graders.hosted.templates import render

TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(["a", "b", "the", "1.5", ".", "{{"]), max_size=12).map(" ".join)
METRICS = [metric for metric in get_args(Metric) if metric != "cosine"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("metric", METRICS)
@given(text=TEXTS, reference=TEXTS)
def test_a_similarity_is_a_share(metric, text, reference):
    """Any two texts are between 0 and 1 alike."""
    assert 0 <= similarity(metric, text, reference) <= 1


@given(text=st.text(max_size=80), item=st.dictionaries(st.text(max_size=4), JSON, max_size=3))
def test_a_sample_is_inserted_as_it_is(text, item):
    """Whatever a model says stays what it said."""
    assert render("{{ sample.output_text }}", {"item": item, "sample": sample_of(text)}) == text


@given(body=JSON | st.fixed_dictionaries({"type": st.sampled_from(sorted(KINDS)), "name": JSON, "input": JSON}))
def test_any_json_is_a_grader_or_a_named_fault(body):
    """Reading raises `SettingsError` alone."""
    told = ""
    try:
        checked(body)
    except SettingsError as error:
        told = str(error)
    assert not told or told.startswith("grader")


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_grader_or_a_named_fault(data):
    """Reading bytes raises `SettingsError` alone."""
    with pytest.raises(SettingsError, match=r"^grader"):
        parse(data)


@given(formula=st.text(alphabet="ab01+-*/^(). ,minexplogsqrt", max_size=16), text=TEXTS)
def test_any_formula_gives_a_number_or_fails(formula, text):
    """What can be read gives a finite score or a Failed grade."""
    one = {
        "type": "string_check",
        "name": "a",
        "operation": "eq",
        "input": "{{ sample.output_text }}",
        "reference": "a",
    }
    body = {"type": "multi", "name": "m", "graders": {"a": one, "b": {**one, "name": "b"}}, "calculate_output": formula}
    try:
        definition = checked(body)
    except SettingsError:
        return
    assert isinstance(run(definition, {}, sample_of(text)).grade, Scored | Failed)
