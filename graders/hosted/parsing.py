"""Reading a hosted grader: every field checked before anything runs, and each fault named with its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from millstream.errors import SettingsError, nearest
from millstream.graders.formulas import Parser
from millstream.graders.hosted.definitions import (
    KINDS,
    Audio,
    Definition,
    Effort,
    Endpoint,
    LabelModel,
    Limits,
    Message,
    Metric,
    Multi,
    Operation,
    Python,
    Role,
    SamplingParams,
    ScoreModel,
    Single,
    StringCheck,
    TextSimilarity,
)
from millstream.graders.hosted.source import check_source
from millstream.graders.hosted.templates import paths_of
from millstream.settings import HostedSettings

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$?(?P<path>[^`]*)`)?", re.DOTALL)
_CHOICES: Final = {"operation": Operation, "evaluation_metric": Metric, "role": Role}
_WORDS: Final = {
    **{name: list(get_args(choice)) for name, choice in _CHOICES.items()},
    "reasoning_effort": list(get_args(Effort)),
    "type": ["input_text", "output_text", "input_image", "input_audio"],
}


def parse(text: bytes | str, limits: Limits = Limits(), where: str = "grader") -> Definition:  # noqa: B008 — frozen
    """The grader that a JSON text defines. Raises `SettingsError` naming the field, and the nearest known name."""
    return checked(decoded(text, where), limits, where)


def decoded(text: bytes | str, where: str) -> Any:
    """What a JSON text holds. Raises `SettingsError` for what is no JSON, NaN and keys that stand twice among it."""
    try:
        found = json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_constant)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where} is no JSON: {str(error) or 'nested too deep'}") from None
    return found


def limits_of(settings: HostedSettings) -> Limits:
    """The limits that the settings set."""
    return Limits(source_bytes=settings.source_bytes, graders=settings.max_graders)


def checked(value: Any, limits: Limits = Limits(), where: str = "grader") -> Definition:  # noqa: B008 — frozen
    """The grader that decoded JSON defines. Raises `SettingsError` as `parse` does."""
    value = _unwrapped(value)
    kind = _kind(value, where)
    return _multi(value, limits, where) if kind == "multi" else _single(value, limits, where)


def _unwrapped(value: Any) -> Any:
    """The grader itself, out of the body of a validate request or of a fine-tuning job."""
    match value:
        case {"method": {"reinforcement": {"grader": grader}}}:
            return grader
        case {"grader": grader} if len(value) == 1:
            return grader
    return value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Any, where: str) -> str:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a JSON object, not {type(value).__name__}")
    kind = value.get("type")
    if not isinstance(kind, str):
        raise SettingsError(f"{where}: 'type' is missing; known: {', '.join(KINDS)}")
    if kind not in KINDS:
        raise SettingsError(f"{where}.type: no kind {kind!r}{nearest(kind, list(KINDS))}")
    return kind


def _single(value: Any, limits: Limits, where: str) -> Single:
    made: Single = _converted(value, KINDS[_kind(value, where)], where)
    _named(made.name, where)
    _check(made, limits, where)
    return made


def _named(name: str, where: str) -> None:
    if not name.strip():
        raise SettingsError(f"{where}.name is empty; every grader has a name")


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise SettingsError(_told(str(error), value, kind, where)) from None


def _told(message: str, value: Any, kind: Any, where: str) -> str:
    """What msgspec said, with the place and the nearest name."""
    if unknown := _UNKNOWN.fullmatch(message):
        path = unknown["path"] or ""
        known = _fields_at(path, kind)
        hint = nearest(unknown["name"], known) if known else ""
        return f"{where}{path}: unknown field {unknown['name']!r}{hint}"
    told, placed, path = message.partition(" - at `$")
    path = path.removesuffix("`") if placed else ""
    words = _WORDS.get(path.rpartition(".")[2])
    if words and told.startswith("Invalid"):
        told = f"{_at(value, path)!r} is no choice{nearest(str(_at(value, path)), words)}"
    return f"{where}{path}: {told}"


def _fields_at(path: str, kind: Any) -> list[str]:
    """The field names of the object at a place, where they are known."""
    if not path:
        return ["type", *kind.__struct_fields__]
    nested = {"sampling_params": SamplingParams, "input": Message, "input_audio": Audio}
    last = path.rpartition(".")[2].partition("[")[0]
    return list(nested[last].__struct_fields__) if last in nested else []


def _at(value: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        value = value[int(step)] if isinstance(value, list) else value.get(step)
    return value


def _check(made: Single, limits: Limits, where: str) -> None:
    match made:
        case StringCheck() | TextSimilarity():
            paths_of(made.input, f"{where}.input")
            paths_of(made.reference, f"{where}.reference")
            _metric(made, where)
        case ScoreModel() | LabelModel():
            _judge(made, where)
        case Python():
            check_source(made.source, limits.source_bytes, f"{where}.source")
        case Endpoint():
            if not re.match(r"https?://[^/\s]+", made.url):
                raise SettingsError(f"{where}.url must begin with https:// or http:// and a host")
    _threshold(getattr(made, "pass_threshold", None), where)


def _metric(made: StringCheck | TextSimilarity, where: str) -> None:
    if isinstance(made, TextSimilarity) and made.evaluation_metric == "cosine":
        raise SettingsError(
            f"{where}.evaluation_metric: 'cosine' needs embeddings and existed in evals only; choose "
            "fuzzy_match, bleu, gleu, meteor or one of rouge_1 to rouge_5 and rouge_l"
        )


def _threshold(threshold: float | None, where: str) -> None:
    if threshold is not None and not math.isfinite(threshold):
        raise SettingsError(f"{where}.pass_threshold must be a finite number")


def _judge(made: ScoreModel | LabelModel, where: str) -> None:
    if not made.model.strip():
        raise SettingsError(f"{where}.model is empty; name the judge's model")
    if not made.input:
        raise SettingsError(f"{where}.input has no message; a judge must be asked something")
    for number, message in enumerate(made.input):
        for text in message.texts():
            paths_of(text, f"{where}.input[{number}]")
    if isinstance(made, LabelModel):
        _labels(made, where)
    else:
        _range(made, where)


def _labels(made: LabelModel, where: str) -> None:
    if not made.labels or len(set(made.labels)) < len(made.labels):
        raise SettingsError(f"{where}.labels must name at least one label, and each once")
    for label in made.passing_labels:
        if label not in made.labels:
            raise SettingsError(
                f"{where}.passing_labels: {label!r} is none of labels{nearest(label, list(made.labels))}"
            )


def _range(made: ScoreModel, where: str) -> None:
    low, high = made.range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingsError(f"{where}.range [{low}, {high}] must be finite, the low end first")


def _multi(value: Mapping[str, Any], limits: Limits, where: str) -> Multi:
    raw = _by_name(value.get("graders", {}), f"{where}.graders")
    if not 1 <= len(raw) <= limits.graders:
        raise SettingsError(f"{where}.graders must hold 1 to {limits.graders} graders, not {len(raw)}")
    graders = {}
    for name, part in raw.items():
        place = f"{where}.graders.{name}"
        if _kind(part, place) == "multi":
            raise SettingsError(f"{place}: a multi holds no multi; put its graders here and join the formulas")
        graders[name] = _single(part, limits, place)
    made: Multi = _converted({**value, "graders": {}}, Multi, where)
    _named(made.name, where)
    _formula(made.calculate_output, sorted(graders), f"{where}.calculate_output")
    return msgspec.structs.replace(made, graders=graders)


def _by_name(graders: Any, where: str) -> dict[str, Any]:
    """A mapping by name, from a mapping, a list, or a single grader (as the typed client shows it)."""
    if isinstance(graders, Mapping) and not isinstance(graders.get("type"), str):
        return dict(graders)
    parts = graders if isinstance(graders, list) else [graders]
    found: dict[str, Any] = {}
    for number, part in enumerate(parts):
        name = part.get("name") if isinstance(part, Mapping) else None
        if not isinstance(name, str):
            raise SettingsError(f"{where}[{number}] must be an object with a name")
        if name in found:
            raise SettingsError(f"{where}: two graders are named {name!r}; a formula could not tell them apart")
        found[name] = part
    return found


def _formula(text: str, names: list[str], where: str) -> None:
    parser = Parser(text, where)
    parser.whole()
    for name in sorted(parser.names - set(names)):
        raise SettingsError(f"{where} {text!r}: no grader {name!r}{nearest(name, names)}")
