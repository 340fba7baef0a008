"""Tasks and their splits are decided by content alone."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.events import Interface
from millstream.tasks import split_of, task_id, tools_hash


def test_shares_are_kept():
    """Of 5,000 worlds the shares come out within two points of what was asked."""
    found = Counter(split_of(f"world-{n}") for n in range(5000))
    assert abs(found["train"] / 5000 - 0.8) < 0.02
    assert abs(found["held_out"] / 5000 - 0.1) < 0.02
    assert {split_of(f"world-{n}", (1.0, 0.0, 0.0)) for n in range(200)} == {"train"}
    assert {split_of(f"world-{n}", (0.0, 0.0, 2.0)) for n in range(200)} == {"report"}


def test_a_larger_training_share_moves_no_world_out_of_training():
    """Growing the first share only ever adds to it."""
    small = {n for n in range(500) if split_of(str(n), (0.5, 0.25, 0.25)) == "train"}
    large = {n for n in range(500) if split_of(str(n), (0.7, 0.15, 0.15)) == "train"}
    assert small < large


def test_a_task_is_its_messages_its_corpus_and_its_interface():
    """White space and compatibility forms do not matter; roles, words, corpus and interface do."""
    base = task_id([("user", "What is 2 + 2?")], Interface())
    assert task_id([("user", " What\tis\n2 + 2? ")], Interface()) == base
    assert task_id([("user", "What is ２ + ２?")], Interface()) == base
    others = {
        task_id([("system", "What is 2 + 2?")], Interface()),
        task_id([("user", "What is 2 + 3?")], Interface()),
        task_id([("user", "What is 2 + 2?")], Interface(tools="t")),
        task_id([("user", "What is 2 + 2?")], Interface(template="t")),
        task_id([("user", "What is 2 + 2?")], Interface(), "2024"),
    }
    assert len(others | {base}) == 6


@given(st.lists(st.tuples(st.text(), st.text()), max_size=3))
def test_any_messages_make_a_task_id(messages):
    """Also lone surrogates and empty texts."""
    assert len(task_id(messages, Interface())) == 32


def test_tools_are_the_same_in_any_order():
    """Neither the order of the tools nor that of their members changes the hash."""
    one, two = {"name": "a", "n": 1}, {"name": "b", "n": 2}
    assert tools_hash([one, two]) == tools_hash([{"n": 2, "name": "b"}, {"n": 1, "name": "a"}])
    assert tools_hash([one]) != tools_hash([two])
    assert tools_hash([]) == ""
