"""A policy as a model: any Hugging Face causal-LM folder, loaded, scored at the trained positions, saved.

Weights are float32 on a CPU while they are trained, and saved in the dtype of the folder they came from.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from millstream.errors import MillstreamError, MissingExtra, SettingsError
from millstream.trainer.batches import Example
from millstream.trainer.folders import copy_companions, model_config, weights_dtype

PLAIN_HEADS = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"})
"""Models whose logits are the output embedding of the last hidden state and nothing more, so that they can be
computed at chosen positions only. Every other model gives all its logits."""
LORA_TARGETS = "all-linear"


@dataclass(slots=True)
class Policy:
    """A model with its tokenizer and the folder both came from."""

    model: Any
    tokenizer: Any
    folder: Path
    lora: bool = False

    @property
    def base(self) -> Any:
        """The causal LM itself, without the LoRA wrapper."""
        return self.model.get_base_model() if self.lora else self.model

    @property
    def vocabulary(self) -> int:
        """How many token ids the model knows."""
        return int(self.base.get_input_embeddings().num_embeddings)


def load_policy(folder: Path, *, lora_rank: int = 0, seed: int = 0) -> Policy:
    """Load a folder in float32 (a GPU: bfloat16 where it can). Raises `SettingsError` when it is no causal LM."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    model_config(folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise SettingsError(f"{folder} does not load as a causal LM with its tokenizer: {error}") from None
    model = model.to(device)
    if lora_rank:
        model = _with_lora(model, lora_rank, seed)
    return Policy(model, tokenizer, folder, lora=bool(lora_rank))


def _with_lora(model: Any, rank: int, seed: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise MissingExtra("train", "LoRA ([trainer] lora_rank)") from None
    torch.manual_seed(seed)
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in its old words
        return get_peft_model(model, config)


@dataclass(frozen=True, slots=True)
class Rows:
    """A padded batch. `trained` `[rows, width − 1]` marks the predictions (of the next token) that are trained."""

    ids: Tensor
    real: Tensor
    trained: Tensor

    @property
    def counts(self) -> list[int]:
        """Trained tokens of each row."""
        found: list[int] = self.trained.sum(1).tolist()
        return found


def pad(batch: Sequence[Example], device: torch.device | str = "cpu", pad_id: int = 0) -> Rows:
    """Rows padded on the right. The mask comes from positions and padding is never seen, so any known id will do.

    (A tokenizer may have no pad token, its end token for one, or one that the model has no embedding for.)
    """
    width = max(example.length for example in batch)
    sequences = [example.sequence for example in batch]
    ids = [[*sequence.ids, *[pad_id] * (width - len(sequence.ids))] for sequence in sequences]
    mask = [[*sequence.mask, *[False] * (width - len(sequence.ids))] for sequence in sequences]
    lengths = torch.tensor([len(sequence.ids) for sequence in sequences], device=device)
    real = torch.arange(width, device=device) < lengths[:, None]
    return Rows(torch.tensor(ids, device=device), real, torch.tensor(mask, device=device)[:, 1:])


def trained_logits(policy: Policy, rows: Rows) -> Tensor:
    """Logits at the trained predictions only, `[trained tokens, vocabulary]`, float32.

    Plain causal models need no mask: padding is on the right, where nothing that counts can see it.
    """
    base = policy.base
    if type(base).__name__ in PLAIN_HEADS:
        hidden = base.model(input_ids=rows.ids, use_cache=False).last_hidden_state
        logits: Tensor = base.get_output_embeddings()(hidden[:, :-1][rows.trained])
    else:
        whole = base(input_ids=rows.ids, attention_mask=rows.real.long(), use_cache=False).logits
        logits = whole[:, :-1][rows.trained]
    return logits.float()


def token_logprobs(logits: Tensor, rows: Rows, temperature: Tensor | float = 1.0) -> Tensor:
    """Log-probs (nats) of the trained tokens under softmax(logits / temperature); `[trained tokens]`, row by row.

    `temperature`: one for all, or `[trained tokens]`.
    """
    if isinstance(temperature, Tensor):
        logits = logits / temperature[:, None]
    elif temperature != 1.0:
        logits = logits / temperature
    return -functional.cross_entropy(logits, rows.ids[:, 1:][rows.trained], reduction="none")


def entropy(logits: Tensor, at_most: int = 256) -> Tensor:
    """Mean entropy (nats) of the model's own distribution, at up to so many of the trained tokens, evenly spaced."""
    logprobs = torch.log_softmax(logits[:: -(-len(logits) // at_most)], -1)
    return -(logprobs.exp() * logprobs).sum(-1).mean()


def weights_finite(policy: Policy) -> bool:
    """Whether every weight is a finite number."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in policy.model.parameters())


def save_policy(policy: Policy, folder: Path) -> None:
    """Write a plain Hugging Face folder: LoRA merged, safetensors in the dtype of the source, its tokenizer unchanged.

    Afterwards the policy holds the weights as saved. Raises `MillstreamError` for weights that are not finite.
    """
    if policy.lora:
        policy.model, policy.lora = policy.model.merge_and_unload(), False
    policy.model.to(getattr(torch, weights_dtype(policy.folder)))
    if not weights_finite(policy):
        raise MillstreamError(f"weights are not finite as {weights_dtype(policy.folder)}; lower trainer.learning_rate")
    folder.mkdir(parents=True, exist_ok=True)
    policy.model.save_pretrained(folder)
    copy_companions(policy.folder, folder)
    policy.model.to(torch.float32)
