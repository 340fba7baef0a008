"""Evaluation: running a policy on tasks it has not seen, and what comes back of each attempt.

The gate asks for the champion and the candidate on the *same* assigned tasks. An evaluator is the
operator's: ``[gate] evaluation = "module:function"`` names a function from `EvaluationRequest` to
`TaskOutcome`s, which `deploy.remote` can run in child processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from millstream.errors import SettingsError
from millstream.grade import Grade, score_of


class Selection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tasks: ``tasks`` of them from at least ``worlds`` worlds of ``split``, drawn by ``seed``.

    The same selection is the same tasks, whoever runs it. ``task_ids`` (a retry) keeps only those of
    the drawn ones.
    """

    split: Literal["held_out", "report"] = "held_out"
    seed: int = 0
    tasks: int = 300
    worlds: int = 30
    task_ids: tuple[str, ...] = ()


class EvaluationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run one policy directory on a selection. Each attempt has its own random stream, so a retry of
    a task acts as before and only the failed grading is done again. Temperature 0 is greedy.
    """

    lineage: str
    version: int
    policy_dir: str
    selection: Selection
    temperature: float = 0.7
    attempts: int = 1


class TaskOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at one task. ``gold`` decides; ``proxy`` is the lineage's own reward when that is
    another grade. ``format_ok`` in [0, 1]; ``useful_calls`` as in docs/promotion.md; ``depth`` is the
    longest causal chain of the policy's steps; ``cost`` in any one currency (tokens will do). ``gold_epoch``
    is the gold grader's; ``run``, the JSON of the `Trajectory`, lets the gate decide again when gold is mended.
    ``success_from``: from which gold score on it is a success; the gate sets it.
    """

    task_id: str
    world: str
    gold: Grade
    proxy: Grade | None = None
    attempt: int = 0
    trajectory_id: str = ""
    grades: dict[str, Grade] = field(default_factory=dict)
    format_ok: float = 1.0
    tool_errors: int = 0
    calls: int = 0
    useful_calls: int = 0
    steps: int = 0
    depth: int = 0
    cost: float = 0.0
    gold_epoch: str = ""
    run: bytes = b""
    success_from: float = 0.5

    @property
    def success(self) -> bool:
        """Scored at least ``success_from`` by gold (for a 0/1 grader: right). An unscored one is none."""
        value = score_of(self.gold)
        return value is not None and value >= self.success_from


Outcomes: TypeAlias = Sequence[TaskOutcome]


@runtime_checkable
class Evaluator(Protocol):
    """Runs policies on tasks. Raises `Unavailable` when it could not (the gate tries again)."""

    def evaluate_many(self, requests: Sequence[EvaluationRequest]) -> list[Outcomes]:
        """The outcomes of each request, in order; side by side where there is room."""
        ...


EvaluationFunction: TypeAlias = Callable[[EvaluationRequest], Outcomes]


class FunctionEvaluator:
    """An evaluator from a plain function, one request after the other."""

    def __init__(self, function: EvaluationFunction) -> None:
        self.function = function

    def evaluate_many(self, requests: Sequence[EvaluationRequest]) -> list[Outcomes]:
        """Call the function for each request."""
        return [self.function(request) for request in requests]


def named_function(name: str) -> EvaluationFunction:
    """The function that ``[gate] evaluation`` names. Raises `SettingsError` saying what to write."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise SettingsError(f"[gate] evaluation = {name!r}: write it as module:function")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise SettingsError(f"[gate] evaluation = {name!r}: cannot import {module} ({error})") from None
    if not callable(found):
        raise SettingsError(f"[gate] evaluation = {name!r}: {module} has no function {attribute!r}")
    function: EvaluationFunction = found
    return function


def with_retries(evaluator: Evaluator, requests: Sequence[EvaluationRequest], retries: int = 1) -> list[Outcomes]:
    """Evaluate, then run the tasks whose gold grade failed again, up to ``retries`` times.

    A retry replaces an attempt only when it is Scored: a failure is never traded for another failure.
    """
    outcomes = [list(found) for found in evaluator.evaluate_many(requests)]
    for _ in range(retries):
        again = [_failed_only(request, found) for request, found in zip(requests, outcomes, strict=True)]
        asked = [request for request in again if request is not None]
        if not asked:
            break
        answers = iter(evaluator.evaluate_many(asked))
        for found, request in zip(outcomes, again, strict=True):
            if request is not None:
                _replace_scored(found, next(answers))
    return list(outcomes)


def _failed_only(request: EvaluationRequest, outcomes: Outcomes) -> EvaluationRequest | None:
    failed = tuple(sorted({o.task_id for o in outcomes if score_of(o.gold) is None}))
    if not failed:
        return None
    selection = Selection(
        split=request.selection.split,
        seed=request.selection.seed,
        tasks=request.selection.tasks,
        worlds=request.selection.worlds,
        task_ids=failed,
    )
    return EvaluationRequest(
        lineage=request.lineage,
        version=request.version,
        policy_dir=request.policy_dir,
        selection=selection,
        temperature=request.temperature,
        attempts=request.attempts,
    )


def _replace_scored(found: list[TaskOutcome], again: Outcomes) -> None:
    scored: Mapping[tuple[str, int], TaskOutcome] = {
        (o.task_id, o.attempt): o for o in again if score_of(o.gold) is not None
    }
    for index, outcome in enumerate(found):
        if score_of(outcome.gold) is None:
            found[index] = scored.get((outcome.task_id, outcome.attempt), outcome)
