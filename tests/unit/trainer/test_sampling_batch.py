"""The batch behind the sampler: whatever is fed, padded, left out or dropped, logits are those of plain sequences."""

import random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from millstream.trainer.sampling_batch import SequenceBatch, _common_width

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.2,
}


@pytest.fixture(params=["llama", "qwen2"])
def model(request: pytest.FixtureRequest) -> Any:
    """A random-weight model with grouped key-value heads."""
    torch.manual_seed(0)
    if request.param == "llama":
        return LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE)).eval()


@torch.inference_mode()
def test_logits_are_those_of_the_plain_sequences(model: Any) -> None:
    """Six sequences, three turns of unequal texts and answers, rows dropped between: against plain forwards."""
    draw = random.Random(0)
    sequences: list[list[int]] = [[] for _ in range(6)]
    batch = SequenceBatch(model, 6)
    for _ in range(3):
        texts = [_text(draw, draw.choice([1, 3, 30])) for _ in sequences]
        _extend(sequences, texts)
        _agree(model, sequences, batch.feed(texts), range(len(sequences)))
        for step in range(6):
            live = torch.tensor([draw.random() < 0.9 - 0.15 * step for _ in sequences])
            rows = live.nonzero()[:, 0].tolist()
            if not rows:
                break
            tokens = torch.tensor(_text(draw, len(sequences)))
            _extend(sequences, [[int(tokens[row])] if row in rows else [] for row in range(len(sequences))])
            _agree(model, sequences, batch.append(tokens, live), rows)
        kept = sorted(draw.sample(range(len(sequences)), len(sequences) - 1))
        batch.keep(kept)
        sequences = [sequences[row] for row in kept]


def _text(draw: random.Random, length: int) -> list[int]:
    return [draw.randrange(50) for _ in range(length)]


def _extend(sequences: list[list[int]], texts: list[list[int]]) -> None:
    for sequence, text in zip(sequences, texts, strict=True):
        sequence.extend(text)


def _agree(model: Any, sequences: list[list[int]], logits: torch.Tensor, rows: Any) -> None:
    for row in rows:
        expected = model(input_ids=torch.tensor([sequences[row]])).logits[0, -1]
        torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("widths", "common"),
    [
        ([5], 5),
        ([5, 5, 5], 5),
        ([40, 4, 4, 4], 4),  # 4 x 4 + 36 = 52 places instead of 160
        ([40, 39, 38, 4], 40),  # 4 x 4 + 36 x 3 = 124 of 160 saves too little
        ([40, 40, 10, 2], 10),  # 10 x 4 + 30 x 2 = 100 of 160; at 2 it is 8 + 38 x 3 = 122
    ],
)
def test_long_texts_of_few_rows_are_fed_ahead(widths: list[int], common: int) -> None:
    """The common width is the cheapest one, if it saves a quarter of the work."""
    assert _common_width(widths) == common
