"""One grading by a judge: the questions put for it, and what they took together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from millstream.grade import Failed, Grade
from millstream.graders.hosted.definitions import SamplingParams
from millstream.graders.hosted.faults import Spent
from millstream.graders.judges.hosted import parameters
from millstream.graders.judges.judge import Judge, JudgeFault, Question
from millstream.graders.judges.shown import Part
from millstream.graders.registry import Told

T = TypeVar("T")
TEXT: Final = {"type": "string"}
INSTRUCTION: Final = "You judge the work of an agent, strictly by what you are asked and by nothing else."


class Common(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every kind of judge has. ``criteria``: what to judge by. ``model``: the judge's, where the settings name
    none. ``shows``: what it sees of the run.
    """

    criteria: str = ""
    model: str = ""
    shows: tuple[Part, ...] = ("question", "answer")
    sampling: SamplingParams = SamplingParams(temperature=0.0)


class Sitting:
    """The questions of one grading. ``flags`` go with its grade."""

    def __init__(self, judge: Judge, common: Common, flags: tuple[str, ...] = ()) -> None:
        self._judge, self._common = judge, common
        self._flags = dict.fromkeys(flags)
        self._spent: list[Spent] = []

    def ask(self, text: str, schema: Mapping[str, Any], wants: str, read: Callable[[str], T]) -> T:
        """What ``read`` makes of the judge's answer. ``schema``: the fields of the answer's object.

        Raises `JudgeFault`.
        """
        question = Question(
            model=self._common.model,
            messages=({"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}),
            schema=object_of(schema),
            wants=f"Answer with one JSON object and nothing else: {wants}",
            parameters=parameters(self._common.sampling, self._judge.settings.max_tokens),
        )
        verdict = self._judge.ask(question, read)
        self._spent.append(verdict.spent)
        return verdict.value

    def note(self, flag: str) -> None:
        """Put a flag to the grade."""
        self._flags[flag] = None

    def end(self, act: Callable[[Sitting], Grade]) -> Told:
        """Grade, and tell the grade with all that was spent; a judge that failed fails the grade."""
        try:
            grade = act(self)
        except JudgeFault as fault:
            self._spent.append(fault.spent)
            grade = Failed(kind=fault.kind, reason=str(fault)[:1000])
        notes = dict.fromkeys(note for one in self._spent for note in one.notes)
        return Told(
            grade=grade,
            cost=sum(one.cost for one in self._spent),
            flags=tuple({**self._flags, **notes}),
            model=" ".join(sorted({one.model for one in self._spent if one.model})),
        )


def object_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object with just these fields."""
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}
