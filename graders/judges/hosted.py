"""``score_model`` and ``label_model`` of the hosted contract, put to a judge.

Messages are sent as the grader has them; what a template inserts from ``sample`` is delimited, since the policy
wrote it. The judge answers ``{"steps": [{"description", "conclusion"}], "result"}``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from millstream.graders.hosted.definitions import (
    Content,
    InputAudio,
    InputImage,
    InputText,
    LabelModel,
    Message,
    OutputText,
    SamplingParams,
    ScoreModel,
    Single,
)
from millstream.graders.hosted.faults import HostedFault, Spent
from millstream.graders.hosted.means import Answered, Runner
from millstream.graders.hosted.templates import Path, Values, render
from millstream.graders.judges.graded_text import SUSPECTED, delimited, suspected
from millstream.graders.judges.judge import Judge, JudgeFault, Question, Verdict
from millstream.graders.judges.reading import SEVERAL, Read, label, number

SAMPLE: Final = "sample"
_STEP: Final = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "conclusion": {"type": "string"}},
    "required": ["description", "conclusion"],
    "additionalProperties": False,
}
_WORDS: Final = (
    "Answer with one JSON object and nothing else: "
    '{{"steps": [{{"description": "…", "conclusion": "…"}}], "result": …}} '
    "where the steps are your reasoning, in order, and result is {result}."
)


def runner(judge: Judge) -> Runner:
    """Grades ``score_model`` and ``label_model`` by asking the judge."""

    def run(definition: Single, values: Values) -> Answered:
        assert isinstance(definition, ScoreModel | LabelModel)
        signs: list[str] = []
        messages = tuple(_message(one, values, signs) for one in definition.input)
        notes = (SUSPECTED,) if signs else ()
        try:
            verdict = judge.ask(_question(judge, definition, messages), lambda reply: _read(definition, reply))
        except JudgeFault as fault:
            spent = noted(fault.spent, notes)
            raise HostedFault(str(fault), flag=fault.flag, kind=fault.kind, spent=spent) from None
        return _answered(definition, verdict, notes)

    return run


def noted(spent: Spent, notes: tuple[str, ...]) -> Spent:
    """The spending with more notes."""
    return msgspec.structs.replace(spent, notes=tuple(dict.fromkeys((*spent.notes, *notes))))


def _answered(definition: ScoreModel | LabelModel, verdict: Verdict[Read], notes: tuple[str, ...]) -> Answered:
    read = verdict.value
    score = read.value if isinstance(definition, ScoreModel) else float(read.label in definition.passing_labels)
    spent = noted(verdict.spent, (*notes, *((SEVERAL,) if read.several else ())))
    return Answered(score=score, label=read.label, reason=read.reason, spent=spent)


def _read(definition: ScoreModel | LabelModel, reply: str) -> Read:
    if isinstance(definition, ScoreModel):
        return number(reply, *definition.range)
    return label(reply, definition.labels)


def _question(judge: Judge, definition: ScoreModel | LabelModel, messages: tuple[dict[str, Any], ...]) -> Question:
    if isinstance(definition, ScoreModel):
        low, high = definition.range
        result: dict[str, Any] = {"type": "number"}
        words, sampling = f"a number from {low:g} to {high:g}", definition.sampling_params
    else:
        result = {"type": "string", "enum": list(definition.labels)}
        words, sampling = f"one of these labels, as written: {', '.join(map(repr, definition.labels))}", None
    return Question(
        model=definition.model,
        messages=messages,
        schema={
            "type": "object",
            "properties": {"steps": {"type": "array", "items": _STEP}, "result": result},
            "required": ["steps", "result"],
            "additionalProperties": False,
        },
        wants=_WORDS.format(result=words),
        parameters=parameters(sampling, judge.settings.max_tokens),
    )


def parameters(sampling: SamplingParams | None, max_tokens: int) -> dict[str, Any]:
    """The sampling by its names in the chat API; at most ``max_tokens`` unless it says otherwise."""
    given = msgspec.to_builtins(sampling or SamplingParams())
    limit = given.pop("max_completions_tokens") or max_tokens
    return {**{name: value for name, value in given.items() if value is not None}, "max_completion_tokens": limit}


def _message(message: Message, values: Values, signs: list[str]) -> dict[str, Any]:
    """A message of the chat API. ``signs`` takes what is suspicious in what was inserted."""
    role = "system" if message.role == "developer" else message.role  # which every endpoint knows
    if isinstance(message.content, tuple):
        return {"role": role, "content": [_part(part, values, signs) for part in message.content]}
    part = _part(message.content, values, signs)
    return {"role": role, "content": part["text"] if part["type"] == "text" else [part]}


def _part(content: Content, values: Values, signs: list[str]) -> dict[str, Any]:
    match content:
        case str() | InputText() | OutputText():
            text = content if isinstance(content, str) else content.text
            return {"type": "text", "text": render(text, values, lambda path, value: _inserted(path, value, signs))}
        case InputImage():
            return {
                "type": "image_url",
                "image_url": {"url": render(content.image_url, values), "detail": content.detail},
            }
        case InputAudio():
            audio = {"data": render(content.input_audio.data, values), "format": content.input_audio.format}
            return {"type": "input_audio", "input_audio": audio}


def _inserted(path: Path, value: str, signs: list[str]) -> str:
    if path.namespace != SAMPLE:
        return value
    signs += suspected(value)
    return delimited(value)
