"""The report set: 300 tasks from worlds that no gate, training or tuning reads, for published figures."""

from __future__ import annotations

from msgspec import Struct, structs

from millstream.deploy.evaluation import EvaluationRequest, Selection, TaskOutcome
from millstream.deploy.remote import Caller, ChildEvaluator
from millstream.examples.finqa.evaluation import EVALUATION, selected, succeeded
from millstream.examples.finqa.settings import LOOP
from millstream.graders.metrics import pass_at_k
from millstream.intervals import clustered_rate

REPORT = Selection(split="report", seed=0, tasks=LOOP.report.tasks, worlds=LOOP.report.worlds)
"""The same tasks for every seed of the demo, so that figures can be compared."""
PARTS = 4
"""Calls a measurement is made of: short ones, since whoever is in a hurry waits for the one under way."""


class Measured(Struct, frozen=True, kw_only=True):
    """Success on the report set: a rate with its 95 % interval clustered by world, over ``tasks`` tasks.

    ``pass_at``: pass@k by k, where there were k attempts.
    """

    success: float
    low: float
    high: float
    tasks: int
    pass_at: dict[int, float]


def measure(
    caller: Caller, lineage: str, version: int, folder: str, *, temperature: float, attempts: int = 1
) -> Measured:
    """Play the report set and count. Success is over all attempts, the interval by world."""
    task_ids = [task.task_id for task in selected(REPORT)]
    requests = [
        EvaluationRequest(
            lineage=lineage,
            version=version,
            policy_dir=folder,
            selection=structs.replace(REPORT, task_ids=tuple(task_ids[part::PARTS])),
            temperature=temperature,
            attempts=attempts,
        )
        for part in range(PARTS)
    ]
    found = ChildEvaluator([caller] * PARTS, EVALUATION).evaluate_many(requests)
    return measured([outcome for part in found for outcome in part], attempts)


def measured(outcomes: list[TaskOutcome], attempts: int) -> Measured:
    """The figures of a list of outcomes."""
    values = [float(succeeded(o)) for o in outcomes]
    interval = clustered_rate(values, [o.world for o in outcomes])
    tasks: dict[str, list[float]] = {}
    for o, value in zip(outcomes, values, strict=True):
        tasks.setdefault(o.task_id, []).append(value)
    counts = [(len(found), int(sum(found))) for found in tasks.values()]
    passes = {k: pass_at_k(counts, k) for k in (1, attempts)}
    return Measured(
        success=interval.estimate,
        low=interval.low,
        high=interval.high,
        tasks=len(tasks),
        pass_at={k: value for k, value in passes.items() if value is not None},
    )
