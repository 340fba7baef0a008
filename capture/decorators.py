"""``@millstream.agent`` and ``@millstream.tool``: functions whose calls are recorded.

Plain and async functions, and generators of both kinds; what they give and raise passes through untouched.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, cast

from millstream.capture import scope
from millstream.capture.guard import guarded, report
from millstream.capture.recorder import Run

F = TypeVar("F", bound=Callable[..., Any])

_Begun: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], "Watched"]

_MOST_ITEMS = 10_000
_MOST_TEXT = 4_000_000


class Watched:
    """One call of a function: entered when it begins, left when it is over. Nothing here raises."""

    def __init__(self) -> None:
        self.result: Any = None
        self._items: list[Any] = []
        self._size = 0

    def active(self) -> AbstractContextManager[None]:
        """The scope in which the function's own code runs."""
        return nullcontext()

    def took(self, item: Any) -> None:
        """The generator gave an item. A stream without end is kept as far as anything of it is stored."""
        if len(self._items) < _MOST_ITEMS and self._size < _MOST_TEXT:
            self._items.append(item)
            self._size += len(item) if isinstance(item, str) else 100

    def given(self) -> Any:
        """What the call gave: its result, or of a generator its items; texts are one text."""
        if not self._items:
            return self.result
        return "".join(self._items) if all(isinstance(item, str) for item in self._items) else self._items

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end(error)

    def begin(self) -> None:
        """The function is called."""

    def end(self, error: BaseException | None) -> None:
        """It is over, by an error or not."""
        raise NotImplementedError


class AgentCall(Watched):
    """A call of an agent: a run, or within a run the part of a sub-agent."""

    def __init__(self, name: str, begun: Callable[[], Run], part: Mapping[str, Any]) -> None:
        super().__init__()
        self._name, self._begun, self._part = name, begun, part
        self._scope: scope.Scope | None = None
        self._own: Run | None = None

    def active(self) -> AbstractContextManager[None]:
        """The run, with this agent acting in it."""
        return scope.entered(self._scope)

    @guarded
    def begin(self) -> None:
        """Begin a run, or this agent's part in the one that is recorded here."""
        here = scope.current()
        if here is None:
            self._own = self._begun()
            self._scope = scope.Scope(self._own)
        else:
            self._scope = scope.Scope(here.run, scope.Acting(agent=self._name, **self._part))

    @guarded
    def end(self, error: BaseException | None) -> None:
        """The answer of a run's agent is the run's."""
        if self._own is not None:
            given = self.given()
            if error is None and given is not None and not isinstance(given, list):
                self._own.end(given)
            self._own.__exit__(type(error) if error else None, error, None)


class ToolCall(Watched):
    """A call of a tool, in whatever run is recorded here."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self._name, self._arguments = name, arguments
        self._run = scope.current_run()
        self._began = time.perf_counter_ns()

    @guarded
    def end(self, error: BaseException | None) -> None:
        """Tell the result, as that of the call which the model asked for, if it asked for one."""
        if self._run is None:
            return
        why = None if isinstance(error, GeneratorExit) else error
        took = time.perf_counter_ns() - self._began
        self._run.conversation.ran(self._name, self._arguments, self.given(), error=why, duration_ns=took)


def watched(function: F, start: Callable[[tuple[Any, ...], dict[str, Any]], Watched]) -> F:
    """The function, each of its calls watched by what ``start`` makes of its arguments."""

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watched:
        try:
            return start(args, kwargs)
        except Exception as error:  # noqa: BLE001 - the agent goes on unrecorded
            report(f"decorator of {getattr(function, '__qualname__', function)!s}", error)
            return _Unwatched()

    kinds = ((inspect.isasyncgenfunction, _of_async_generator), (inspect.isgeneratorfunction, _of_generator))
    kind = next((make for known, make in kinds if known(function)), None)
    if kind is None:
        kind = _of_coroutine if inspect.iscoroutinefunction(function) else _of_plain
    return cast("F", functools.wraps(function)(kind(function, begun)))


class _Unwatched(Watched):
    def end(self, error: BaseException | None) -> None:
        """What could not be begun has no end to tell."""


def _of_plain(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        call = begun(args, kwargs)
        with call, call.active():
            call.result = function(*args, **kwargs)
            return call.result

    return made


def _of_coroutine(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    async def made(*args: Any, **kwargs: Any) -> Any:
        call = begun(args, kwargs)
        with call, call.active():
            call.result = await function(*args, **kwargs)
            return call.result

    return made


def _of_generator(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    """In the scope only while the function's own code runs: between two items the reader's runs."""

    def made(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner, call = function(*args, **kwargs), begun(args, kwargs)
        with call:
            step, value = inner.send, None
            while True:
                try:
                    with call.active():
                        item = step(value)
                except StopIteration as stop:
                    call.result = stop.value
                    return stop.value
                call.took(item)
                try:
                    step, value = inner.send, (yield item)
                except GeneratorExit:
                    with call.active():
                        inner.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the caller: the function's to handle
                    step, value = inner.throw, error

    return made


def _of_async_generator(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    """The same of an async one."""

    async def made(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner, call = function(*args, **kwargs), begun(args, kwargs)
        with call:
            step, value = inner.asend, None
            while True:
                try:
                    with call.active():
                        item = await step(value)
                except StopAsyncIteration:
                    return
                call.took(item)
                try:
                    step, value = inner.asend, (yield item)
                except GeneratorExit:
                    with call.active():
                        await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the caller: the function's to handle
                    step, value = inner.athrow, error

    return made


def arguments_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names; {} where they don't fit."""
    try:
        told = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return dict(kwargs)
    told.pop("self", None)
    return told
