"""What the kinds that reach outside are run with: a judge's endpoint, a sandbox, the URLs that may be asked.

Bootstrap hands them in. A kind without its means is not run: the grade is failed and says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from millstream.graders.hosted.definitions import Endpoint, LabelModel, Python, ScoreModel, Single
from millstream.graders.hosted.faults import HostedFault, Spent
from millstream.graders.hosted.templates import Values
from millstream.graders.judges.judge import Judge
from millstream.graders.messages import Caller
from millstream.sandboxing import Sandbox


class Answered(Struct, frozen=True, kw_only=True):
    """A score, and what was told beside it."""

    score: float
    label: str = ""
    reason: str = ""
    spent: Spent | None = None


Runner: TypeAlias = Callable[[Single, Values], Answered]
"""Grades with one definition and the values of its templates. Raises `HostedFault`."""


class CodeRunner(Protocol):
    """Runs ``python`` definitions, and knows what it lacks to run one."""

    def __call__(self, definition: Single, values: Values) -> Answered:
        """As any `Runner`."""
        ...

    def missing(self, definition: Python) -> str:
        """What can't be had here; empty when it can be run."""
        ...


class Means(Struct, frozen=True, kw_only=True):
    """What there is to run with. ``propensity``: the share of runs that the judge's budget allows now; ``bench``: the
    judge itself, for judges of one's own; ``models`` makes the child of a learned one; ``sandbox``: for the built-in
    that runs code under test.
    """

    judge: Runner | None = None
    python: CodeRunner | None = None
    sandbox: Sandbox | None = None
    endpoint: Runner | None = None
    propensity: Callable[[], float] = lambda: 1.0
    bench: Judge | None = None
    models: Callable[[str], Caller] | None = None

    def missing(self, definition: Single) -> str:
        """What a definition needs that is not there; empty when it can be run."""
        name = f"grader {definition.name!r}"
        match definition:
            case ScoreModel() | LabelModel() if self.judge is None:
                return (
                    f"{name} asks the model {definition.model!r}, and there is no judge: "
                    "set [judge] base_url to an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1"
                )
            case Python() if self.python is None:
                return f"{name} is code that arrived as data: it may run in a sandbox only, and there is none here"
            case Python() if self.python is not None:
                return self.python.missing(definition)
            case Endpoint() if self.endpoint is None:
                return f"{name} asks a URL: [hosted] endpoints names the URLs that may be asked, and there is none"
        return ""

    def runner(self, definition: Single) -> Runner:
        """What runs a definition. Raises `HostedFault` when that is missing."""
        found, flag = {
            ScoreModel: (self.judge, "model_grader_server_error"),
            LabelModel: (self.judge, "model_grader_server_error"),
            Python: (self.python, "python_grader_server_error"),
            Endpoint: (self.endpoint, "other_error"),
        }[type(definition)]
        if found is None:
            raise HostedFault(self.missing(definition), flag=flag, kind="infrastructure")
        return found


NOTHING: Final = Means()
"""Only what runs here by itself: string checks, similarities and formulas."""
