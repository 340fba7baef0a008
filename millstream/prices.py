"""Prices of model calls, from a table file of the operator's: what a call cost, by the table of that day.

A table is TOML. It says its version and currency, and has a row for each price of a model (a name, or a pattern with
``*`` and ``?``), from a day on, per million tokens:

    version = "2026-11-01"
    currency = "USD"

    [[price]]
    model = "small-*"
    since = 2025-04-14
    input = 0.40
    cached = 0.10      # input that was cached; default: input
    output = 1.60
    reasoning = 1.60   # output that was reasoning; default: output

A whole name comes before a pattern, a longer pattern before a shorter one; of rows with one name the latest counts
that is no later than the call. Prices stand beside the log and not in it: assembly applies them when a run is sealed,
so history can be priced again by a corrected table (`millstream replay`).
"""

from __future__ import annotations

import math
import tomllib
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from millstream.codec import decode, encode
from millstream.errors import EventError, SettingsError
from millstream.events import ModelResponded, Priced, Usage

_Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
"""Bounded, so that the cost of any count of tokens is a finite number."""
_MILLION: Final = 1_000_000
_MARK: Final = b'"ModelResponded"'


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens of a model cost from a day on."""

    model: Annotated[str, Meta(min_length=1)]
    since: date
    input: _Amount
    output: _Amount
    cached: _Amount | None = None
    reasoning: _Amount | None = None

    def cost(self, usage: Usage) -> float:
        """Of one call. Cached tokens are part of the input, reasoning tokens of the output."""
        cached, reasoning = max(0, usage.cached_tokens), max(0, usage.reasoning_tokens)
        parts = (
            self.input * max(0, usage.input_tokens - cached),
            (self.input if self.cached is None else self.cached) * cached,
            self.output * max(0, usage.output_tokens - reasoning),
            (self.output if self.reasoning is None else self.reasoning) * reasoning,
        )
        return math.fsum(parts) / _MILLION

    def fits(self, model: str) -> bool:
        """Whether this is a price of that model."""
        return self.model == model or fnmatchcase(model, self.model)


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Annotated[str, Meta(min_length=1)]
    currency: Annotated[str, Meta(min_length=1)]
    price: tuple[Price, ...]


class Prices:
    """A price table. The same call has the same price whenever it is asked."""

    def __init__(self, version: str, currency: str, rows: tuple[Price, ...]) -> None:
        self.version = version
        self.currency = currency
        self.rows = rows
        self._of = lru_cache(maxsize=4096)(self._look_up)

    def of(self, model: str, time_ns: int) -> Price | None:
        """The price of a model at a time (nanoseconds since 1970; 0, not told: the latest price), if it has one."""
        return self._of(model, _day(time_ns))

    def _look_up(self, model: str, day: date) -> Price | None:
        found = [row for row in self.rows if row.since <= day and row.fits(model)]
        return max(found, key=lambda row: (row.model == model, len(row.model), row.since), default=None)

    def priced(self, response: ModelResponded) -> ModelResponded:
        """The response with its cost and where it is from; the same object when there is nothing to say: its
        producer told the cost, it counted no tokens, or its model has no price.
        """
        usage = response.usage
        if (usage.cost and usage.priced is None) or not (usage.input_tokens > 0 or usage.output_tokens > 0):
            return response
        price = self.of(response.model, response.time_ns)
        if price is None:
            return replace(response, usage=replace(usage, cost=0.0, priced=None)) if usage.priced else response
        told = Priced(table=self.version, since=price.since.isoformat(), currency=self.currency)
        return replace(response, usage=replace(usage, cost=price.cost(usage), priced=told))

    def line(self, line: bytes) -> bytes:
        """An event as a line of JSON, with its cost where it is a priced call of a model."""
        if _MARK not in line:
            return line
        try:
            event = decode(line)
        except EventError:
            return line
        if not isinstance(event, ModelResponded):
            return line
        made = self.priced(event)
        return line if made is event else encode(made)


def load(path: Path) -> Prices:
    """A table from its file. Raises `SettingsError` that names the mend."""
    try:
        told = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8-sig")), _File)
    except OSError as error:
        raise SettingsError(f"[assembly] prices: {path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise SettingsError(f"[assembly] prices: {path} is no price table: {error}; see docs/capture.md") from None
    seen: set[tuple[str, date]] = set()
    for row in told.price:
        if (row.model, row.since) in seen:
            raise SettingsError(f"[assembly] prices: {path} has two prices of {row.model!r} since {row.since}")
        seen.add((row.model, row.since))
    return Prices(told.version, told.currency, told.price)


Origin: TypeAlias = Literal["told", "priced", "unknown", "none"]


def origin(usage: Usage) -> Origin:
    """Where the cost of a call is from: its producer, a table, or nowhere. ``none``: no tokens were counted."""
    if usage.priced is not None:
        return "priced"
    if usage.cost:
        return "told"
    return "unknown" if usage.input_tokens > 0 or usage.output_tokens > 0 else "none"


def _day(time_ns: int) -> date:
    if time_ns <= 0:
        return date.max
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).date()
