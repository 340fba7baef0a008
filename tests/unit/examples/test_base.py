"""The base policy that ships, and the way it is made."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from millstream.examples.finqa import base_model, warm_start
from millstream.examples.finqa.settings import SHAPE, BaseShape, WarmStart
from millstream.examples.finqa.tasks import WORLDS
from millstream.trainer.sampling_codec import ChatCodec

BASE = Path(__file__).parents[3] / "examples" / "finqa" / "base"
SMALL = BaseShape(width=32, layers=1, heads=2, feed_forward=32)
SHORT = WarmStart(steps=3, batch_tokens=400)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The tokenizer that ships."""
    return AutoTokenizer.from_pretrained(BASE)


def test_the_base_is_small_and_complete() -> None:
    """Weights in safetensors, well under 2 MB in all, with a card."""
    names = {path.name for path in BASE.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "README.md"} <= names
    assert not {name for name in names if name.endswith((".bin", ".pt", ".pkl"))}
    assert sum(path.stat().st_size for path in BASE.iterdir()) < 1_800_000


def test_the_base_has_the_shape_of_the_settings() -> None:
    """Settings and shipped files tell the same."""
    config = AutoConfig.from_pretrained(BASE)
    assert (config.hidden_size, config.num_hidden_layers, config.num_key_value_heads) == (
        SHAPE.width,
        SHAPE.layers,
        SHAPE.key_value_heads,
    )


def test_numbers_and_names_are_single_tokens(tokenizer: Any) -> None:
    """A figure of three digits, a company and a row cost one token each."""
    codec = ChatCodec(tokenizer)
    for text in ("100", "999", "07", "acme", "profit", "calculator"):
        assert len(codec.action(text)) == 2
    assert codec.text(codec.action("calculator(acme.profit22-#1)")) == "calculator(acme.profit22-#1)"


def test_the_warm_start_repeats_and_keeps_to_its_worlds(tokenizer: Any) -> None:
    """Two short warm starts from one seed give the same weights; their worlds are none that tasks come from."""
    codec = ChatCodec(tokenizer)
    models = []
    for _ in range(2):
        model = base_model.build_model(tokenizer, SMALL, seed=1)
        losses = list(warm_start.train(model, codec, SHORT))
        assert len(losses) == 3
        models.append(model.state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert warm_start.FIRST_WORLD not in WORLDS


def test_only_actions_are_imitated(tokenizer: Any) -> None:
    """Marked tokens spell exactly the actions, each with its end token; questions and observations are unmarked."""
    codec = ChatCodec(tokenizer)
    for item in next(warm_start.demonstrations(codec, 0))[:20]:
        acted = [token for token, own in zip(item.ids, item.acted, strict=True) if own]
        texts = tokenizer.decode(acted).split("<|end|>")
        assert texts[-1] == ""
        assert all(text.startswith(("search", "load", "calculator", "answer")) for text in texts[:-1])


def test_batches_keep_to_their_tokens(tokenizer: Any) -> None:
    """Every demonstration lands in one batch, none of which exceeds its padded tokens."""
    import random

    pool = next(warm_start.demonstrations(ChatCodec(tokenizer), 0))
    parts = warm_start.batches(pool, 1000, random.Random(0))
    assert sorted(id(item) for part in parts for item in part) == sorted(map(id, pool))
    assert max(len(part) * max(len(item.ids) for item in part) for part in parts) <= 1000
