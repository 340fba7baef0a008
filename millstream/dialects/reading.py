"""Reading a record of a dialect: each line of it as the events it tells and the place where it hangs.

`DIALECTS` names what may stand in a record's header ``dialect``. A correction of a mapping that changes what a line
tells raises `MAPPING_EPOCH`, which stands in every trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from millstream.dialects import genai, linking, mlflow_spans, openinference, openllmetry, vercel
from millstream.dialects.spans import InvalidTrace, Span, decoded
from millstream.dialects.starting import Shares
from millstream.dialects.told import Told
from millstream.errors import EventError, Undecodable
from millstream.events import NO_RUN, AnyEvent
from millstream.ndjson import filled

MAPPING_EPOCH: Final = 2
SPANS: Final = "otlp/spans"
LOGS: Final = "otlp/logs"
_HOLDS: Final[Mapping[str, Literal["span", "log"]]] = {SPANS: "span", LOGS: "log"}
DIALECTS: Final = frozenset(_HOLDS)
SHARES: Final = "shares"
"""The header that says which shares of the tasks go to train, held out and report, as the edge was set."""
_DEFAULT_SHARES: Final = (0.8, 0.1, 0.1)
_SPEAKERS = (vercel, mlflow_spans, openinference, openllmetry, genai)
"""In the order in which a span is held against them: the others may carry ``gen_ai`` attributes, too."""


class Place(Struct, frozen=True, order=True):
    """Where a span hangs: of several versions of one the greatest stands."""

    root: bool
    parent: str
    agent: str


class Mapped(Struct, frozen=True):
    """What a line tells: the events of a trajectory (none: unmapped), and the span they come from, if it is one."""

    trajectory_id: str
    span_id: str
    place: Place | None
    events: list[AnyEvent]


def lines_of(value: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a record with their index, blank ones left out."""
    yield from enumerate(line.strip() for line in filled(value))


def mapped(line: bytes, headers: Mapping[str, str]) -> Mapped:
    """What a line of a record with these headers tells. Raises `EventError`, whatever the line holds."""
    try:
        span = decoded(line, _HOLDS[headers["dialect"]])
        if span.trace_id == NO_RUN:
            return _of_no_run(span)
        told = told_of(span)
        found = linking.events(span, told, shares_of(headers)) if told else []
    except EventError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Undecodable(f"what the span tells can't be read: {type(error).__name__}: {error}") from None
    place = None if span.log else Place(span.root, span.parent_id, told.agent if told and told.kind == "agent" else "")
    return Mapped(span.trace_id, span.span_id, place, found or linking.evaluation(span))


def _of_no_run(span: Span) -> Mapped:
    """An evaluation may name a response in place of a trace. Raises `InvalidTrace` for anything else."""
    if not (found := linking.evaluation(span)):
        raise InvalidTrace("a log record without a trace, and no evaluation of a response")
    return Mapped(span.trace_id, span.span_id, None, found)


def told_of(span: Span) -> Told | None:
    """What the first dialect that knows a span reads in it; None: no dialect does."""
    return next((speaker.told(span) for speaker in _SPEAKERS if speaker.reads(span)), None)


def shares_of(headers: Mapping[str, str]) -> Shares:
    """The shares of a record's header, else the default ones."""
    try:
        train, held_out, report = map(float, headers.get(SHARES, "").split(","))
    except ValueError:
        return _DEFAULT_SHARES
    return (train, held_out, report) if train + held_out + report > 0 else _DEFAULT_SHARES
