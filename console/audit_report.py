"""What an audit says: counts by place, and every difference named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct, field

from millstream.console.audit_reading import Reading
from millstream.ports import Gap

Section: TypeAlias = Literal["events", "trajectories", "grades", "rollouts"]


class Line(Struct, frozen=True):
    """One line of the books: of ``section``, so many are ``name``."""

    section: str
    name: str
    count: int


class Difference(Struct, frozen=True):
    """Something that the books do not explain: what it is, which id, and where it was looked for."""

    kind: str
    id: str
    detail: str


class AuditReport(Struct, frozen=True, kw_only=True):
    """``balanced``: nothing is unexplained. ``caught_up``: every stage has read up to the cut, so that the
    books are final for it; else ``lag`` tells how many records each stage has yet to read.
    """

    balanced: bool
    caught_up: bool
    cut: dict[str, int]
    lag: dict[str, int]
    lines: tuple[Line, ...]
    differences: tuple[Difference, ...]
    gaps: tuple[Gap, ...] = ()

    def count(self, section: Section, name: str) -> int:
        """A line's figure, 0 when there is none."""
        return next((line.count for line in self.lines if (line.section, line.name) == (section, name)), 0)


class Books(Struct, kw_only=True):
    """The books while they are being filled."""

    reading: Reading
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def add(self, section: Section, name: str, count: int = 1) -> None:
        """Count something in its place."""
        self.counts.setdefault(section, Counter())[name] += count

    def move(self, section: Section, name: str, to: str) -> None:
        """Count something in another place than before."""
        self.add(section, name, -1)
        if not self.counts[section][name]:
            del self.counts[section][name]
        self.add(section, to)

    def differ(self, kind: str, identity: str, detail: str) -> None:
        """Note something unexplained."""
        self.differences.append(Difference(kind, identity, detail))

    def lines(self) -> Iterator[Line]:
        """The counts, section by section in the order of the flow, the largest first."""
        for section, counts in self.counts.items():
            yield from (Line(section, name, count) for name, count in counts.most_common())
