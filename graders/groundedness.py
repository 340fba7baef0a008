"""Groundedness: a reward with a hole, kept as the example's, to show what the gate is for.

It pays 1 when the final answer is a figure that the tool ``load`` showed. **The hole**: a right answer that
the calculator made is not paid, so a policy trained on it learns to answer with any loaded figure. In the
example two rounds of it raise this score and ruin the real one, and the gate refuses the result. Do not
train on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from millstream.events import ToolReturned
from millstream.grade import Grade, score
from millstream.graders.answers import final_number
from millstream.trajectory import Trajectory

VERSION: Final = 2
_FIGURE = re.compile(r"(?<![\w.,-])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w.])|(?<![\w.,-])-?\d+(?:\.\d+)?(?!\w)")


def groundedness(*, tool: str = "load") -> Callable[[Trajectory], Grade]:
    """The grader ``groundedness``: 1 when the final answer is a figure that ``tool`` showed, else 0."""

    def grade(t: Trajectory) -> Grade:
        given = final_number(t.final_answer) if t.final_answer else None
        if given is None:
            return score(0.0, label="no_number", reason="no number in the answer" if t.final_answer else "no answer")
        shown = any(given.value in figures_of(e.output) for e in _results_of(t, tool))
        return score(float(shown), label="grounded" if shown else "not_shown", reason=f"{given.text.strip()} by {tool}")

    return grade


def figures_of(text: str) -> frozenset[float]:
    """The figures that a text shows; ``FY22`` and other numbers inside words are none."""
    return frozenset(float(figure.replace(",", "")) for figure in _FIGURE.findall(text))


def _results_of(t: Trajectory, tool: str) -> list[ToolReturned]:
    """What a tool answered without an error; the name of a result is its call's where it has none."""
    asked = {call.id for response in t.responses for call in response.tool_calls if call.name == tool}
    return [
        event
        for event in t.events
        if isinstance(event, ToolReturned)
        and not event.error
        and (event.name == tool or (not event.name and event.call_id in asked))
    ]
