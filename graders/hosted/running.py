"""Running a hosted grader on an item and a sample, to a grade and to the answer the service gave.

An error is a `Failed` grade: the reward of the answer is null and its flag is set, where the service gave 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from millstream.errors import GraderError, MillstreamError
from millstream.grade import Failed, Grade, Scored, score_of
from millstream.graders.formulas import Parser
from millstream.graders.hosted.definitions import (
    Definition,
    Endpoint,
    LabelModel,
    Multi,
    Python,
    ScoreModel,
    Single,
    StringCheck,
    TextSimilarity,
)
from millstream.graders.hosted.faults import DETAILS, FLAGS, HostedFault, Spent
from millstream.graders.hosted.means import NOTHING, Answered, Means
from millstream.graders.hosted.similarity import similarity
from millstream.graders.hosted.templates import Values, render

KIND: Mapping[type[Any], str] = {
    kind: str(kind.__struct_config__.tag)
    for kind in (StringCheck, TextSimilarity, ScoreModel, LabelModel, Python, Endpoint, Multi)
}


class Outcome(Struct, frozen=True, kw_only=True):
    """What a grader gave: its grade, those of its parts, and the flags that were set, each with its detail.

    ``spent``: what those that reach outside cost, by the part's name, also where they gave no score.
    """

    grade: Grade
    parts: dict[str, Grade] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)


def run(
    definition: Definition,
    item: Mapping[str, Any],
    sample: Mapping[str, Any],
    means: Means = NOTHING,
    trace_id: str = "",
) -> Outcome:
    """Grade a sample; ``trace_id`` is told to endpoints. Raises nothing for what the grader, the item or the sample
    did; `MissingExtra` without the similarity libraries. A kind that ``means`` lacks is `Failed`.
    """
    values = {"item": item, "sample": sample, "trace_id": trace_id}
    if isinstance(definition, Multi):
        return _multi(definition, values, means)
    return _single(definition, values, means)


def _single(definition: Single, values: Values, means: Means) -> Outcome:
    try:
        answered = _answered(definition, values, means)
        grade = Scored(score=answered.score, label=answered.label, reason=answered.reason)
        return Outcome(grade=grade, spent=_named(definition, answered.spent))
    except HostedFault as fault:
        flags = {fault.flag: str(fault)[:1000]}
        return Outcome(grade=fault.failed(), flags=flags, spent=_named(definition, fault.spent))
    except GraderError as error:
        return Outcome(grade=HostedFault(str(error)).failed(), flags={"other_error": str(error)[:1000]})
    except MillstreamError:
        raise
    except Exception as error:  # noqa: BLE001 — a similarity library may raise anything on odd texts
        told = f"{type(error).__name__}: {error}"[:1000]
        return Outcome(grade=HostedFault(told).failed(), flags={"other_error": told})


def _named(definition: Single, spent: Spent | None) -> dict[str, Spent]:
    return {} if spent is None else {definition.name: spent}


def _answered(definition: Single, values: Values, means: Means) -> Answered:
    match definition:
        case StringCheck():
            return Answered(score=float(_checks(definition, values)))
        case TextSimilarity(evaluation_metric=metric):
            score = similarity(metric, render(definition.input, values), render(definition.reference, values))
            return Answered(score=score)
    return means.runner(definition)(definition, values)


def missing_parts(definition: Definition, means: Means = NOTHING) -> list[str]:
    """What a definition and its parts would need that is not there."""
    parts = definition.graders.values() if isinstance(definition, Multi) else [definition]
    return [told for part in parts if (told := means.missing(part))]


def _checks(definition: StringCheck, values: Values) -> bool:
    """``like`` holds when the input contains the reference; ``ilike`` in any case."""
    given, reference = render(definition.input, values), render(definition.reference, values)
    match definition.operation:
        case "eq":
            return given == reference
        case "ne":
            return given != reference
        case "like":
            return reference in given
        case "ilike":
            return reference.casefold() in given.casefold()


def _multi(definition: Multi, values: Values, means: Means) -> Outcome:
    """Every part is run; the parts that the formula names must all have a score."""
    outcomes = {name: _single(part, values, means) for name, part in definition.graders.items()}
    parts = {name: outcome.grade for name, outcome in outcomes.items()}
    flags = {flag: told for outcome in outcomes.values() for flag, told in outcome.flags.items()}
    spent = {name: told for name, outcome in outcomes.items() for told in outcome.spent.values()}
    try:
        grade: Grade = _combined(definition, parts)
    except HostedFault as fault:
        grade, flags = fault.failed(), {**flags, fault.flag: str(fault)[:1000]}
    return Outcome(grade=grade, parts=parts, flags=flags, spent=spent)


def _combined(definition: Multi, parts: Mapping[str, Grade]) -> Grade:
    """The formula over the parts: failed as the first part is that it names and that failed."""
    parser = Parser(definition.calculate_output, "calculate_output")
    formula = parser.whole()
    for name in sorted(parser.names):
        part = parts[name]
        if isinstance(part, Failed):
            return Failed(kind=part.kind, reason=f"{name}: {part.reason}"[:1000])
    scores = {name: value for name, part in parts.items() if (value := score_of(part)) is not None}
    try:
        value = float(formula(scores))
        if not math.isfinite(value):
            raise ValueError(f"the result is {value}")  # noqa: TRY301 — one door for every fault of arithmetic
    except (ArithmeticError, ValueError, TypeError) as error:
        raise HostedFault(f"calculate_output {definition.calculate_output!r} of {scores}: {error}") from None
    return Scored(score=value)


def answer(definition: Definition, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The outcome as the service answered; ``reward`` is null when there is no grade, never 0."""
    scores = {name: score_of(grade) for name, grade in outcome.parts.items()}
    reward = score_of(outcome.grade)
    tokens: dict[str, int] = {}
    for spent in outcome.spent.values():
        tokens[spent.model] = tokens.get(spent.model, 0) + spent.tokens
    return {
        "reward": reward,
        "sub_rewards": scores,
        "metadata": {
            "name": definition.name,
            "type": KIND[type(definition)],
            "execution_time": seconds,
            "scores": scores or {definition.name: reward},
            "token_usage": sum(tokens.values()) if tokens else None,
            "sampled_model_name": next(iter(tokens), None),
            "errors": _errors(outcome.flags),
        },
        "model_grader_token_usage_per_model": tokens,
    }


def _errors(flags: Mapping[str, str]) -> dict[str, Any]:
    details = {field: flags.get(flag) for flag, field in DETAILS.items()}
    return {**{flag: flag in flags for flag in FLAGS}, **details}


def timed(
    definition: Definition, item: Mapping[str, Any], sample: Mapping[str, Any], means: Means = NOTHING
) -> tuple[Outcome, dict[str, Any]]:
    """`run`, and its answer with the seconds it took."""
    begun = time.perf_counter()
    outcome = run(definition, item, sample, means)
    return outcome, answer(definition, outcome, time.perf_counter() - begun)
