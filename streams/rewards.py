"""Rewards as they follow from the grades alone: the fold of ``grades`` without groups and buffer, for reads
that ask what every graded run is worth, and what it would be worth with other grades.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from millstream.events import TrajectoryId
from millstream.grade import Abstained, Censored, Failed, Grade, GradeGiven, Scored
from millstream.graders.reward import Formula
from millstream.recalls import NONE, Recalls
from millstream.rollout import GradingFinished, RolloutFacts
from millstream.streams.graded_runs import GradedRun, NamedGraders, effective, newest

RewardStatus: TypeAlias = Literal["scored", "failed", "abstained", "censored", "waiting", "recalled", "no value"]
_KINDS: Final[dict[type, RewardStatus]] = {
    Scored: "scored",
    Failed: "failed",
    Abstained: "abstained",
    Censored: "censored",
}


class RunReward(Struct, frozen=True, kw_only=True):
    """What one run is worth: its reward or why it has none, from grades of which epochs. ``status``: what the
    first grade is that is no score (``waiting`` where none came), ``scored`` where every one is.
    """

    trajectory_id: str
    revision: int
    facts: RolloutFacts
    reward: float | None
    why: str
    epochs: tuple[str, ...]
    status: RewardStatus = "scored"


class RewardBook:
    """Graded runs by trajectory. ``also``: a grader that is followed though no formula names it."""

    def __init__(self, formula: Formula, recalls: Recalls = NONE, also: str = "") -> None:
        self.named = NamedGraders(formula)
        self.recalls = recalls
        self.runs: dict[str, GradedRun] = {}
        self._wanted = frozenset({*self.named.names, also} - {""})

    def take(self, events: Iterable[GradeGiven | GradingFinished]) -> None:
        """Fold events in. Facts are kept without their signature."""
        for event in events:
            if isinstance(event, GradingFinished):
                run = self._run(event.trajectory_id)
                if event.revision > run.revision:
                    facts = msgspec.structs.replace(event.facts, signature=())
                    run.finish(msgspec.structs.replace(event, facts=facts), b"")
            elif event.grader in self._wanted:
                self._run(event.trajectory_id).add(event)

    def _run(self, trajectory_id: TrajectoryId) -> GradedRun:
        found = self.runs.get(trajectory_id)
        if found is None:
            found = self.runs[trajectory_id] = GradedRun(trajectory_id=trajectory_id)
        return found

    def reward(self, trajectory_id: str) -> RunReward:
        """What a run is worth now. Raises KeyError for one that was never graded."""
        run = self.runs[trajectory_id]
        run.settle(self.named, self.recalls)
        return RunReward(
            trajectory_id=trajectory_id,
            revision=run.revision,
            facts=run.facts,
            reward=run.reward,
            why="" if run.reward is not None else run.why,
            epochs=run.epochs,
            status=self._status(run),
        )

    def _status(self, run: GradedRun) -> RewardStatus:
        if run.recalled:
            return "recalled"
        mine = run.grades.get(str(run.revision), {})
        found = [effective(mine.get(name, ())) for name in self.named.run]
        found += [newest(run.feedback.get(name, ())) for name in self.named.outside]
        kinds = [_KINDS[type(kept.grade)] if kept else "waiting" for kept in found]
        return next((kind for kind in kinds if kind != "scored"), "scored" if run.reward is not None else "no value")

    def rewards(self) -> Iterator[RunReward]:
        """What every graded run is worth, in the order in which they came."""
        return (self.reward(name) for name, run in self.runs.items() if run.revision)

    def grade(self, trajectory_id: str, grader: str) -> Grade | None:
        """The grade of a grader that counts for the run's highest revision, recalled or not."""
        run = self.runs.get(trajectory_id)
        found = effective(run.grades.get(str(run.revision), {}).get(grader, ())) if run else None
        return found.grade if found else None
