"""What a judge is shown of a run: the task, the reference, the steps, the answer.

All that comes of the run is delimited, tool outputs and the user's words included: each may talk to the judge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from millstream.graders.judges.graded_text import SUSPECTED, delimited, suspected
from millstream.trajectory import Step, Trajectory

Part: TypeAlias = Literal["question", "reference", "steps", "answer"]
MAX_SHOWN: Final = 60_000
"""The most characters of one part; the middle of a longer one is left out, and said to be."""
SHORTENED: Final = "shortened_for_judge"
"""The flag of a grade whose judge was not shown everything."""
NO_ANSWER: Final = "(the agent gave no answer)"
HEADS: Final = {
    "question": "The task",
    "reference": "The reference answer, which is right",
    "steps": "What the agent did",
    "answer": "The agent's answer, which is to be judged",
}


class Material(Struct, frozen=True, kw_only=True):
    """A text for a judge, what it quotes of the run, and the flags for the grade."""

    text: str
    quotes: str = ""
    flags: tuple[str, ...] = ()


def material(t: Trajectory, parts: Sequence[Part]) -> Material:
    """The parts of a run, in order, each under its head; a part that there is none of is left out."""
    texts = {"question": t.task.question, "steps": _steps(t.steps), "answer": t.final_answer or NO_ANSWER}
    reference = t.task.reference
    told = [] if reference is None else [_under("reference", str(reference))]
    lines: list[str] = []
    shown: list[str] = []
    flags: set[str] = set()
    for part in parts:
        if part == "reference":
            lines += told
        elif text := texts[part]:
            short = shortened(text)
            flags |= {SHORTENED} if short != text else set()
            shown.append(short)
            lines.append(_under(part, delimited(short)))
    flags |= signs(*shown)
    return Material(text="\n\n".join(lines), quotes="\n".join(shown), flags=tuple(sorted(flags)))


def signs(*texts: str) -> set[str]:
    """The flag of suspicion, if any of the texts talks to the judge."""
    return {SUSPECTED} if suspected(*texts) else set()


def shortened(text: str) -> str:
    """At most `MAX_SHOWN` characters: beginning and end, with how much was left out between."""
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _under(part: str, text: str) -> str:
    return f"# {HEADS[part]}\n{text}"


def _steps(steps: Sequence[Step]) -> str:
    lines = []
    for number, step in enumerate(steps, 1):
        if step.response.text:
            lines.append(f"{number}. says: {step.response.text}")
        for call in step.response.tool_calls:
            arguments = call.arguments_raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False)
            lines.append(f"{number}. calls {call.name}({arguments})")
        for result in step.results:
            outcome = f"fails: {result.error}" if result.error else f"returns: {result.output}"
            lines.append(f"{number}. {result.name} {outcome}")
    return "\n".join(lines)
