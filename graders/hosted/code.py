"""Hosted ``python`` graders: their source is code that arrived as data, so it runs in the sandbox only.

``grade(sample, item)`` sees both as plain JSON. What it raises, prints, returns or breaks is its own failure, never
a number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

from millstream.errors import Unavailable
from millstream.grade import FailedKind
from millstream.graders.hosted.definitions import Python, Single
from millstream.graders.hosted.faults import HostedFault
from millstream.graders.hosted.means import Answered
from millstream.graders.hosted.source import imports_of, modules_of
from millstream.graders.hosted.templates import Values
from millstream.sandboxing import Code, Ran, Sandbox

RUNTIME: Final = "python_grader_runtime_error"
SERVER: Final = "python_grader_server_error"
SHOWN: Final = 480
"""How much of the last line, and of the traceback, a grade tells (its reason has 1000 characters)."""


class PythonGraders:
    """Runs ``python`` definitions. Safe to call from many threads."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __call__(self, definition: Single, values: Values) -> Answered:
        """The score. Raises `HostedFault`: with the grader's own traceback, or saying why there is no sandbox."""
        assert isinstance(definition, Python)
        try:
            ran = self._sandbox.run(self._code(definition, values))
        except Unavailable as error:
            raise HostedFault(str(error), flag=SERVER, kind="infrastructure") from None
        if ran.status != "ok":
            raise HostedFault(_told(ran), flag=RUNTIME, kind=_kind(ran))
        return Answered(score=_number(ran.value))

    def missing(self, definition: Python) -> str:
        """What running it would lack: a sandbox, or packages that its source imports at its top level."""
        try:
            self._sandbox.check()
        except Unavailable as error:
            return f"grader {definition.name!r} is code that arrived as data: {error}"
        lacking = self._sandbox.missing(imports_of(definition.source))
        if not lacking:
            return ""
        return f"grader {definition.name!r} imports {', '.join(lacking)}: not installed here; pip install what it needs"

    def _code(self, definition: Python, values: Values) -> Code:
        """The function called as the service called it; installed packages are loaded before it comes."""
        lacking = self._sandbox.missing(imports_of(definition.source))
        return Code(
            sources=(("grader.py", definition.source),),
            function="grade",
            arguments=(values["sample"], values["item"]),
            module="grader",
            preload=tuple(name for name in modules_of(definition.source) if _loads(name, lacking)),
        )


def _loads(name: str, lacking: Sequence[str]) -> bool:
    """Whether a module is loaded before the code comes: installed, no part of Python, and no part that is a program."""
    first = name.partition(".")[0]
    return first not in lacking and first not in sys.stdlib_module_names and "._" not in name and "*" not in name


def _number(value: object) -> float:
    """What ``grade`` returned, if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        told = f"grade returned {type(value).__name__} {str(value)[:80]!r}; it must return a number"
        raise HostedFault(told, flag=RUNTIME, kind="unparsable")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise HostedFault("grade returned a number without end; it must be finite", flag=RUNTIME, kind="unparsable")
    return number


def _kind(ran: Ran) -> FailedKind:
    return {"timeout": "timeout", "unparsable": "unparsable"}.get(ran.status, "error")  # type: ignore[return-value]


def _told(ran: Ran) -> str:
    """What happened in one line, then the end of the traceback."""
    first = ran.detail.rstrip().rpartition("\n")[2][:SHOWN]
    return first if first == ran.detail else f"{first}\n{ran.detail[-SHOWN:]}"
