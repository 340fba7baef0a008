"""The tokenizer and the untrained model of the example's base policy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.examples.finqa.demonstrator import demonstrate
from millstream.examples.finqa.settings import BaseShape
from millstream.examples.finqa.tasks import WORLDS, make_task

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|system|>")
VOCABULARY = 1600
_CORPUS_WORLDS = range(WORLDS.stop, WORLDS.stop + 100)
_TASKS_A_WORLD = 20


def build_tokenizer() -> Any:
    """A byte-level BPE learned on demonstrations, in which numbers of up to three digits are one token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d{1,3}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL_TOKENS[0],
        eos_token=SPECIAL_TOKENS[1],
        additional_special_tokens=list(SPECIAL_TOKENS[2:]),
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _corpus() -> Iterator[str]:
    for _ in range(20):  # often enough that every number becomes one token before rare words do
        for number in range(1000):
            yield str(number)
            yield f"{number:02d}"
    draw = random.Random(0)
    for number in _CORPUS_WORLDS:
        for index in range(_TASKS_A_WORLD):
            episode = demonstrate(make_task(number, index), draw)
            yield episode.task.question
            for turn in episode.turns:
                yield turn.text
                yield turn.observation or ""


def build_model(tokenizer: Any, shape: BaseShape, seed: int) -> Any:
    """A Llama of `shape` with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        initializer_range=shape.initial_deviation,
    )
    return LlamaForCausalLM(config)


def save_base(model: Any, tokenizer: Any, directory: Path) -> None:
    """Write the policy directory: weights as fp16 safetensors, config, tokenizer, chat template."""
    import torch

    model.to(torch.float16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
