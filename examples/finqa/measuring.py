"""The report set: 300 tasks from worlds that no gate, training or tuning reads, for published figures."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from millstream.deploy.evaluation import EvaluationRequest, Selection, TaskOutcome
from millstream.deploy.remote import Caller, Errand
from millstream.examples.finqa.evaluation import EVALUATION, succeeded
from millstream.examples.finqa.settings import LOOP
from millstream.graders.metrics import pass_at_k
from millstream.intervals import clustered_rate

REPORT = Selection(split="report", seed=0, tasks=LOOP.report.tasks, worlds=LOOP.report.worlds)
"""The same tasks for every seed of the demo, so that figures can be compared."""


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
    """Play the report set in a child and count. Success is over all attempts, the interval by world."""
    request = EvaluationRequest(
        lineage=lineage,
        version=version,
        policy_dir=folder,
        selection=REPORT,
        temperature=temperature,
        attempts=attempts,
    )
    answer = caller.call("evaluate", msgspec.msgpack.encode(Errand(EVALUATION, request)))
    return measured(msgspec.msgpack.decode(answer, type=list[TaskOutcome]), attempts)


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
