"""The books of the alarms: what the runs of each policy version did, against the version before it.

The reference of a version is frozen before its runs are compared: the runs of the champion it came after or,
where that made too few, its own first runs. From the reference follows what is expected: the upper end of its
share's 99 % interval and a slack. Bets against that make the evidence (`millstream.betting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from millstream.betting import Bet
from millstream.intervals import quantile, wilson
from millstream.settings import AlarmSettings
from millstream.streams.alarm_measures import AVOIDANCE, DRIFT, VALUES, Measure, Sample

KEPT_VALUES = 500
"""Figures of so many runs are remembered of each version."""
KEPT_IDS = 50
"""How many of the runs that raised an alarm are named."""
KEPT_VERSIONS = 8
_TAIL = 0.1
_LEVEL = 0.98
"""Of the interval whose upper end is used: one-sided 99 %."""


class Watch(Struct, kw_only=True):
    """One share, the bet against it, and the runs that were hits."""

    bet: Bet
    reference: str
    ids: list[str] = field(default_factory=list)
    told: bool = False

    def take(self, trajectory_id: str, *, hit: bool, threshold: float) -> bool:
        """One more run; True when this one raises the alarm."""
        evidence = self.bet.take(hit)
        if hit:
            self.ids.append(trajectory_id)
            del self.ids[:-KEPT_IDS]
        raised = evidence >= threshold and not self.told
        self.told = self.told or raised
        return raised

    def again(self) -> None:
        """Begin anew, after somebody cleared the alarm."""
        self.bet = Bet(expected=self.bet.expected, restarts=self.bet.restarts)
        self.ids.clear()
        self.told = False


class Book(Struct, kw_only=True):
    """What the runs of one version did. ``ends``: for each figure what nine in ten of the reference stay
    above and below.
    """

    runs: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)

    def count(self, sample: Sample) -> None:
        """Count a run, for those who come after."""
        self.runs += 1
        for name in sample.hits:
            self.hits[name] = self.hits.get(name, 0) + 1
        if self.runs <= KEPT_VALUES:
            for name in VALUES:
                self.values.setdefault(name, []).append(sample.values[name])

    def follow(self, reference: Book, told: str, settings: AlarmSettings) -> None:
        """Compare with the runs of a reference, as they are now, from here on."""
        for measure in AVOIDANCE:
            expected = most(reference.hits.get(measure.name, 0), reference.runs, settings.slack)
            self.watches[measure.name] = Watch(bet=Bet(expected=expected), reference=told)
        for name in VALUES:
            ordered = sorted(reference.values[name])
            self.ends[name] = (quantile(ordered, _TAIL), quantile(ordered, 1 - _TAIL))
        for measure in DRIFT:
            values = reference.values[measure.value]
            beyond = sum(self._beyond(measure, value) for value in values)
            expected = most(beyond, len(values), settings.drift_slack)
            self.watches[measure.name] = Watch(bet=Bet(expected=expected), reference=told)

    def compare(self, sample: Sample, settings: AlarmSettings) -> Iterator[Measure]:
        """Bet on a run; the measures whose alarm it raises."""
        for measures in (AVOIDANCE, DRIFT):
            threshold = len(measures) / settings.false_alarm
            for measure in measures:
                hit = (
                    self._beyond(measure, sample.values[measure.value])
                    if measure.value
                    else measure.name in sample.hits
                )
                watch = self.watches[measure.name]
                if watch.take(sample.trajectory_id, hit=hit, threshold=threshold):
                    yield measure

    def _beyond(self, measure: Measure, value: float) -> bool:
        low, high = self.ends[measure.value]
        return value > high if measure.above else value < low


def most(hits: int, runs: int, slack: float) -> float:
    """The share that is no news: the upper end of the reference's interval, and a slack."""
    return min(0.95, max(1e-3, wilson(hits, runs, level=_LEVEL)[1] + slack))


class Books(Struct, kw_only=True):
    """The books of a lineage, by version; '' is the version of runs that do not tell theirs."""

    books: dict[str, Book] = field(default_factory=dict)

    def take(
        self, version: str, sample: Sample, before: Callable[[str], str], settings: AlarmSettings
    ) -> Sequence[tuple[Measure, Watch]]:
        """Take one run in; the alarms it raises. ``before``: the version that a version came after."""
        book = self._book(version)
        if not book.watches:
            self._begin(book, version, before(version), settings)
        raised = [(m, book.watches[m.name]) for m in book.compare(sample, settings)] if book.watches else []
        book.count(sample)
        return raised

    def _book(self, version: str) -> Book:
        if version not in self.books:
            for old in list(self.books)[: len(self.books) - KEPT_VERSIONS + 1]:
                del self.books[old]
        return self.books.setdefault(version, Book())

    def _begin(self, book: Book, version: str, before: str, settings: AlarmSettings) -> None:
        champion = self.books.get(before) if before != version else None
        if book.runs == 0 and champion is not None and champion.runs >= settings.reference_runs:
            book.follow(champion, f"version {before}", settings)
        elif book.runs >= settings.reference_runs:
            book.follow(book, "its own first runs", settings)
