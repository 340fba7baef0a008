"""Group ranking: the rollouts of one task, put in order by one judge.

The answers are shown at once, in an order and again in the reverse of it, so that a favour for a place cancels out.
score = 1 − mean place/(n − 1): 1 for the best, 0 for the worst; answers that are the same share their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.graders.judges.graded_text import delimited
from millstream.graders.judges.reading import document
from millstream.graders.judges.shown import NO_ANSWER, shortened
from millstream.graders.judges.sitting import TEXT, Common, Sitting

MOST: Final = 16
"""The most answers in one question: beyond it places in the middle are guesses."""


class Ranked(Struct, frozen=True, kw_only=True):
    """A score for each answer, in their order, and how far both orders agreed: Kendall's τ, from −1 to 1."""

    scores: tuple[float, ...]
    agreement: float
    reason: str = ""


class Ranking(Common, frozen=True, kw_only=True, tag_field="kind", tag="ranking"):
    """Ranks the runs of a task; no grader of one run alone."""

    def check(self, where: str) -> None:
        """Raises `SettingsError`."""
        if not self.criteria.strip():
            raise SettingsError(f"{where}: criteria is empty; say what makes one answer better than another")

    def rank(self, sitting: Sitting, question: str, answers: Sequence[str]) -> Ranked:
        """The scores of 2 to `MOST` answers. Raises `JudgeFault`."""
        texts = [answer.strip() or NO_ANSWER for answer in answers]
        different = list(dict.fromkeys(texts))
        if len(different) == 1:
            return Ranked(scores=(0.5,) * len(texts), agreement=1.0, reason="the answers are the same")
        there, reason = self._ordered(sitting, question, different)
        back, _ = self._ordered(sitting, question, different[::-1])
        places = {text: (there.index(text) + back.index(text)) / 2 for text in different}
        whole = len(different) - 1
        return Ranked(
            scores=tuple(1.0 - places[text] / whole for text in texts), agreement=_tau(there, back), reason=reason
        )

    def _ordered(self, sitting: Sitting, question: str, answers: Sequence[str]) -> tuple[list[str], str]:
        """The answers, best first, and the judge's reason."""
        parts = [f"# What makes an answer better\n{self.criteria}", f"# The task\n{delimited(shortened(question))}"]
        parts += [f"# Answer {number}\n{delimited(shortened(text))}" for number, text in enumerate(answers, 1)]
        found, _ = sitting.ask(
            "\n\n".join(parts),
            {"reason": TEXT, "order": {"type": "array", "items": {"type": "integer"}}},
            f'{{"reason": "…", "order": [numbers of the {len(answers)} answers, the best first, each once]}}. '
            "The order in which they are shown means nothing",
            lambda reply: document(reply, "order", lambda said: _wrong(said, len(answers))),
        )
        return [answers[number - 1] for number in found["order"]], str(found.get("reason", ""))[:500]


def _wrong(found: Mapping[str, Any], count: int) -> str:
    order = found["order"]
    if not isinstance(order, list) or any(isinstance(n, bool) or not isinstance(n, int) for n in order):
        return "order is no list of numbers"
    return "" if sorted(order) == list(range(1, count + 1)) else f"order {order[:20]} does not hold each answer once"


def _tau(there: Sequence[str], back: Sequence[str]) -> float:
    """Kendall's τ of two orders: (pairs alike − pairs turned) / pairs."""
    places = [back.index(text) for text in there]
    pairs = [(a, b) for n, a in enumerate(places) for b in places[n + 1 :]]
    return sum(1 if a < b else -1 for a, b in pairs) / len(pairs)
