"""A grader tried on rows: the first table of a move, and what a reward must show before anything learns from it.

Beside the samples that the rows hold, each item is graded with its own reference answer (which should get the most),
with another item's (which should get little) and with an empty text (which should get nothing). A grader that does
not tell these apart teaches nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from millstream.grade import Failed, score_of
from millstream.graders.hosted.definitions import Definition
from millstream.graders.hosted.means import NOTHING, Means
from millstream.graders.hosted.rows import Row
from millstream.graders.hosted.running import Outcome, run
from millstream.graders.hosted.samples import sample_of

GIVEN, OWN, FOREIGN, EMPTY = "given", "own reference", "another's reference", "empty"
SOURCES: Final = (GIVEN, OWN, FOREIGN, EMPTY)
CLOSE: Final = 0.01
"""How far our score may be from the service's and still be called the same."""


class Line(Struct, kw_only=True):
    """Scores of one kind of sample. ``passed``: how many reached the grader's threshold, where it has one."""

    source: str
    samples: int = 0
    failed: int = 0
    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    most: float | None = None
    passed: int | None = None


class Trial(Struct, kw_only=True):
    """What a grader made of rows. ``faults``: how often each flag was set, and the first time in words.
    ``same`` and ``different``: items whose several samples all got one score, and those that teach. ``compared``: how
    many scores the service had given, ``agreed`` how many of them ours equals.
    """

    lines: list[Line] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    same: int = 0
    different: int = 0
    compared: int = 0
    agreed: int = 0


def tried(definition: Definition, rows: Sequence[Row], means: Means = NOTHING, reference: str = "") -> Trial:
    """Grade the rows' samples and the probes. ``reference``: the item's field with the right answer."""
    trial = Trial()
    scores: dict[str, list[float]] = {source: [] for source in SOURCES}
    failed = dict.fromkeys(SOURCES, 0)
    for place, row in enumerate(rows):
        mine: list[float] = []
        for source, sample in _probes(rows, place, reference):
            outcome = run(definition, row.item, sample, means)
            value = score_of(outcome.grade)
            if value is None:
                failed[source] += 1
                _fault(trial, outcome, row)
                continue
            scores[source].append(value)
            if source == GIVEN:
                mine.append(value)
                _compare(trial, definition.name, row, value)
        if len(mine) > 1:
            trial.different += len(set(mine)) > 1
            trial.same += len(set(mine)) == 1
    threshold = getattr(definition, "pass_threshold", None)
    trial.lines = [_line(source, scores[source], failed[source], threshold) for source in SOURCES]
    return trial


def _probes(rows: Sequence[Row], place: int, reference: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    row = rows[place]
    yield from ((GIVEN, sample) for sample in row.samples)
    own = row.reference(reference)
    if own is not None:
        yield OWN, sample_of(own)
    if (foreign := _foreign(rows, place, reference)) is not None:
        yield FOREIGN, sample_of(foreign)
    yield EMPTY, sample_of("")


def _foreign(rows: Sequence[Row], place: int, reference: str) -> str | None:
    """The next item's reference that is not this one's."""
    own = rows[place].reference(reference)
    around: Iterable[Row] = (*rows[place + 1 :], *rows[:place])
    found = (row.reference(reference) for row in around)
    return next((text for text in found if text is not None and text != own), None)


def _fault(trial: Trial, outcome: Outcome, row: Row) -> None:
    assert isinstance(outcome.grade, Failed)
    for flag, told in (outcome.flags or {"other_error": outcome.grade.reason}).items():
        trial.faults[flag] = trial.faults.get(flag, 0) + 1
        trial.first.setdefault(flag, f"line {row.line}: {told}")


def _compare(trial: Trial, name: str, row: Row, value: float) -> None:
    theirs = row.theirs.get(name)
    if theirs is not None and len(row.samples) == 1:
        trial.compared += 1
        trial.agreed += math.isclose(theirs, value, abs_tol=CLOSE)


def _line(source: str, scores: Sequence[float], failed: int, threshold: float | None) -> Line:
    line = Line(source=source, samples=len(scores) + failed, failed=failed)
    if scores:
        line.mean, line.deviation = statistics.fmean(scores), statistics.pstdev(scores)
        line.least, line.most = min(scores), max(scores)
    if threshold is not None:
        line.passed = sum(score >= threshold for score in scores)
    return line
