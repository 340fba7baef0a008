"""``metrics``: the figures of recorded runs by policy version, and by task family and time where asked, each
with its interval, its denominator and the epochs of the grades that it rests on. The definitions are those of
`millstream.graders.metrics`.

Success is a score from `Formula.success_at` on. Runs whose grades are of different epochs never meet in one
figure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from millstream.console.catalog import grade_events, records
from millstream.graders import metrics
from millstream.graders.reward import Formula
from millstream.graders.usage import uses_of
from millstream.intervals import Interval, clustered_mean, clustered_rate, clustered_ratio
from millstream.ports import Log
from millstream.recalls import Recalls
from millstream.rollout import RolloutFacts
from millstream.streams.rewards import RewardBook, RunReward
from millstream.topics import TRAJECTORIES
from millstream.trajectory import Trajectory

By: TypeAlias = Literal["family", "hour", "day", "week"]
TIMES: Final[dict[str, str]] = {"hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d", "week": "%G-W%V"}
KS: Final = (1, 2, 4, 8, 16)
"""The k of accuracy@k and pass^k, as far as tasks have so many scored attempts."""

_trajectory = msgspec.json.Decoder(Trajectory).decode


class Cell(Struct, frozen=True, order=True):
    """What a figure is of. ``version`` −1: not told; ``epochs``: of the grades, joined."""

    lineage: str
    version: int
    family: str
    period: str
    epochs: str


class Figure(Struct, frozen=True, kw_only=True):
    """One figure. ``n`` is its denominator and ``of`` says what was counted; ``low`` and ``high`` are a 95 %
    interval clustered by ``worlds`` worlds (``bounds``: the worst and the best case instead). None: there is
    no such value, as of a cost over no success.
    """

    lineage: str
    policy_version: int | None
    family: str
    period: str
    epochs: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    of: str
    worlds: int


class Played(Struct, frozen=True, kw_only=True):
    """What the figures need of one run. ``success`` None: no score, for the reason ``status``."""

    task_id: str
    world: str
    success: bool | None
    status: str
    cost: float | None
    tokens: int
    calls: int
    useful: int
    failed_calls: int
    depth: int


def figures(
    log: Log,
    formula: Formula,
    recalls: Recalls,
    *,
    by: Sequence[By] = (),
    split: str = "",
    span: tuple[int, int] = (0, 0),
    as_of_ms: int | None = None,
    valid_at_ms: int | None = None,
) -> list[Figure]:
    """The figures of every cell. ``formula`` with its range says what success is; ``recalls``: as of the same time;
    ``span``: runs sealed since and before (0: whenever).
    """
    cells: dict[Cell, list[Played]] = defaultdict(list)
    for run, t, log_ms in _runs(log, formula, recalls, (as_of_ms, valid_at_ms)):
        if (split and run.facts.split != split) or log_ms < span[0] or (span[1] and log_ms >= span[1]):
            continue
        cells[_cell(run, log_ms, by)].append(_played(run, t, formula))
    return [figure for cell in sorted(cells) for figure in _figures(cell, cells[cell])]


def _runs(
    log: Log, formula: Formula, recalls: Recalls, times: tuple[int | None, int | None]
) -> Iterator[tuple[RunReward, Trajectory, int]]:
    """Each graded run at its highest graded revision, with its trajectory and when that was sealed."""
    book = RewardBook(formula, recalls)
    book.take(grade_events(log, *times))
    for record in records(log, TRAJECTORIES.name, times[0]):
        run = book.runs.get(record.key)
        if run is None or record.value is None or record.headers.get("kind") != "trajectory":
            continue
        if (run.position.partition, run.position.offset) == (record.partition, record.offset):
            yield book.reward(record.key), _trajectory(record.value), record.log_ms


def _cell(run: RunReward, log_ms: int, by: Sequence[By]) -> Cell:
    facts = run.facts
    shape = next((TIMES[part] for part in by if part in TIMES), "")
    return Cell(
        facts.lineage,
        -1 if facts.policy_version is None else facts.policy_version,
        (facts.family or "–") if "family" in by else "",
        datetime.fromtimestamp(log_ms / 1000, UTC).strftime(shape) if shape else "",
        " ".join(epoch.partition("=")[2] for epoch in run.epochs),
    )


def _played(run: RunReward, t: Trajectory, formula: Formula) -> Played:
    uses = uses_of(t)
    failed, calls = metrics.tool_errors(t)
    return Played(
        task_id=run.facts.task_id,
        world=world_of(run.facts, run.trajectory_id),
        success=None if run.reward is None else formula.succeeds(run.reward),
        status=run.status,
        cost=metrics.cost_of(t),
        tokens=run.facts.policy_tokens,
        calls=calls,
        useful=sum(use.useful for use in uses),
        failed_calls=failed,
        depth=metrics.reasoning_depth(t),
    )


def world_of(facts: RolloutFacts, trajectory_id: str) -> str:
    """What runs are clustered by: the split key, else the task, else each run by itself."""
    return facts.split_key or facts.task_id or trajectory_id


def _figures(cell: Cell, runs: Sequence[Played]) -> Iterator[Figure]:
    scored = [run for run in runs if run.success is not None]
    won = [run for run in scored if run.success]

    def figure(metric: str, found: Interval | None, n: int, of: str, worlds: int | None = None) -> Figure:
        value, low, high = (found.estimate, found.low, found.high) if found else (None, None, None)
        return Figure(
            lineage=cell.lineage,
            policy_version=None if cell.version < 0 else cell.version,
            family=cell.family,
            period=cell.period,
            epochs=cell.epochs,
            metric=metric,
            value=_finite(value),
            low=_finite(low),
            high=_finite(high),
            n=n,
            of=of,
            worlds=found.clusters if found and worlds is None else (worlds or 0),
        )

    rate = clustered_rate([float(bool(run.success)) for run in scored], [run.world for run in scored])
    yield figure("success", rate if scored else None, len(scored), "scored runs")
    low, high = metrics.success_bounds(len(won), len(scored), len(runs) - len(scored))
    told = Counter(run.status for run in runs if run.success is None)
    without = ", ".join(f"{count} {status}" for status, count in sorted(told.items())) or "none without a score"
    bounds = Interval(len(won) / len(runs), low, high, len(runs), 0)
    yield figure("success_bounds", bounds, len(runs), f"runs, {without}")
    yield from _attempts(scored, figure)
    yield from _sums(runs, won, figure)


_Make: TypeAlias = Callable[..., Figure]


def _attempts(scored: Sequence[Played], figure: _Make) -> Iterator[Figure]:
    """accuracy@k and pass^k over tasks, as far as tasks have k scored attempts."""
    tasks: dict[str, list[Played]] = defaultdict(list)
    for run in scored:
        if run.task_id:
            tasks[run.task_id].append(run)
    counts = [(len(mine), sum(bool(run.success) for run in mine), mine[0].world) for mine in tasks.values()]
    for k in KS:
        able = [(n, c, world) for n, c, world in counts if n >= k]
        if not able:
            return
        for name, measure in (("accuracy@", metrics.pass_at_k_of), ("pass^", metrics.pass_hat_k_of)):
            found = clustered_mean([measure(n, c, k) for n, c, _ in able], [world for _, _, world in able])
            yield figure(f"{name}{k}", _share(found), len(able), f"tasks with {k} scored attempts or more")


def _sums(runs: Sequence[Played], won: Sequence[Played], figure: _Make) -> Iterator[Figure]:
    """Depth over successes; calls, costs and tokens as ratios of sums over all runs."""
    depth = clustered_mean([float(run.depth) for run in won], [run.world for run in won]) if won else None
    yield figure("reasoning_depth", depth, len(won), "successes")
    calls = sum(run.calls for run in runs)
    useful = _share(_ratio(runs, ((run.useful, run.calls) for run in runs))) if calls else None
    yield figure("tool_efficiency", useful, calls, "calls")
    errors = _share(_ratio(runs, ((run.failed_calls, run.calls) for run in runs))) if calls else None
    yield figure("tool_errors", errors, calls, "calls")
    yield _cost(runs, figure)
    of = f"successes, {len(runs)} runs paid for"
    tokens = _ratio(runs, ((run.tokens, run.success is True) for run in runs)) if won else None
    yield figure("tokens_per_success", tokens, len(won), of)


def _cost(runs: Sequence[Played], figure: _Make) -> Figure:
    """What a success costs, over the runs whose cost is known; the others are said."""
    known = [run for run in runs if run.cost is not None]
    won = sum(run.success is True for run in known)
    if not any(run.cost for run in known):
        return figure("cost_per_success", None, won, "successes; no run told a cost")
    unknown = f"; {len(runs) - len(known)} runs of unknown cost left out" if len(known) < len(runs) else ""
    cost = _ratio(known, ((run.cost or 0.0, run.success is True) for run in known)) if won else None
    return figure("cost_per_success", cost, won, f"successes, {len(known)} runs paid for{unknown}")


def _ratio(runs: Sequence[Played], parts: Iterable[tuple[float, float]]) -> Interval:
    pairs = list(parts)
    return clustered_ratio([y for y, _ in pairs], [float(x) for _, x in pairs], [run.world for run in runs])


def _share(found: Interval) -> Interval:
    """The interval of a share, cut to [0, 1]."""
    return Interval(found.estimate, max(0.0, found.low), min(1.0, found.high), found.n, found.clusters)


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: what does not exist is None."""
    return value if value is not None and math.isfinite(value) else None
