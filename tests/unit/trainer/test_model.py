"""Policies as models: log-probs at the trained tokens only, whatever the padding, and folders that load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from millstream.errors import SettingsError
from millstream.rollout import RolloutId
from millstream.trainer import model as models
from millstream.trainer.batches import Example
from millstream.trainer.folders import content_hash, template_hash, tokenizer_hash, weights_dtype
from millstream.trainer.model import Policy, entropy, load_policy, pad, token_logprobs, trained_logits
from millstream.trainer.tokens import TokenSequence


def example(ids: list[int], mask: list[int]) -> Example:
    sequence = TokenSequence(rollout_id=RolloutId("r"), ids=tuple(ids), mask=tuple(map(bool, mask)))
    return Example(sequence=sequence)


BATCH = [
    example([5, 6, 7, 8, 9, 10], [0, 0, 1, 1, 0, 1]),
    example([11, 12, 1], [0, 1, 1]),
    example([9, 8, 7, 6], [1, 0, 0, 1]),
]


@pytest.fixture(scope="module", params=["llama", "qwen", "example"])
def policy(request: pytest.FixtureRequest) -> Policy:
    return load_policy(request.getfixturevalue(request.param))


def by_the_book(policy: Policy, row: Example, temperature: float) -> list[float]:
    """Log-probs from all logits of one row alone."""
    ids = torch.tensor([row.sequence.ids])
    logprobs = torch.log_softmax(policy.model(input_ids=ids).logits.float()[0] / temperature, -1)
    places = [place for place, trained in enumerate(row.sequence.mask) if trained and place > 0]
    return [float(logprobs[place - 1, row.sequence.ids[place]]) for place in places]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("pad_id", [0, 1])
@torch.no_grad()
def test_logprobs_are_those_of_each_row_alone(policy: Policy, temperature: float, pad_id: int) -> None:
    """Gathering before the head, padding, and padding with the end token (id 1) change nothing (R11)."""
    rows = pad(BATCH, pad_id=pad_id)
    found = token_logprobs(trained_logits(policy, rows), rows, temperature)
    expected = [value for row in BATCH for value in by_the_book(policy, row, temperature)]
    assert rows.counts == [3, 2, 1]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_models_with_another_head_give_the_same(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way over all logits, for models that do more than embed the last state, agrees with the short one."""
    rows = pad(BATCH)
    short = trained_logits(policy, rows)
    monkeypatch.setattr(models, "PLAIN_HEADS", frozenset())
    assert torch.allclose(trained_logits(policy, rows), short, atol=1e-5)


@torch.no_grad()
def test_each_row_may_have_its_own_temperature(policy: Policy) -> None:
    """Log-probs at [.5, .5, 1] are those at .5 and at 1, each in its place."""
    rows = pad(BATCH[1:2])
    logits = trained_logits(policy, rows)
    mixed = token_logprobs(logits, rows, torch.tensor([0.5, 1.0]))
    assert mixed.tolist() == [
        float(token_logprobs(logits, rows, 0.5)[0]),
        float(token_logprobs(logits, rows, 1.0)[1]),
    ]


def test_the_sampled_end_is_trained_and_padding_is_not(policy: Policy) -> None:
    """`ok<end>` padded to 8 with the end token: two predictions are trained, the end among them (R11)."""
    rows = pad([example([5, 40, 1], [0, 1, 1]), example(list(range(8)), [0] * 8)], pad_id=1)
    assert rows.ids[0].tolist() == [5, 40, 1, 1, 1, 1, 1, 1]
    assert rows.trained[0].tolist() == [True, True, False, False, False, False, False]
    assert policy.vocabulary > 255


def test_entropy_by_hand() -> None:
    """Two equal logits have ln 2 nats, a certain one 0; over more tokens than are looked at, the mean holds."""
    assert float(entropy(torch.zeros(1, 2))) == pytest.approx(0.6931472)
    assert float(entropy(torch.tensor([[0.0, 0.0], [0.0, -1e9]]))) == pytest.approx(0.6931472 / 2)
    assert float(entropy(torch.zeros(1000, 2), at_most=10)) == pytest.approx(0.6931472)


def test_hashes_tell_folders_apart(llama: Path, qwen: Path) -> None:
    """A folder's hash covers names and contents; tokenizer and template have their own."""
    assert content_hash(llama) == content_hash(llama) != content_hash(qwen)
    assert tokenizer_hash(llama) != tokenizer_hash(qwen)
    assert template_hash(llama) != template_hash(qwen)
    assert template_hash(llama)
    assert (weights_dtype(llama), weights_dtype(qwen)) == ("float16", "float32")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """A folder without config.json, or none at all, is named with what to give instead."""
    with pytest.raises(SettingsError, match="give a Hugging Face causal-LM directory"):
        load_policy(tmp_path)
    with pytest.raises(SettingsError, match="no model directory"):
        content_hash(tmp_path / "nothing")
    (tmp_path / "config.json").write_text('{"model_type": "martian"}')
    with pytest.raises(SettingsError, match="does not load as a causal LM"):
        load_policy(tmp_path)
