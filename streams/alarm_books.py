"""The books of the alarms: what the runs of each policy version did, against the version before it.

The reference of a version is frozen before its runs are compared: the runs of the champion it came after or,
where that made too few, its own first runs. From the reference follows what is expected: the upper end of its
share's one-sided 95 % interval (counted in tasks, not in runs) and a slack. Bets against that make the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct, field

from millstream.betting import Bet
from millstream.intervals import quantile, wilson
from millstream.settings import AlarmSettings
from millstream.streams.alarm_measures import AVOIDANCE, DRIFT, VALUES, Measure, Sample
from millstream.streams.alarm_tasks import Attempts, OpenTasks, Watch, share

KEPT_VALUES = 1000
"""Figures of so many runs are remembered of each version."""
KEPT_VERSIONS = 8
_TAIL = 0.1
_LEVEL = 0.90
"""Of the interval whose upper end is used: one-sided 95 %."""


class Book(Struct, kw_only=True):
    """What the runs of one version did: ``hits`` are sums over tasks of the share of their runs. ``ends``:
    for each figure what nine in ten of the reference's runs stay above and below.
    """

    open: OpenTasks = field(default_factory=OpenTasks)
    tasks: int = 0
    hits: dict[str, float] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)

    def count(self, attempts: Attempts) -> None:
        """Count a task, for those who come after."""
        self.tasks += 1
        for measure in AVOIDANCE:
            told = share(attempts, partial(self.hit, measure))
            if told:
                self.hits[measure.name] = self.hits.get(measure.name, 0.0) + told
        for name in VALUES:
            kept = self.values.setdefault(name, [])
            kept += [run.values[name] for run in attempts][: KEPT_VALUES - len(kept)]

    def follow(self, reference: Book, told: str, settings: AlarmSettings) -> None:
        """Compare with the runs of a reference, as they are now, from here on."""
        for measure in AVOIDANCE:
            expected = most(reference.hits.get(measure.name, 0.0), reference.tasks, settings.slack)
            self.watches[measure.name] = Watch(bet=Bet(expected=expected), reference=told)
        for name in VALUES:
            ordered = sorted(reference.values[name])
            self.ends[name] = (quantile(ordered, _TAIL), quantile(ordered, 1 - _TAIL))
        for measure in DRIFT:
            values = reference.values[measure.value]
            beyond = sum(self._beyond(measure, value) for value in values) / len(values)
            expected = most(beyond * reference.tasks, reference.tasks, settings.drift_slack)
            self.watches[measure.name] = Watch(bet=Bet(expected=expected), reference=told)

    def compare(self, attempts: Attempts, settings: AlarmSettings) -> Iterator[Measure]:
        """Bet on a task; the measures whose alarm it raises."""
        for measures in (AVOIDANCE, DRIFT):
            threshold = len(measures) / settings.false_alarm
            for measure in measures:
                if self.watches[measure.name].take(attempts, partial(self.hit, measure), threshold):
                    yield measure

    def hit(self, measure: Measure, run: Sample) -> bool:
        """Whether a run did what a measure watches."""
        return self._beyond(measure, run.values[measure.value]) if measure.value else measure.name in run.hits

    def _beyond(self, measure: Measure, value: float) -> bool:
        low, high = self.ends[measure.value]
        return value > high if measure.above else value < low


def most(hits: float, tasks: int, slack: float) -> float:
    """The share that is no news: the upper end of the reference's interval, and a slack."""
    return min(0.95, max(1e-3, wilson(hits, tasks, level=_LEVEL)[1] + slack))


class Books(Struct, kw_only=True):
    """The books of a lineage, by version; '' is the version of runs that do not tell theirs."""

    books: dict[str, Book] = field(default_factory=dict)

    def take(
        self, version: str, sample: Sample, before: Callable[[str], str], settings: AlarmSettings
    ) -> Sequence[tuple[Measure, Watch]]:
        """Take one run in; the alarms it raises. ``before``: the version that a version came after."""
        book = self._book(version)
        attempts = book.open.add(sample)
        if attempts is None:
            return ()
        if not book.watches:
            self._begin(book, version, before(version), settings)
        raised = [(m, book.watches[m.name]) for m in book.compare(attempts, settings)] if book.watches else []
        book.count(attempts)
        return raised

    def _book(self, version: str) -> Book:
        if version not in self.books:
            for old in list(self.books)[: len(self.books) - KEPT_VERSIONS + 1]:
                del self.books[old]
        return self.books.setdefault(version, Book())

    def _begin(self, book: Book, version: str, before: str, settings: AlarmSettings) -> None:
        champion = self.books.get(before) if before != version else None
        if book.tasks == 0 and champion is not None and champion.tasks >= settings.reference_tasks:
            book.follow(champion, f"version {before}", settings)
        elif book.tasks >= settings.reference_tasks:
            book.follow(book, "its own first runs", settings)
