"""The key-value cache of the batched sampler: written in place, by some or all rows, thinned between turns.

Transformers' dynamic cache concatenates on each token, which costs more than a tiny model's own arithmetic.
Here each layer owns a buffer with room to spare. A forward pass may concern some rows only: the others get a hole.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, DynamicLayer

_SPARE_COLUMNS = 96


class BufferedLayer(DynamicLayer):  # type: ignore[misc]  # transformers is read untyped
    """One layer's keys and values, `[rows, heads, columns, head size]`, views of a larger buffer."""

    def __init__(self, rows: int) -> None:
        """Make room for `rows` rows when the first states come."""
        super().__init__()
        self.rows = rows
        self.active: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Begin with no columns."""
        _, heads, _, size = key_states.shape
        self.keys = self._key_buffer = key_states.new_empty(self.rows, heads, 0, size)
        self.values = self._value_buffer = value_states.new_empty(self.rows, heads, 0, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns behind the old ones, for the active rows, and return all keys and values of these."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, stop = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if stop > self._key_buffer.shape[2]:
            self._key_buffer = _with_room(self.keys, stop + _SPARE_COLUMNS)
            self._value_buffer = _with_room(self.values, stop + _SPARE_COLUMNS)
        self.keys = self._key_buffer[:, :, :stop]
        self.values = self._value_buffer[:, :, :stop]
        if self.active is None:
            self.keys[:, :, start:] = key_states
            self.values[:, :, start:] = value_states
            return self.keys, self.values
        self.keys[self.active, :, start:] = key_states
        self.values[self.active, :, start:] = value_states
        return self.keys[self.active], self.values[self.active]

    def compact(self, rows: torch.Tensor, columns: torch.Tensor) -> None:
        """Keep of `rows` `[n]` the `columns` `[n, m]`, in that order."""
        self.rows = len(rows)
        self._key_buffer = _picked(self.keys, rows, columns)
        self._value_buffer = _picked(self.values, rows, columns)
        self.keys = self._key_buffer[:, :, : columns.shape[1]]
        self.values = self._value_buffer[:, :, : columns.shape[1]]


class BufferedCache(Cache):  # type: ignore[misc]  # likewise
    """A cache of `layers` buffered layers for a batch of `rows` rows."""

    def __init__(self, layers: int, rows: int) -> None:
        """Begin empty."""
        super().__init__(layers=[BufferedLayer(rows) for _ in range(layers)])

    def activate(self, rows: torch.Tensor | None) -> None:
        """Let the next pass concern `rows` `[n]` only, or all."""
        for layer in self.layers:
            layer.active = rows

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
    # Zeros, because what was never written is masked but still multiplied.
    buffer = states.new_zeros(rows, heads, columns, size)
    buffer[:, :, :used] = states
    return buffer


def _picked(states: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    _, heads, _, size = states.shape
    index = columns[:, None, :, None].expand(-1, heads, -1, size)
    return _with_room(states[rows].gather(2, index), columns.shape[1] + _SPARE_COLUMNS)
