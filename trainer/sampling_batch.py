"""A batch of growing sequences behind one model: what is fed to it, and as little of it as possible.

New text is padded on the left, and padding is a hole that no later token sees. Rows that need no pass take none:
a long text of few rows is fed ahead by these rows alone, and rows that ended their turn are left out of decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from millstream.trainer.sampling_cache import BufferedCache

_WORTHWHILE = 0.75
"""A pass is narrowed to the rows that need it when that leaves at most this share of the work."""


class SequenceBatch:
    """The cache of a batch, with the mask of its columns and the length of its rows."""

    def __init__(self, model: Any, rows: int) -> None:
        """Begin `rows` empty sequences under `model`, a causal LM."""
        self._model = model
        self._cache = BufferedCache(model.config.get_text_config().num_hidden_layers, rows)
        self._device: torch.device = model.device
        self._dtype: torch.dtype = model.dtype
        self._mask = torch.zeros(rows, 0, dtype=torch.bool, device=self._device)
        self._lengths = torch.zeros(rows, dtype=torch.long, device=self._device)
        self.slots = 0
        """Token places computed so far, padding included."""

    def feed(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Append one text (at least one token) to each row; the logits after it, `[rows, vocabulary]`."""
        widths = [len(text) for text in texts]
        common = _common_width(widths)
        longer = [row for row, width in enumerate(widths) if width > common]
        if longer:
            ids, real = self._padded([texts[row][:-common] for row in longer])
            self._forward(ids, real, torch.tensor(longer, device=self._device))
        ids, real = self._padded([text[-common:] for text in texts])
        return self._forward(ids, real, None)

    def append(self, tokens: torch.Tensor, live: torch.Tensor) -> torch.Tensor:
        """Append one token to each live row; the logits after it, `[rows, vocabulary]`, those of other rows void."""
        rows = live.nonzero()[:, 0]
        if len(rows) > _WORTHWHILE * len(live):
            return self._forward(tokens[:, None], live[:, None], None)
        logits = self._forward(tokens[rows, None], live[rows, None], rows)
        return logits.new_zeros(len(live), logits.shape[1]).index_copy_(0, rows, logits)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows, and all holes."""
        index = torch.tensor(rows, device=self._device)
        self._mask = self._cache.compact(self._mask, index)
        self._lengths = self._lengths[index]

    def _padded(self, texts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(map(len, texts))
        ids = torch.tensor([[0] * (width - len(text)) + list(text) for text in texts], device=self._device)
        counts = torch.tensor([len(text) for text in texts], device=self._device)
        return ids, torch.arange(width, device=self._device) >= width - counts[:, None]

    def _forward(self, ids: torch.Tensor, real: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
        """Append `ids` `[n, width]`, of which `real` ones count, to `rows` `[n]`, or to all."""
        past, width = self._mask.shape[1], ids.shape[1]
        self.slots += ids.numel()
        every = slice(None) if rows is None else rows
        self._mask = torch.nn.functional.pad(self._mask, (0, width))
        self._mask[every, past:] = real
        positions = self._lengths[every, None] + real.cumsum(1) - 1
        self._lengths[every] += real.sum(1)
        self._cache.activate(rows)
        output = self._model(
            input_ids=ids,
            attention_mask=self._bias(self._mask[every], width),
            position_ids=positions.clamp_min(0),
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _bias(self, mask: torch.Tensor, width: int) -> torch.Tensor:
        """What the last `width` columns see, `[n, 1, width, columns]`: 0 for real columns before them, else -max.

        A hole sees at least itself, so that no softmax is empty; nobody else sees it.
        """
        columns = torch.arange(mask.shape[1], device=self._device)
        place = columns[-width:, None]
        seen = (mask[:, None, :] & (columns <= place)) | (columns == place)
        bias = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
        return bias.masked_fill_(~seen, torch.finfo(self._dtype).min)[:, None]


def _common_width(widths: Sequence[int]) -> int:
    """The width up to which all rows are fed together; the longest where a pass ahead would not pay."""
    longest, rows = max(widths), len(widths)
    best, cost = longest, _WORTHWHILE * longest * rows
    for width in sorted(set(widths))[:-1]:
        longer = sum(other > width for other in widths)
        if width * rows + (longest - width) * longer < cost:
            best, cost = width, width * rows + (longest - width) * longer
    return best
