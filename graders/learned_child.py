"""The child's side of a learned reward model: the one module among the graders that loads torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from millstream.errors import GraderError
from millstream.graders.learned import Load, Score

HEAD: Final = "head.safetensors"
_models: dict[Load, _Model] = {}


def handle(method: str, payload: bytes) -> bytes:
    """Answer ``score`` (a `Score`): the logit. Raises `GraderError`."""
    if method != "score":
        raise GraderError(f"unknown method {method!r}: a reward model knows score")
    asked = msgspec.json.decode(payload, type=Score)
    if asked.load not in _models:
        _models[asked.load] = _Model(asked.load)
    return msgspec.json.encode(_models[asked.load].score(asked))


class _Model:
    """A folder, loaded."""

    def __init__(self, load: Load) -> None:
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        folder = Path(load.folder)
        self._load = load
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, truncation_side="left")
        self._head: tuple[Any, Any] | None = None
        model: Any
        if (folder / HEAD).is_file():
            model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
            self._head = _head(folder / HEAD, self._device)
        elif any("SequenceClassification" in name for name in _architectures(folder)):
            model = AutoModelForSequenceClassification.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32
            )
        else:
            raise GraderError(f"{folder} is no sequence classifier and has no {HEAD}")
        self._model = model.to(self._device).eval()

    def score(self, texts: Score) -> float:
        """The logit of an answer to a question."""
        inputs = self._encoded(texts).to(self._device)
        with torch.inference_mode():
            if self._head is None:
                logits = self._model(**inputs).logits[0]
                if self._load.label >= logits.shape[0]:
                    raise GraderError(f"label {self._load.label}: the model has {logits.shape[0]}")
                return float(logits[self._load.label])
            weight, bias = self._head
            return float(self._model(**inputs).last_hidden_state[0, -1] @ weight + bias)

    def _encoded(self, texts: Score) -> Any:
        """As the chat template has it where there is one, else as a pair of texts."""
        bounds = {"truncation": True, "max_length": self._load.max_length, "return_tensors": "pt"}
        if self._tokenizer.chat_template:
            messages = [{"role": "user", "content": texts.question}, {"role": "assistant", "content": texts.answer}]
            text = self._tokenizer.apply_chat_template(messages, tokenize=False)
            found = self._tokenizer(text, add_special_tokens=False, **bounds)
        else:
            found = self._tokenizer(texts.question, texts.answer, **bounds)
        found.pop("token_type_ids", None)
        return found


def _architectures(folder: Path) -> list[str]:
    return list(AutoConfig.from_pretrained(folder, local_files_only=True).architectures or [])


def _head(file: Path, device: torch.device) -> tuple[Any, Any]:
    """Weight (hidden,) and bias () of the head. Raises `GraderError`."""
    from safetensors.torch import load_file

    tensors = load_file(file)
    weight = tensors.get("weight")
    if weight is None or weight.numel() != weight.shape[-1]:
        raise GraderError(f"{file} must hold 'weight' of one row")
    bias = tensors.get("bias", torch.zeros(1))
    return weight.flatten().float().to(device), bias.flatten()[0].float().to(device)
