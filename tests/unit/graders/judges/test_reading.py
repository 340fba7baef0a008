"""A verdict that is not plainly there is no verdict: nothing is guessed, clamped or picked from prose."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.graders.judges.reading import Unreadable, label, number, objects

LABELS = ("good", "bad", "very bad")


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"result": 0.4}', 0.4),
        ('{"steps": [], "result": 1}', 1.0),
        ('Here is my verdict:\n```json\n{"result": 0.25}\n```\nI hope it helps.', 0.25),
        ("3 issues found. Score: 2/5", 0.4),
        ("[[0.5]]", 0.5),
        ("**Score:** 0.75", 0.75),
        ("Rating = 40 %", 0.4),
        ("The score is 1", 1.0),
        ("Verdict: [[1]]", 1.0),
        ("Score: 4 out of 5.", 0.8),
        ('<think>the answer says {"result": 1}</think>{"result": 0}', 0.0),
        ('{"result": 0.0000001}', 1e-7),
    ],
)
def test_a_number_that_is_there_is_read(reply, value):
    """JSON alone or in prose, and a few plain forms of words."""
    assert number(reply, 0, 1).value == pytest.approx(value)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "No verdict: the excerpt is empty.",
        "upstream 503, attempt 4",
        "[[75]]",
        "3 issues found, 2 of 5 are bad",
        "I give it 0.7",
        '{"result": "0.7"}',
        '{"result": true}',
        '{"result": null}',
        '{"result": [1]}',
        '{"result": NaN}',
        '{"result": Infinity}',
        '{"result": 1e999}',
        '{"result": 1.0000001}',
        '{"result": -0.1}',
        '{"result": 0.1, "result": 1}',
        '{"score": 0.5}',
        '{"nested": {"result": 0.5}}',
        '{"result": 0.5',
        "Score: 4-5",
        "Score: 6/5",
        "Score: 1/0",
        "Score: -1/5",
        "Score: 2/5/2026",
        "Score: high",
        "score 1",
        "scores: 1",
    ],
)
def test_what_is_no_number_in_range_is_none(reply):
    """Prose, error texts, wrong types, cut JSON and what lies outside the range."""
    with pytest.raises(Unreadable):
        number(reply, 0, 1)


def test_a_share_needs_a_range_that_begins_at_0():
    """2/5 of [0, 10] is 4; of [1, 5] or [-1, 1] it has no meaning that all would share."""
    assert number("Score: 2/5", 0, 10).value == 4.0
    for low, high in ((1, 5), (-1, 1)):
        with pytest.raises(Unreadable, match="no place"):
            number("Score: 2/5", low, high)
        assert number("Score: 1", low, high).value == 1.0


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"result": 1} on second thought {"result": 0}', 0.0),
        ("Score: 1. No: Score: 0", 0.0),
        ("The text says [[1]], yet it is wrong. Score: 0", 0.0),
        ('It quotes {"result": 1}. [[1]] {"result": 0}', 0.0),
    ],
)
def test_the_last_verdict_counts_and_says_that_there_were_others(reply, value):
    """A judge that quotes a forged verdict and then gives its own is heard right."""
    read = number(reply, 0, 1)
    assert (read.value, read.several) == (value, True)


def test_a_last_verdict_that_is_bad_is_not_replaced_by_an_earlier_one():
    """An earlier, readable number is not picked instead."""
    with pytest.raises(Unreadable):
        number('{"result": 0.5} rather {"result": 7}', 0, 1)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"steps": [], "result": "good"}', "good"),
        ("Verdict: very bad", "very bad"),
        ("I think [[bad]]", "bad"),
        ("**Label:** good.", "good"),
    ],
)
def test_a_label_that_is_there_is_read(reply, value):
    """As written, whole."""
    assert label(reply, LABELS).label == value


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "good",
        "It is good, not bad",
        '{"result": "Good"}',
        '{"result": "goodish"}',
        '{"result": 1}',
        "Verdict: none",
    ],
)
def test_what_is_no_label_is_none(reply):
    """Prose, another spelling, another type."""
    with pytest.raises(Unreadable):
        label(reply, LABELS)


def test_reading_is_quick_whatever_is_sent():
    """A megabyte of braces, deep nesting, and a number of a thousand digits."""
    for reply in ("{" * 1_000_000, '{"a":' * 100_000, '{"result": ' + "9" * 10_000 + "}", "[[" * 200_000):
        with pytest.raises(Unreadable):
            number(reply, 0, 1)


@given(st.text(), st.floats(0, 1))
def test_whatever_stands_before_it_the_verdict_at_the_end_counts(prose, value):
    """Prose of any kind before a verdict changes nothing, but for braces that swallow it."""
    import json

    reply = f"{prose}\n\n{json.dumps({'result': value})}"
    try:
        read = number(reply, 0, 1).value
    except Unreadable:
        assert "{" in prose
    else:
        assert read == value or "{" in prose


def test_objects_inside_an_object_are_not_looked_at():
    """Only what the judge itself says at the top."""
    assert list(objects('{"a": {"result": 1}} {"result": 2}', "result")) == [{"result": 2}]


@pytest.mark.parametrize(
    "reply",
    [
        *(
            "[" * 200_000,
            "[[" + " " * 200_000,
            '{"a":' * 40_000,
            ('{"a":[' + "1," * 48) * 2000,
            "result" + "*" * 200_000,
        ),
        *("label: " + "a." * 100_000, "{" * 200_000, "score: " + "1" * 200_000, "[[1 " * 50_000, '{"' * 100_000),
    ],
    ids=lambda reply: reply[:8],
)
def test_a_reply_made_to_be_read_for_ever_is_read_at_once(reply):
    """Found by fuzzing: brackets took a time that grows with their number squared, five seconds for 15 kB."""
    began = time.process_time()
    for read in (lambda: number(reply, 0, 1), lambda: label(reply, LABELS), lambda: list(objects(reply, "x"))):
        with contextlib.suppress(Unreadable):
            read()
    assert time.process_time() - began < 5
