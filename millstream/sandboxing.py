"""The sandbox's port: code that arrived as data goes in, what it gave comes out as plain JSON.

Adapters keep it (`millstream.adapters.sandbox`). Nothing that the code does raises here: it hangs, dies, eats
memory or gives what is no JSON, and `Ran` says so. Only a sandbox that can't be had raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

RanStatus: TypeAlias = Literal["ok", "error", "timeout", "memory", "died", "unparsable"]


class Code(Struct, frozen=True, kw_only=True):
    """Python to run: ``sources`` (a name for tracebacks, the text) one after the other in one namespace,
    called ``module``; then ``function(*arguments)`` when one is named. ``stdin`` is what `sys.stdin` gives.

    ``preload``: installed modules that the process has imported before the code came, so that importing them
    costs the code nothing.
    """

    sources: tuple[tuple[str, str], ...]
    function: str = ""
    arguments: tuple[Any, ...] = ()
    stdin: str = ""
    module: str = "code"
    preload: tuple[str, ...] = ()


class Ran(Struct, frozen=True, kw_only=True):
    """What became of it. ``value`` is what the function returned, as JSON gives it (an object of the code's
    never comes out); ``stdout`` what was printed, up to a bound, and whether it was ``cut``; ``detail`` the
    traceback or the reason; ``seconds`` by the clock.
    """

    status: RanStatus
    value: Any = None
    stdout: str = ""
    cut: bool = False
    detail: str = ""
    seconds: float = 0.0


class Sandbox(Protocol):
    """Runs code that nobody vouches for. Safe to call from many threads."""

    def run(self, code: Code, timeout_s: float | None = None) -> Ran:
        """Run it, for at most ``timeout_s`` (and never longer than the settings allow).

        Raises `Unavailable` when no sandbox can be had: the message says what to install or allow.
        """
        ...

    def check(self) -> None:
        """Start one if none stands ready. Raises `Unavailable` as `run` would."""
        ...

    def missing(self, modules: Sequence[str]) -> tuple[str, ...]:
        """Those of some top-level modules that code could not import here."""
        ...

    def close(self) -> None:
        """End every process of it."""
        ...
