"""Texts against texts: whether the final answer is the reference, or holds it.

Texts are compared in Unicode's composed form (NFKC), with runs of white space as one space, and without
regard to case unless ``case = true``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

from millstream.grade import Grade, abstain, score
from millstream.trajectory import Trajectory

VERSION: Final = 1


def exact(*, case: bool = False) -> Callable[[Trajectory], Grade]:
    """The grader ``exact``: 1 when the final answer is the reference, else 0."""

    def grade(t: Trajectory) -> Grade:
        reference = t.task.reference
        if reference is None:
            return abstain("the task has no reference")
        given, gold = normalised(t.final_answer or "", case=case), normalised(_text(reference), case=case)
        return score(float(given == gold), label="equal" if given == gold else "different", reason=_shown(given, gold))

    return grade


def contains(*, case: bool = False) -> Callable[[Trajectory], Grade]:
    """The grader ``contains``: 1 when the final answer holds the reference, else 0."""

    def grade(t: Trajectory) -> Grade:
        reference = t.task.reference
        if reference is None:
            return abstain("the task has no reference")
        given, gold = normalised(t.final_answer or "", case=case), normalised(_text(reference), case=case)
        if not gold:
            return abstain("the reference is empty: every answer would hold it")
        return score(float(gold in given), label="found" if gold in given else "missing", reason=_shown(given, gold))

    return grade


def normalised(text: str, *, case: bool = False) -> str:
    """The text as it is compared."""
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    text = " ".join(text.split())
    return text if case else text.casefold()


def _text(reference: str | float) -> str:
    return reference if isinstance(reference, str) else f"{reference:g}"


def _shown(given: str, gold: str) -> str:
    return f"{given[:60]!r} for {gold[:60]!r}" if given else f"no answer for {gold[:60]!r}"
