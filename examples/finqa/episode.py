"""One attempt at one task: the agent's text goes in, what the tool answers comes out.

An episode ends when the agent answers (`done`) or runs out of turns (`limit`). It keeps what happened turn by
turn; grading is not its business.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from millstream.examples.finqa.expressions import ExpressionError, evaluate, number_text, resolve
from millstream.examples.finqa.tasks import FinqaTask
from millstream.examples.finqa.worlds import world

MAX_TURNS: Final = 9
MAX_ANSWER_LENGTH: Final = 200

EndReason: TypeAlias = Literal["done", "limit"]

_ACTION = re.compile(r"(search|load|calculator|answer)\((.*)\)")


def _schema(name: str, argument: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: Final = (
    _schema("search", "query", "Find reports by company name and fiscal year."),
    _schema("load", "document", "Read one report by its id."),
    _schema("calculator", "expression", "Calculate with numbers, loaded figures and earlier results."),
    _schema("answer", "value", "Give the final answer: a number, a loaded figure or an earlier result."),
)
"""The tools as function schemas, each with the one argument that stands between its parentheses."""
ARGUMENTS: Final = {"search": "query", "load": "document", "calculator": "expression", "answer": "value"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One action and what came back. `tool` is None where the text was no call; `observation` where it answered."""

    text: str
    tool: str | None
    argument: str
    observation: str | None
    ok: bool


class Episode:
    """One attempt at a task; `step` it until it is done."""

    def __init__(self, task: FinqaTask) -> None:
        """Begin an attempt with nothing loaded."""
        self.task = task
        self.turns: list[Turn] = []
        self.end_reason: EndReason | None = None
        self.final_answer: str | None = None
        self._world = world(task.world)
        self._loaded: dict[str, float] = {}
        self._results: list[float] = []

    def messages(self) -> list[dict[str, str]]:
        """The opening of the conversation, in chat form."""
        return [{"role": "user", "content": self.task.question}]

    def step(self, text: str) -> tuple[str | None, bool]:
        """Act: the observation (None after an answer) and whether the episode is over.

        Text that is no call, or a call that fails, is answered with a line that begins with `error`.
        Raises RuntimeError once the episode is over.
        """
        if self.end_reason is not None:
            raise RuntimeError("the episode is over")
        turn = self._act(text)
        self.turns.append(turn)
        if turn.tool == "answer":
            self.end_reason = "done"
        elif len(self.turns) >= MAX_TURNS:
            self.end_reason = "limit"
        return turn.observation, self.end_reason is not None

    @property
    def answer_action(self) -> str | None:
        """The text of the answering action as the agent wrote it; None where it never answered."""
        return self.turns[-1].text if self.turns and self.turns[-1].tool == "answer" else None

    def _act(self, text: str) -> Turn:
        match = _ACTION.fullmatch(text.strip())
        if match is None:
            return Turn(text, None, "", "error: bad action", ok=False)
        tool, argument = match[1], match[2]
        if tool == "answer":
            self.final_answer, ok = self._answer(argument)
            return Turn(text, tool, argument, None, ok)
        observation = {"search": self._search, "load": self._load, "calculator": self._calculate}[tool](argument)
        return Turn(text, tool, argument, observation, ok=not observation.startswith("error"))

    def _search(self, query: str) -> str:
        return self._world.search(query)

    def _load(self, document: str) -> str:
        if document not in self._world.reports:
            return "error: no such document"
        self._loaded |= self._world.values(document)
        return self._world.render(document)

    def _calculate(self, expression: str) -> str:
        try:
            value = evaluate(expression, self._loaded, self._results)
        except ExpressionError:
            return "error: bad expression"
        self._results.append(value)
        return f"#{len(self._results)}={number_text(value)}"

    def _answer(self, argument: str) -> tuple[str, bool]:
        """The answer with a reference made a number, and whether it is a number now; else the text as it is."""
        try:
            return number_text(resolve(argument, self._loaded, self._results)), True
        except ExpressionError:
            return argument[:MAX_ANSWER_LENGTH], is_number(argument)


def is_number(text: str) -> bool:
    """Whether the text is a plain decimal number, a sign and a percent sign allowed."""
    return re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?%?", text.strip()) is not None
