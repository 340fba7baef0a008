"""Which run, and which agent in it, the code that runs now belongs to.

Follows the context of `contextvars`: into coroutines, tasks and `asyncio.to_thread` by itself, into the threads of
an executor by `bound`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from millstream.capture.recorder import Run

P = ParamSpec("P")
R = TypeVar("R")


class Acting(Struct, frozen=True, kw_only=True):
    """Who acts: an agent's name, and whose policy where it is not that of the run's start."""

    agent: str = ""
    lineage: str = ""
    policy_version: int | None = None


class Scope(Struct, frozen=True):
    """A run and who acts in it; None: the run's own agent."""

    run: Run
    acting: Acting | None = None


_scope: ContextVar[Scope | None] = ContextVar("millstream_scope", default=None)


def current() -> Scope | None:
    """The scope of the code that runs now."""
    return _scope.get()


def current_run() -> Run | None:
    """The run that is being recorded here, None outside of any: ``run.message(…)`` without passing it on."""
    scope = _scope.get()
    return None if scope is None else scope.run


def acting_in(run: object) -> Acting | None:
    """Who acts in this run here; None: its own agent, or another run is recorded here."""
    scope = _scope.get()
    return scope.acting if scope is not None and scope.run is run else None


def enter(scope: Scope | None) -> Token[Scope | None]:
    """Make a scope the current one; `leave` takes the token."""
    return _scope.set(scope)


def leave(token: Token[Scope | None]) -> None:
    """Go back to what was before. A token of another context (a generator that was handed on) changes nothing."""
    try:
        _scope.reset(token)
    except (ValueError, RuntimeError):
        return


@contextmanager
def entered(scope: Scope | None) -> Iterator[None]:
    """A block in a scope."""
    token = enter(scope)
    try:
        yield
    finally:
        leave(token)


def bound(function: Callable[P, R]) -> Callable[P, R]:
    """The function in the run that is recorded here, for a thread: ``executor.submit(millstream.bound(work), …)``."""
    scope = _scope.get()

    @functools.wraps(function)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        with entered(scope):
            return function(*args, **kwargs)

    return within
