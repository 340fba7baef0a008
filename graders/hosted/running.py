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
from millstream.graders.hosted.faults import DETAILS, FLAGS, HostedFault
from millstream.graders.hosted.similarity import similarity
from millstream.graders.hosted.templates import Values, render

KIND: Mapping[type[Any], str] = {
    kind: str(kind.__struct_config__.tag)
    for kind in (StringCheck, TextSimilarity, ScoreModel, LabelModel, Python, Endpoint, Multi)
}


class Outcome(Struct, frozen=True, kw_only=True):
    """What a grader gave: its grade, those of its parts, and the flags that were set, each with its detail."""

    grade: Grade
    parts: dict[str, Grade] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


def run(definition: Definition, item: Mapping[str, Any], sample: Mapping[str, Any]) -> Outcome:
    """Grade a sample. Raises nothing for what the grader, the item or the sample did; `MissingExtra` without
    the similarity libraries.
    """
    values = {"item": item, "sample": sample}
    return _multi(definition, values) if isinstance(definition, Multi) else _single(definition, values)


def _single(definition: Single, values: Values) -> Outcome:
    try:
        return Outcome(grade=Scored(score=_score(definition, values)))
    except HostedFault as fault:
        return Outcome(grade=fault.failed(), flags={fault.flag: str(fault)[:1000]})
    except GraderError as error:
        return Outcome(grade=HostedFault(str(error)).failed(), flags={"other_error": str(error)[:1000]})
    except MillstreamError:
        raise
    except Exception as error:  # noqa: BLE001 — a similarity library may raise anything on odd texts
        told = f"{type(error).__name__}: {error}"[:1000]
        return Outcome(grade=HostedFault(told).failed(), flags={"other_error": told})


def _score(definition: Single, values: Values) -> float:
    match definition:
        case StringCheck():
            return float(_checks(definition, values))
        case TextSimilarity(evaluation_metric=metric):
            return similarity(metric, render(definition.input, values), render(definition.reference, values))
        case ScoreModel() | LabelModel():
            raise HostedFault(missing(definition), flag="model_grader_server_error", kind="infrastructure")
        case Python():
            raise HostedFault(missing(definition), flag="python_grader_server_error", kind="infrastructure")
        case Endpoint():
            raise HostedFault(missing(definition), kind="infrastructure")


def missing(definition: Single) -> str:
    """What a kind that can't be run in this version would need."""
    name = f"grader {definition.name!r}"
    match definition:
        case ScoreModel() | LabelModel():
            return (
                f"{name} asks the model {definition.model!r}: this version has no setting for a judge's endpoint "
                "(base URL, model and key), so nothing was asked"
            )
        case Python():
            return (
                f"{name} is code that arrived as data: it may run in a sandbox only, and this version has none; "
                "put the function into a grader file of your own ([graders] files)"
            )
        case Endpoint():
            return f"{name} asks a URL: this version does not call endpoints"
    return ""


def missing_parts(definition: Definition) -> list[str]:
    """What `missing` says of a definition and its parts, where it says anything."""
    parts = definition.graders.values() if isinstance(definition, Multi) else [definition]
    return [told for part in parts if (told := missing(part))]


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


def _multi(definition: Multi, values: Values) -> Outcome:
    """Every part is run; the parts that the formula names must all have a score."""
    outcomes = {name: _single(part, values) for name, part in definition.graders.items()}
    parts = {name: outcome.grade for name, outcome in outcomes.items()}
    flags = {flag: told for outcome in outcomes.values() for flag, told in outcome.flags.items()}
    parser = Parser(definition.calculate_output, "calculate_output")
    formula = parser.whole()
    for name in sorted(parser.names):
        part = parts[name]
        if isinstance(part, Failed):
            grade = Failed(kind=part.kind, reason=f"{name}: {part.reason}"[:1000])
            return Outcome(grade=grade, parts=parts, flags=flags)
    scores = {name: value for name, part in parts.items() if (value := score_of(part)) is not None}
    try:
        value = float(formula(scores))
        if not math.isfinite(value):
            raise ValueError(f"the result is {value}")  # noqa: TRY301 — one door for every fault of arithmetic
    except (ArithmeticError, ValueError, TypeError) as error:
        fault = HostedFault(f"calculate_output {definition.calculate_output!r} of {scores}: {error}")
        return Outcome(grade=fault.failed(), parts=parts, flags={**flags, fault.flag: str(fault)[:1000]})
    return Outcome(grade=Scored(score=value), parts=parts, flags=flags)


def answer(definition: Definition, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The outcome as the service answered; ``reward`` is null when there is no grade, never 0."""
    scores = {name: score_of(grade) for name, grade in outcome.parts.items()}
    reward = score_of(outcome.grade)
    return {
        "reward": reward,
        "sub_rewards": scores,
        "metadata": {
            "name": definition.name,
            "type": KIND[type(definition)],
            "execution_time": seconds,
            "scores": scores or {definition.name: reward},
            "token_usage": None,
            "sampled_model_name": None,
            "errors": _errors(outcome.flags),
        },
        "model_grader_token_usage_per_model": {},
    }


def _errors(flags: Mapping[str, str]) -> dict[str, Any]:
    details = {field: flags.get(flag) for flag, field in DETAILS.items()}
    return {**{flag: flag in flags for flag in FLAGS}, **details}


def timed(definition: Definition, item: Mapping[str, Any], sample: Mapping[str, Any]) -> tuple[Outcome, dict[str, Any]]:
    """`run`, and its answer with the seconds it took."""
    begun = time.perf_counter()
    outcome = run(definition, item, sample)
    return outcome, answer(definition, outcome, time.perf_counter() - begun)
