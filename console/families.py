"""Learnability as ``baseline`` tells it: of each task family how the current policy does, how much its rewards
vary, and whether there is something to learn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from millstream.console.catalog import grade_events, ledger
from millstream.console.measures import world_of
from millstream.console.tables import columns
from millstream.graders.reward import Formula
from millstream.intervals import Interval, clustered_rate
from millstream.policy import PolicyLedger
from millstream.ports import Log
from millstream.settings import RewardSettings
from millstream.streams.learnability import IDLE, FamilyCount, Teaches
from millstream.streams.rewards import RewardBook, RunReward


class FamilyRow(Struct, frozen=True, kw_only=True):
    """One family of one lineage, by the runs of its current ``policy_version`` (the champion, else the newest
    that has runs; None: not told). ``success`` is over the ``rewarded`` of its ``runs``, with a 95 % interval
    clustered by world; ``mean``, ``lowest`` and ``highest`` are of their rewards; ``variance``
    (of the population) of the rewards mapped from their range to [0, 1], so at most 1/4 whatever the range.
    """

    lineage: str
    policy_version: int | None
    family: str
    epochs: tuple[str, ...]
    runs: int
    rewarded: int
    worlds: int
    success: float | None
    low: float | None
    high: float | None
    mean: float | None
    variance: float | None
    lowest: float | None
    highest: float | None
    teaches: Teaches


class Asked(Struct, frozen=True):
    """A lineage with its reward and how many runs it takes to call a family idle."""

    lineage: str
    reward: RewardSettings
    learnable_runs: int


def families(
    log: Log, lineages: Sequence[Asked], as_of_ms: int | None = None, valid_at_ms: int | None = None
) -> list[FamilyRow]:
    """One row for each family and set of grader epochs, of runs that may be trained on."""
    policies = ledger(log, as_of_ms)
    rows = []
    for asked in lineages:
        book = RewardBook(Formula.of(asked.reward), policies.recalls)
        book.take(grade_events(log, as_of_ms, valid_at_ms))
        runs = [run for run in book.rewards() if run.facts.split in (None, "train")]
        if len(lineages) > 1:
            runs = [run for run in runs if run.facts.lineage in ("", asked.lineage)]
        rows += _rows(asked, book.named.formula, _current(policies, asked.lineage, runs))
    return rows


def _current(policies: PolicyLedger, lineage: str, runs: Sequence[RunReward]) -> list[RunReward]:
    """The runs of the policy that serves, or of the newest version that has any."""
    champion = policies.champion(lineage)
    told = {run.facts.policy_version for run in runs}
    known = [version for version in told if version is not None]
    version = champion.version if champion and champion.version in told else max(known, default=None)
    return [run for run in runs if run.facts.policy_version == version]


def _rows(asked: Asked, formula: Formula, runs: Sequence[RunReward]) -> list[FamilyRow]:
    cells: dict[tuple[str, tuple[str, ...]], list[RunReward]] = defaultdict(list)
    for run in runs:
        cells[run.facts.family, run.epochs].append(run)
    return [_row(asked, formula, *key, cells[key]) for key in sorted(cells)]


def _row(asked: Asked, formula: Formula, family: str, epochs: tuple[str, ...], runs: Sequence[RunReward]) -> FamilyRow:
    count = FamilyCount()
    scored = [(run, run.reward) for run in runs if run.reward is not None]
    for _, reward in scored:
        count.add(success=formula.succeeds(reward))
    rewards = [reward for _, reward in scored]
    worlds = [world_of(run.facts, run.trajectory_id) for run, _ in scored]
    found = clustered_rate([float(formula.succeeds(reward)) for reward in rewards], worlds) if scored else None
    mean = math.fsum(rewards) / len(rewards) if rewards else None
    return FamilyRow(
        lineage=asked.lineage,
        policy_version=runs[0].facts.policy_version,
        family=family,
        epochs=epochs,
        runs=len(runs),
        rewarded=len(rewards),
        worlds=len(set(worlds)),
        success=found.estimate if found else None,
        low=_known(found, found.low) if found else None,
        high=_known(found, found.high) if found else None,
        mean=mean,
        variance=_variance([formula.to_unit(reward) for reward in rewards]),
        lowest=min(rewards, default=None),
        highest=max(rewards, default=None),
        teaches=count.teaches(asked.learnable_runs) if family else "no family",
    )


def _variance(values: Sequence[float]) -> float | None:
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def _known(found: Interval, end: float) -> float | None:
    """An end of an interval, None where one world tells nothing of the spread."""
    return end if found.clusters > 1 else None


def render(rows: Sequence[FamilyRow]) -> str:
    """The families as a table, those that teach nothing named below it."""
    head = (
        "lineage",
        "version",
        "family",
        "success",
        "95 % interval",
        "rewarded",
        "of",
        "variance",
        "teaches",
        "graded by",
    )
    lines = columns((_cells(row) for row in rows), head)
    idle = [f"{row.family} ({row.teaches})" for row in rows if row.teaches in IDLE]
    told = f"left out of trainings, they teach nothing: {', '.join(idle)}" if idle else ""
    return "\n".join([*lines, *([told] if told else [])])


def _cells(row: FamilyRow) -> tuple[object, ...]:
    interval = "–" if row.low is None or row.high is None else f"{row.low:.3f} … {row.high:.3f}"
    return (
        row.lineage or "–",
        "–" if row.policy_version is None else row.policy_version,
        row.family or "–",
        "–" if row.success is None else f"{row.success:.3f}",
        interval,
        row.rewarded,
        row.runs,
        "–" if row.variance is None else f"{row.variance:.4f}",
        row.teaches,
        " ".join(epoch.partition("=")[2] for epoch in row.epochs) or "–",
    )
