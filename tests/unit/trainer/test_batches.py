"""Batches: every example once, within the budget, the same for every order of arrival."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from millstream.rollout import RolloutId
from millstream.trainer.batches import Example, make_batches, seeded
from millstream.trainer.tokens import TokenSequence


def example(name: int, length: int) -> Example:
    ids = tuple(range(length))
    return Example(sequence=TokenSequence(rollout_id=RolloutId(f"r{name:03d}"), ids=ids, mask=(True,) * length))


@given(st.lists(st.integers(2, 90), max_size=40), st.integers(60, 400), st.integers(0, 5))
def test_every_example_once_within_the_budget(lengths: list[int], budget: int, seed: int) -> None:
    """Rows × the longest row never pass the budget, except for a row that is over it alone."""
    examples = [example(place, length) for place, length in enumerate(lengths)]
    batches = make_batches(examples, budget, seeded("test", seed))
    assert sorted(e.key for batch in batches for e in batch) == [e.key for e in examples]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(e.length for e in batch) <= budget


@given(st.lists(st.integers(2, 90), max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing(lengths: list[int], shuffler: random.Random) -> None:
    """The same examples in another order give the same batches; another seed gives others."""
    examples = [example(place, length) for place, length in enumerate(lengths)]
    moved = list(examples)
    shuffler.shuffle(moved)
    assert make_batches(examples, 200, seeded("test", 1)) == make_batches(moved, 200, seeded("test", 1))


def test_another_seed_gives_other_batches() -> None:
    """The shuffle is seeded, and the seed matters."""
    examples = [example(place, 10 + place) for place in range(40)]
    assert make_batches(examples, 100, seeded("test", 1)) != make_batches(examples, 100, seeded("test", 2))
