"""At-least-once delivery, effectively once: the outbox numbers that a reader has already taken.

What a stage appends carries ``stage``, ``source`` (its partition) and ``n`` (its outbox number, from 1).
A stage that dies between appending and noting it appends again; all readers of a topic therefore keep
the highest ``n`` of each source and leave out the rest (docs/adr/0006).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from millstream.ports import Output, Record


def numbered(out: Output, stage: str, partition: int, number: int) -> Output:
    """An output with the headers that let its readers tell a repetition."""
    headers = {**out.headers, "stage": stage, "source": str(partition), "n": str(number)}
    return Output(out.topic, out.key, out.value, headers)


def number_of(headers: Mapping[str, str]) -> int:
    """The outbox number, or 0 for what no stage wrote."""
    told = headers.get("n", "")
    return int(told) if "stage" in headers and told.isdigit() else 0


def source_of(headers: Mapping[str, str]) -> str:
    """``stage:partition`` of the stage that wrote a record; empty for what no stage wrote."""
    return f"{headers['stage']}:{headers.get('source', '0')}" if "stage" in headers else ""


class Marks:
    """The last outbox number taken from each source of each partition."""

    def __init__(self, taken: Mapping[str, int] | None = None) -> None:
        self.taken = dict(taken or {})

    def take(self, record: Record) -> bool:
        """Whether a record is new, and remember it; what no stage wrote always is."""
        number = number_of(record.headers)
        if not number:
            return True
        source = f"{record.topic}:{record.partition}/{source_of(record.headers)}"
        if number <= self.taken.get(source, 0):
            return False
        self.taken[source] = number
        return True

    def new(self, records: Iterable[Record]) -> Iterator[Record]:
        """Those of ``records`` that are new."""
        return (record for record in records if self.take(record))
