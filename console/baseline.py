"""``baseline``: how good what is there is, before anything is trained – each grader's scores by policy
version, with intervals clustered by world and every denominator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from millstream.console.catalog import grade_events, ledger
from millstream.console.tables import columns
from millstream.grade import Failed, GradeGiven, Scored, Tally
from millstream.intervals import Interval, clustered_mean, clustered_rate
from millstream.ports import Log
from millstream.rollout import GradingFinished, RolloutFacts


class BaselineRow(Struct, frozen=True, kw_only=True):
    """What one grader says of one policy version (None: not told). ``mean`` is over the scored runs,
    with its 95 % interval clustered by world; ``kind`` tells whether all scores are 0 or 1. ``recalled``: runs
    beside ``runs`` whose grade was taken back.
    """

    lineage: str
    policy_version: int | None
    grader: str
    epoch: str
    runs: int
    tasks: int
    worlds: int
    kind: str
    mean: float | None
    low: float | None
    high: float | None
    tally: Tally = field(default_factory=Tally)
    recalled: int = 0


def baseline(
    log: Log, grader: str = "", as_of_ms: int | None = None, valid_at_ms: int | None = None
) -> list[BaselineRow]:
    """One row for each (lineage, policy version, grader epoch); only ``grader`` when it is named. Each
    run counts once, at its highest graded revision, and what was recalled not at all.
    """
    recalls = ledger(log, as_of_ms).recalls
    facts, grades = _latest(grade_events(log, as_of_ms, valid_at_ms))
    taken: Counter[tuple[str, int, str, str]] = Counter()
    cells: dict[tuple[str, int, str, str], list[tuple[RolloutFacts, GradeGiven]]] = defaultdict(list)
    for (trajectory, name, epoch), given in grades.items():
        known = facts.get(trajectory, RolloutFacts())
        version = -1 if known.policy_version is None else known.policy_version
        if grader not in ("", name):
            continue
        key = (known.lineage, version, name, epoch)
        kept = [one for one in given if not recalls.covers(name, epoch, one.known_ms)]
        if recalls.takes(trajectory) or not kept:
            taken[key] += 1
        else:
            cells[key].append((known, _standing(kept)))
    return [_row(key, cells.get(key, ()), taken[key]) for key in sorted({*cells, *taken})]


def _standing(grades: list[GradeGiven]) -> GradeGiven:
    """The grade that counts: the first attempt that did not fail, else the last."""
    ordered = sorted(grades, key=lambda given: given.attempt)
    return next((given for given in ordered if not isinstance(given.grade, Failed)), ordered[-1])


def _latest(
    events: Iterable[GradeGiven | GradingFinished],
) -> tuple[dict[str, RolloutFacts], dict[tuple[str, str, str], list[GradeGiven]]]:
    revisions: dict[tuple[str, str, str], int] = {}
    facts: dict[str, tuple[int, RolloutFacts]] = {}
    grades: dict[tuple[str, str, str], list[GradeGiven]] = {}
    for event in events:
        if isinstance(event, GradingFinished):
            if event.revision >= facts.get(event.trajectory_id, (0, None))[0]:
                facts[event.trajectory_id] = (event.revision, event.facts)
            continue
        key = (event.trajectory_id, event.grader, event.epoch)
        if event.revision > revisions.get(key, -1):
            revisions[key], grades[key] = event.revision, []
        if event.revision == revisions[key]:
            grades[key].append(event)
    return {trajectory: known for trajectory, (_, known) in facts.items()}, grades


def _row(key: tuple[str, int, str, str], runs: Sequence[tuple[RolloutFacts, GradeGiven]], recalled: int) -> BaselineRow:
    tally = Tally()
    for _, given in runs:
        tally.add(given.grade)
    scored = [(known, given.grade.score) for known, given in runs if isinstance(given.grade, Scored)]
    values = [value for _, value in scored]
    worlds = [_world(known, index) for index, (known, _) in enumerate(scored)]
    binary = all(value in (0.0, 1.0) for value in values)
    interval = _interval(values, worlds, binary=binary)
    lineage, version, grader, epoch = key
    return BaselineRow(
        lineage=lineage,
        policy_version=None if version < 0 else version,
        grader=grader,
        epoch=epoch,
        runs=len(runs),
        tasks=len({known.task_id for known, _ in runs}),
        worlds=len(set(worlds)),
        kind="rate" if binary else "score",
        mean=interval.estimate if interval else None,
        low=interval.low if interval and interval.clusters > 1 else None,
        high=interval.high if interval and interval.clusters > 1 else None,
        tally=tally,
        recalled=recalled,
    )


def _world(facts: RolloutFacts, index: int) -> str:
    """What runs are clustered by: the split key, else the task, else each run by itself."""
    return facts.split_key or facts.task_id or f"run {index}"


def _interval(values: Sequence[float], worlds: Sequence[str], *, binary: bool) -> Interval | None:
    if not values:
        return None
    return clustered_rate(values, worlds) if binary else clustered_mean(values, worlds)


def render(rows: Sequence[BaselineRow]) -> str:
    """The rows as a table, denominators beside every figure."""
    if not rows:
        return "nothing is graded yet: `millstream import` runs or record some, then `millstream up --until-idle`"
    head = (
        "lineage",
        "version",
        "grader",
        "epoch",
        "mean",
        "95 % interval",
        "scored",
        "failed",
        "abstained",
        "censored",
        "tasks",
        "worlds",
    )
    taken = sum(row.recalled for row in rows)
    told = [f"recalled, and not counted: {taken} grades"] if taken else []
    return "\n".join([*columns((_cells(row) for row in rows), head), *told])


def _cells(row: BaselineRow) -> tuple[object, ...]:
    mean = "–" if row.mean is None else f"{row.mean:.3f}"
    interval = "–" if row.low is None or row.high is None else f"{row.low:.3f} … {row.high:.3f}"
    version = "–" if row.policy_version is None else row.policy_version
    tally = row.tally
    return (
        row.lineage or "–",
        version,
        row.grader,
        row.epoch,
        mean,
        interval,
        tally.scored,
        tally.failed,
        tally.abstained,
        tally.censored,
        row.tasks,
        row.worlds,
    )
