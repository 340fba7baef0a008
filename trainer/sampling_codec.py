"""Chat text to token deltas and back, read off the tokenizer's own chat template.

A rollout is one growing sequence: the opening, the sampled action with its end token, the observation, and so on.
What stands between an action and the next is found by rendering a conversation with marked contents once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_ACTION, _OBSERVATION = "SENTINELACTION", "SENTINELOBSERVATION"


class ChatCodec:
    """The token deltas of a conversation under one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        """Read the template. Raises ValueError where it does not end an action with the end token."""
        self._tokenizer = tokenizer
        self.end_id: int = tokenizer.eos_token_id
        self.pad_id: int = self.end_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        text = self._render(
            [
                {"role": "user", "content": "question"},
                {"role": "assistant", "content": _ACTION},
                {"role": "tool", "content": _OBSERVATION},
            ]
        )
        tail = text.partition(_ACTION)[2]
        if not tail.startswith(tokenizer.eos_token) or _OBSERVATION not in tail:
            raise ValueError("the chat template must end an action with the end token and show what a tool returns")
        before, _, after = tail[len(tokenizer.eos_token) :].partition(_OBSERVATION)
        self._before, self._after = self._encode(before), self._encode(after)

    def _render(self, messages: Sequence[dict[str, str]]) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def opening(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids up to where the first action begins."""
        return self._encode(self._render(messages))

    def observation(self, text: str) -> list[int]:
        """Token ids between the end token of an action and the next action.

        Special tokens spelled out in `text` stay plain text: a tool can't end a turn.
        """
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return self._before + ids + self._after

    def action(self, text: str) -> list[int]:
        """Token ids of an action, with the end token."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*ids, self.end_id]

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, special tokens left out."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text
