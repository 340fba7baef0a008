"""An imperfect demonstrator: what the base policy imitates before any reward is seen.

On some templates its usual formula is wrong, so the base fails there also when it decodes greedily; beside that it
searches twice, forgets years, loads a wrong report and drops a parenthesis now and then.
"""

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.examples.finqa.episode import Episode
from millstream.examples.finqa.tasks import FinqaTask

SKILL: Final[Mapping[str, float]] = {
    "lookup": 0.8,
    "difference": 0.76,
    "percent": 0.3,
    "ratio": 0.34,
    "share": 0.28,
    "sum": 0.78,
    "sum_years": 0.76,
    "average": 0.3,
    "cross_difference": 0.33,
    "cross_sum": 0.35,
}
"""How often the formula is right, by template; below one half the usual mistake is the habit."""
USUAL_MISTAKE: Final = 0.9
"""How often a mistake is the template's first one."""


@dataclass(frozen=True, slots=True)
class Slips:
    """How often each slip that is no matter of formulas happens, as probabilities."""

    search_again: float = 0.08
    forget_year: float = 0.10
    wrong_report: float = 0.04
    bad_syntax: float = 0.02
    skip_calculator: float = 0.07
    calculate_again: float = 0.05


def demonstrate(task: FinqaTask, draw: random.Random, slips: Slips | None = None) -> Episode:
    """Play one finished episode of `task`; all chance comes from `draw`."""
    episode = Episode(task)
    actions = _actions(task, draw, slips or Slips())
    text = next(actions)
    while True:
        observation, done = episode.step(text)
        if done:
            return episode
        text = actions.send(observation or "")


def _actions(task: FinqaTask, draw: random.Random, slips: Slips) -> Generator[str, str, None]:
    def slip(chance: float) -> bool:
        return draw.random() < chance

    right = slip(SKILL[task.template])
    for company, year in task.reports:
        yield from _read(company, year, draw, slips)
    expression = task.expression if right else _mistake(task, draw)
    if task.template == "lookup":
        yield f"answer({expression})"
        return
    if slip(slips.skip_calculator):
        yield f"answer({_first_reference(task.expression)})"
        return
    if slip(slips.bad_syntax):
        yield f"calculator({expression}"
    result = yield f"calculator({expression})"
    if slip(slips.calculate_again):
        result = yield f"calculator({expression})"
    yield f"answer({result.split('=')[0] if result.startswith('#') else '#1'})"
    while True:
        yield "answer(#1)"


def _read(company: str, year: int, draw: random.Random, slips: Slips) -> Generator[str, str, None]:
    query = f"{company} FY{year}"
    hits = yield f"search({company if draw.random() < slips.forget_year else query})"
    if draw.random() < slips.search_again:
        hits = yield f"search({query})"
    documents = hits.split("; ")
    wanted = next((hit for hit in documents if hit.startswith(f"{company}/{year}/")), documents[0])
    others = [hit for hit in documents if hit != wanted]
    if others and draw.random() < slips.wrong_report:
        yield f"load({draw.choice(others)})"
        if draw.random() < 0.5:  # half of the time the slip goes unnoticed
            return
    elif draw.random() < slips.bad_syntax:
        yield f"load {wanted}"
    yield f"load({wanted})"


def _mistake(task: FinqaTask, draw: random.Random) -> str:
    return task.mistakes[0] if draw.random() < USUAL_MISTAKE else draw.choice(task.mistakes[1:])


def _first_reference(expression: str) -> str:
    end = min((expression.find(sign) for sign in "+-*/)" if sign in expression), default=len(expression))
    return expression[:end].strip("(")
