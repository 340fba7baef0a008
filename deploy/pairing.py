"""Pairing: the champion's and the candidate's outcomes of the same task, side by side.

A task with several attempts is one pair of means. What is not scored stays visible: it is counted,
and its score is bounded where it hurts the candidate most.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from millstream.deploy.evaluation import Outcomes, TaskOutcome
from millstream.deploy.statistics import bounded_against_candidate
from millstream.grade import score_of


class Pair(Struct, frozen=True, kw_only=True):
    """One task on both sides. ``champion``/``candidate``: mean gold with the unscored bounded;
    ``scored``: every attempt on both sides has a gold score.
    """

    task_id: str
    world: str
    champion: float
    candidate: float
    scored: bool
    champion_outcomes: tuple[TaskOutcome, ...]
    candidate_outcomes: tuple[TaskOutcome, ...]

    @property
    def difference(self) -> float:
        """Candidate − champion."""
        return self.candidate - self.champion


class Paired(Struct, frozen=True, kw_only=True):
    """All pairs in task order, with what was wrong with the sheets and what had no score."""

    pairs: tuple[Pair, ...]
    problems: tuple[str, ...]
    unscored_champion: int
    unscored_candidate: int
    attempts: int

    @property
    def unscored_share(self) -> float:
        """The larger side's share of attempts without a gold score."""
        worst = max(self.unscored_champion, self.unscored_candidate)
        return worst / self.attempts if self.attempts else 1.0


def pair(champion: Outcomes, candidate: Outcomes, low: float = 0.0, high: float = 1.0) -> Paired:
    """Pair two outcome sheets by task and attempt. A task that only one side ran counts as unscored
    on the other, so leaving hard tasks out does not pay. ``low``/``high``: gold's declared range.
    """
    left, right = _by_task(champion), _by_task(candidate)
    tasks = sorted({*left, *right})
    attempts = max((len({*left.get(task, ()), *right.get(task, ())}) for task in tasks), default=1)
    pairs = tuple(_pair(task, left.get(task, {}), right.get(task, {}), attempts, (low, high)) for task in tasks)
    return Paired(
        pairs=pairs,
        problems=(*_problems("champion", champion), *_problems("candidate", candidate), *_worlds(left, right)),
        unscored_champion=len(tasks) * attempts - _count_scored(champion),
        unscored_candidate=len(tasks) * attempts - _count_scored(candidate),
        attempts=len(tasks) * attempts,
    )


def _by_task(outcomes: Outcomes) -> dict[str, dict[int, TaskOutcome]]:
    found: dict[str, dict[int, TaskOutcome]] = defaultdict(dict)
    for outcome in outcomes:
        found[outcome.task_id][outcome.attempt] = outcome
    return found


def _count_scored(outcomes: Outcomes) -> int:
    return len({(o.task_id, o.attempt) for o in outcomes if score_of(o.gold) is not None})


def _pair(
    task: str,
    left: Mapping[int, TaskOutcome],
    right: Mapping[int, TaskOutcome],
    attempts: int,
    span: tuple[float, float],
) -> Pair:
    scores = [(_score(left.get(attempt)), _score(right.get(attempt))) for attempt in sorted({*left, *right})]
    scores += [(None, None)] * (attempts - len(scores))
    bounded = [bounded_against_candidate(a, b, *span) for a, b in scores]
    return Pair(
        task_id=task,
        world=next(iter((*left.values(), *right.values()))).world,
        champion=math.fsum(a for a, _ in bounded) / len(bounded),
        candidate=math.fsum(b for _, b in bounded) / len(bounded),
        scored=all(a is not None and b is not None for a, b in scores),
        champion_outcomes=tuple(left[key] for key in sorted(left)),
        candidate_outcomes=tuple(right[key] for key in sorted(right)),
    )


def _score(outcome: TaskOutcome | None) -> float | None:
    return None if outcome is None else score_of(outcome.gold)


def _problems(side: str, outcomes: Outcomes) -> list[str]:
    keys = [(o.task_id, o.attempt) for o in outcomes]
    if not keys:
        return [f"the {side} has no outcome at all"]
    repeated = len(keys) - len(set(keys))
    return [f"the {side} reports {repeated} attempts twice"] if repeated else []


def _worlds(left: Mapping[str, Mapping[int, TaskOutcome]], right: Mapping[str, Mapping[int, TaskOutcome]]) -> list[str]:
    moved = [t for t in left if t in right and len({o.world for o in (*left[t].values(), *right[t].values())}) > 1]
    return [f"{len(moved)} tasks lie in different worlds on the two sides, first {min(moved)!r}"] if moved else []
