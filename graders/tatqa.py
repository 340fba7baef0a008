"""TAT-QA (Zhu et al. 2021): spans, several spans, counts and calculations, with scales.

The task says so in its metadata: ``answers`` (the gold texts), ``answer_type`` (span, multi-span, count, arithmetic)
and ``scale`` (thousand, million, billion, percent or none); `tatqa_task` makes one of an item of the data set.

- a number is graded by the rules of `numeric`, in its scale: ``12.6 million`` and a bare ``12.6`` are both right for
  12.6 in millions, ``12.6 thousand`` is not. A calculation is right when it is its executed derivation (where that
  gives the gold at the digits shown) or the gold text, each by its own rule. A count is exact;
- a text is compared in composed form, without case, articles and punctuation;
- several spans are right when each is there and none besides, in any order (as JSON, a line each, or separated by
  semicolons, or else by ``and`` and commas that stand in no number). ``partial`` gives their F1 instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from millstream.errors import SettingsError
from millstream.events import Task, TaskId
from millstream.grade import Grade, Scored, abstain, fail, score, score_of
from millstream.graders.answers import MAX_LENGTH, final_number, final_part
from millstream.graders.formulas import Parser
from millstream.graders.numbers import clean, numbers
from millstream.graders.numeric import grade_answer
from millstream.graders.text import normalised
from millstream.trajectory import Trajectory

VERSION: Final = 2
_SPLITS = (re.compile(r"\s*\n\s*"), re.compile(r"\s*;\s*"), re.compile(r",\s+(?:and\s+)?|\s+and\s+"))
"""What separates spans: the first of these that an answer holds."""
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MARKS = re.compile(r"[^\w\s%$€£.+-]|(?<!\d)\.|\.(?!\d)")
_NUMERIC: Final = ("arithmetic", "count")


def tatqa(*, partial: bool = False) -> Callable[[Trajectory], Grade]:
    """The grader ``tatqa``: 1 or 0 (``partial``: F1 of several spans); abstains where the task is none of TAT-QA's."""

    def grade(t: Trajectory) -> Grade:
        gold = t.task.metadata.get("answers")
        if gold is None:
            return abstain("the task's metadata has no answers")
        if not isinstance(gold, list) or not gold or not all(isinstance(one, str | int | float) for one in gold):
            return fail("the task's answers must be a list of texts or numbers")
        return grade_tatqa(t.final_answer, t.task, [str(one) for one in gold], partial=partial)

    return grade


def grade_tatqa(answer: str | None, task: Task, gold: Sequence[str], *, partial: bool = False) -> Scored:
    """The grade of an answer text for a task with these gold texts."""
    if not answer or not answer.strip():
        return score(0.0, label="no_answer", reason="no answer")
    kind = task.metadata.get("answer_type")
    if kind in _NUMERIC:
        return _as_number(answer, task, gold[0], whole=kind == "count")
    gold = [one for one in gold if one.strip()] or list(gold)
    given = _spans(answer, len(gold))
    left = list(given)
    found = 0
    for one in gold:
        match = next((i for i, text in enumerate(left) if _same(text, one, task)), None)
        if match is not None:
            del left[match]
            found += 1
    value = 2 * found / (len(gold) + len(given)) if partial else float(found == len(gold) == len(given))
    label = "correct" if found == len(gold) == len(given) else "partly" if found else "wrong"
    return score(value, label=label, reason=f"{found} of {len(gold)} spans, {len(left)} others in {answer[:60]!r}")


def _as_number(answer: str, task: Task, gold: str, *, whole: bool) -> Scored:
    """A number against both golds: the executed value, and the text at the digits that it shows. A count is
    exact.
    """
    if whole:
        given, wanted = final_number(answer), numbers(clean(gold))
        right = given is not None and len(wanted) == 1 and given.value == wanted[0].value
        return score(float(right), label="correct" if right else "wrong", reason=f"{answer[:60]!r} for gold {gold}")
    shown = Task(reference=gold, metadata=task.metadata)
    grades = [grade_answer(answer, one) for one in (task, shown)]
    found = next((one for one in grades if score_of(one) == 1.0), grades[0])
    return found if isinstance(found, Scored) else score(0.0, label="wrong", reason=f"{answer[:60]!r} is no number")


def _spans(answer: str, wanted: int) -> list[str]:
    text = answer[-MAX_LENGTH:].strip()
    listed = _listed(text)
    if listed is not None:
        return listed
    part = final_part(text)[0]
    if wanted == 1:
        return [part]
    split = next((mark for mark in _SPLITS if mark.search(part)), _SPLITS[-1])
    return [piece.strip() for piece in split.split(part) if piece.strip()]


def _listed(text: str) -> list[str] | None:
    """The texts of a JSON list (or of one written as Python writes it), or None."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for form in (text, text.replace("'", '"')):
        try:
            return [str(one) for one in msgspec.json.decode(form, type=list[str | int | float])]
        except msgspec.MsgspecError:
            continue
    return None


def _same(given: str, gold: str, task: Task) -> bool:
    if _plain(given) == _plain(gold):
        return True
    found = numbers(clean(gold))
    if len(found) != 1 or found[0].text.strip(" ()$.") != clean(gold).strip(" ()$."):
        return False
    graded = grade_answer(given, Task(reference=gold, metadata={"scale": task.metadata.get("scale", "")}))
    return score_of(graded) == 1.0


def _plain(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", _MARKS.sub(" ", normalised(text))).split())


def tatqa_task(question: Mapping[str, Any], where: str = "TAT-QA question") -> Task:
    """A question of the data set as a task. Raises `SettingsError` for one without an answer."""
    answer, kind = question.get("answer"), question.get("answer_type")
    gold = [str(one) for one in answer] if isinstance(answer, list) else [str(answer)]
    if answer is None or not gold or not isinstance(kind, str):
        raise SettingsError(f"{where}: no answer or answer_type")
    scale = str(question.get("scale") or "")
    metadata: dict[str, Any] = {"answers": gold, "answer_type": kind, "scale": scale}
    if scale == "percent":
        metadata |= {"unit": "percent", "scale": ""}
    reference: str | float = gold[0] if len(gold) == 1 else "; ".join(gold)
    if kind in _NUMERIC:
        reference = executed(str(question.get("derivation") or ""), gold[0], percent=scale == "percent")
    return Task(
        id=TaskId(str(question.get("uid") or question.get("question_id") or "")),
        question=str(question.get("question", "")),
        reference=reference,
        family="tatqa",
        metadata=metadata,
    )


def executed(derivation: str, gold: str, *, percent: bool) -> str | float:
    """The value of a derivation such as ``(44.1-56.7)/56.7`` where it is the gold text at the digits shown; else
    the gold text. It is parsed, never run.
    """
    text = clean(derivation).replace("$", "").replace("%", "").replace("[", "(").replace("]", ")")
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    try:
        parser = Parser(text, where="derivation")
        value = float(parser.whole()({})) * (100.0 if percent else 1.0)
    except (SettingsError, ArithmeticError, ValueError, TypeError, KeyError):
        return gold
    shown = numbers(clean(gold))
    agrees = len(shown) == 1 and abs(value - shown[0].value) <= shown[0].unit / 2 * (1 + 1e-9)
    return value if agrees else gold
