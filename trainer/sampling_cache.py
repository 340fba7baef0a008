"""The key-value cache of the batched sampler: written in place, thinned between turns.

Transformers' dynamic cache concatenates on each token, which costs more than the tiny model's own arithmetic.
Here each layer owns a buffer with room to spare, and `compact` drops finished rows and the holes of padding.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, DynamicLayer

_SPARE_COLUMNS = 96


class BufferedLayer(DynamicLayer):
    """One layer's keys and values, `[rows, heads, columns, head size]` views of a larger buffer."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new columns behind the old ones and return all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states[:, :, :0]
            self.values = value_states[:, :, :0]
            self._key_buffer, self._value_buffer = self.keys, self.values
        start, stop = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if stop > self._key_buffer.shape[2]:
            self._key_buffer = _with_room(self.keys, stop + _SPARE_COLUMNS)
            self._value_buffer = _with_room(self.values, stop + _SPARE_COLUMNS)
        self._key_buffer[:, :, start:stop] = key_states
        self._value_buffer[:, :, start:stop] = value_states
        self.keys = self._key_buffer[:, :, :stop]
        self.values = self._value_buffer[:, :, :stop]
        return self.keys, self.values

    def compact(self, rows: torch.Tensor, columns: torch.Tensor) -> None:
        """Keep of `rows` `[n]` the `columns` `[n, m]`, in that order."""
        index = columns[:, None, :, None]
        self._key_buffer = _picked(self.keys, rows, index)
        self._value_buffer = _picked(self.values, rows, index)
        self.keys = self._key_buffer[:, :, : columns.shape[1]]
        self.values = self._value_buffer[:, :, : columns.shape[1]]


class BufferedCache(Cache):
    """A cache of buffered layers, made as the model first asks for them."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__(layer_class_to_replicate=BufferedLayer)

    def compact(self, mask: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Keep `rows` `[n]` of the batch and, of each, the columns that `mask` `[batch, columns]` holds true.

        Columns move to the right end, in order. Returns the mask of what is left, `[n, longest row]`.
        """
        kept = mask[rows]
        longest = int(kept.sum(1).max())
        columns = kept.to(torch.int8).argsort(dim=1, stable=True)[:, -longest:]
        for layer in self.layers:
            layer.compact(rows, columns)
        return kept.gather(1, columns)


def _with_room(states: torch.Tensor, columns: int) -> torch.Tensor:
    rows, heads, used, size = states.shape
    buffer = states.new_empty(rows, heads, columns, size)
    buffer[:, :, :used] = states
    return buffer


def _picked(states: torch.Tensor, rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    _, heads, _, size = states.shape
    picked = states[rows].gather(2, index.expand(-1, heads, -1, size))
    return _with_room(picked, picked.shape[2] + _SPARE_COLUMNS)
