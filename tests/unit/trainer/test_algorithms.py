"""What sft and grpo choose to learn from, and what they count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from millstream.errors import SettingsError
from millstream.trainer.algorithms import ALGORITHMS, Algorithm, algorithm
from millstream.trainer.losses import Tokens
from millstream.trainer.tokens import Tokenised, TokenLimits, tokenise_logged


def make(name: str, seed: int = 0, **options: Any) -> Algorithm:
    return algorithm(name, options, keep_reward=0.85, keep_per_group=2, seed=seed)


@pytest.fixture
def items(story: Any) -> list[Tokenised]:
    """Group g1: rewards 1, 1 (the same answer), .9, .86, .2. Group g2: 1, 1. Group g3: 0, 0."""
    told = [
        ("a", "g1", 1.0, [3]),
        ("b", "g1", 1.0, [3]),
        ("c", "g1", 0.9, [4]),
        ("d", "g1", 0.86, [5]),
        ("e", "g1", 0.2, [6]),
        ("f", "g2", 1.0, [7]),
        ("g", "g2", 1.0, [8]),
        ("h", "g3", 0.0, [9]),
        ("i", "g3", 0.0, [10]),
    ]
    rollouts = [story(name).samples([1, 2], ids).rollout(reward, group=group) for name, group, reward, ids in told]
    return tokenise_logged(rollouts, TokenLimits())


def chosen(method: Algorithm, items: list[Tokenised]) -> list[str]:
    return [example.sequence.rollout_id for example in method.select(items).examples]


def test_raft_takes_the_best_distinct_answers_of_each_group(items: list[Tokenised]) -> None:
    """Two a group, of at least .85, best first, the same answer once; the rest is counted by reason."""
    method = make("sft")
    assert chosen(method, items) == ["r-a", "r-c", "r-f", "r-g"]
    assert method.select(items).counts == {
        "groups": 3,
        "groups_empty": 1,
        "below_reward": 3,
        "identical": 1,
        "beyond_quota": 1,
        "kept": 4,
    }


def test_selection_does_not_depend_on_the_order(items: list[Tokenised]) -> None:
    """Arrival order changes nothing, at random neither."""
    for method in (make("sft"), make("sft", selection="random"), make("grpo")):
        assert method.select(items) == method.select(items[::-1])


def test_the_control_arm_takes_as_many_at_random(items: list[Tokenised]) -> None:
    """`selection = "random"` ignores the reward: some seed takes a failure, none takes more than two a group."""
    picks = [chosen(make("sft", seed=seed, selection="random"), items) for seed in range(8)]
    assert any("r-e" in pick for pick in picks)
    assert all(len(set(pick) & {"r-h", "r-i"}) == 2 for pick in picks)
    assert len({tuple(pick) for pick in picks}) > 1


def test_grpo_skips_and_counts_groups_without_a_difference(items: list[Tokenised]) -> None:
    """g2 and g3 teach nothing (R01): only g1 is trained, with advantages that sum to 0."""
    selection = make("grpo").select(items)
    assert {example.sequence.rollout_id for example in selection.examples} == {"r-a", "r-b", "r-c", "r-d", "r-e"}
    assert selection.counts == {"groups": 3, "zero_variance_groups": 2, "without_reward": 0, "kept": 5}
    assert sum(example.advantage for example in selection.examples) == pytest.approx(0)
    assert [example.imitate for example in selection.examples] == [True, True, True, True, False]


def test_all_groups_alike_is_nothing_to_train_on(items: list[Tokenised]) -> None:
    """When every group is skipped there is no example, and the count says why (R01)."""
    selection = make("grpo").select([item for item in items if item.rollout.facts.group != "g1"])
    assert (selection.examples, selection.counts["zero_variance_groups"]) == ((), 2)


def test_negative_advantages_are_scaled(items: list[Tokenised]) -> None:
    """`negative_scale` .3 leaves what is above the mean alone."""
    plain, scaled = make("grpo").select(items).examples, make("grpo", negative_scale=0.3).select(items).examples
    for before, after in zip(plain, scaled, strict=True):
        assert after.advantage == pytest.approx(before.advantage * (1.0 if before.advantage > 0 else 0.3))


def test_grpo_terms_add_up() -> None:
    """Ratio 1, A 1: −1; β .5 on k3 of d = 0: 0; sft .2 on −mean(log π) of the good one of two: −.2·(−1)/2 = .1."""
    logprobs = torch.tensor([-1.0, -2.0])
    tokens = Tokens(
        logprobs=logprobs,
        weight=torch.ones(2),
        advantage=torch.ones(2),
        imitate=torch.tensor([1.0, 0.0]),
        reference=logprobs,
        referenced=torch.ones(2),
        old=logprobs,
    )
    assert float(make("grpo", kl=0.5, sft=0.2).loss(tokens).value) == pytest.approx(-1.0 + 0.1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grop", {}, "did you mean 'grpo'"),
        ("sft", {"selecton": "random"}, "did you mean 'selection'"),
        ("sft", {"selection": "best"}, "best"),
        ("grpo", {"clip_low": "much"}, "clip_low"),
    ],
)
def test_wrong_words_name_the_nearest_right_one(name: str, options: dict[str, Any], message: str) -> None:
    """An unknown algorithm or option stops before anything is trained."""
    with pytest.raises(SettingsError, match=message):
        algorithm(name, options, keep_reward=1, keep_per_group=1, seed=0)


def test_every_algorithm_is_registered_under_its_name() -> None:
    """The registry and the classes agree."""
    assert {name: kind.name for name, kind in ALGORITHMS.items()} == {name: name for name in ALGORITHMS}
