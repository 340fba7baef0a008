"""Rows of the JSONL that people have: training rows of the hosted service, items of its evals, and their results.

What the row says of the item and of samples, wherever it stands:

item      the row itself, or its ``item`` or ``datasource_item``
samples   ``samples``, ``sample``, ``model_sample``, ``output_text`` or ``output``, else the assistant's last message
theirs    the scores that the service gave (``results`` of an eval's output items)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from millstream.errors import SettingsError
from millstream.graders.hosted.parsing import decoded
from millstream.graders.hosted.samples import sample_in

REFERENCES: Final = ("reference_answer", "reference", "expected_answer", "answer", "gold", "ideal", "target", "label")
"""Where a row's reference answer is looked for, in this order."""
_GIVEN: Final = ("model_sample", "output_text", "output", "completion", "response")
_NOT_ITEM: Final = frozenset({"samples", "sample", *_GIVEN})


class Row(Struct, frozen=True, kw_only=True):
    """One row: its line, its item, the samples it holds, and the service's scores by the grader's name."""

    line: int
    item: dict[str, Any]
    samples: tuple[dict[str, Any], ...] = ()
    theirs: dict[str, float] = field(default_factory=dict)

    def reference(self, name: str = "") -> str | None:
        """The reference answer, of the field of that name or of the first that is known."""
        for known in (name,) if name else REFERENCES:
            found = self.item.get(known)
            if isinstance(found, str | int | float) and not isinstance(found, bool):
                return str(found)
        return None


class BadRow(Struct, frozen=True, kw_only=True):
    """A line that is no row, and why."""

    line: int
    told: str


def read_rows(lines: Iterable[bytes]) -> Iterator[Row | BadRow]:
    """The rows of a JSONL file; an empty line is none."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoded(line, f"line {number}")
        except SettingsError as error:
            yield BadRow(line=number, told=str(error))
            continue
        if isinstance(row, dict):
            yield Row(line=number, item=_item(row), samples=_samples(row), theirs=_theirs(row))
        else:
            yield BadRow(line=number, told=f"line {number} is no JSON object but {type(row).__name__}")


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("datasource_item", "item"):
        if isinstance(row.get(name), dict):
            return dict(row[name])
    return {name: value for name, value in row.items() if name not in _NOT_ITEM}


def _samples(row: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    if isinstance(row.get("samples"), list):
        return tuple(found for one in row["samples"] if (found := sample_in(one)) is not None)
    for name in ("sample", *_GIVEN):
        if (found := sample_in(row.get(name))) is not None:
            return (found,)
    said = sample_in(row.get("messages"))
    return () if said is None else (said,)


def _theirs(row: Mapping[str, Any]) -> dict[str, float]:
    results = row.get("results")
    rows = [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []
    return {
        str(one.get("name", "")).split("-")[0]: float(one["score"])
        for one in rows
        if isinstance(one.get("score"), int | float) and not isinstance(one.get("score"), bool)
    }
