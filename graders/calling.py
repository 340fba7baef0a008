"""Calling graders that people wrote, on many trajectories: plain functions, async ones, and those that take a batch.

Whatever one of them does to one trajectory, the others have their grades: an exception in a batch means that each
of its trajectories is graded alone, and async graders run side by side without waiting for each other.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from millstream.errors import GraderError
from millstream.trajectory import Trajectory

SIDE_BY_SIDE: Final = 32
"""How many trajectories an async grader has in hand at once."""
MAX_TRACE: Final = 2000
_HERE: Final = str(Path(__file__).parent)

Outcome = Any
"""What a function returned, or the exception that it raised."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await (options bound to it do not hide that)."""
    while hasattr(function, "func"):
        function = function.func
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def call(function: Callable[..., Any], trajectory: Trajectory, *, batch: bool) -> Any:
    """What a grader's function gives for one trajectory. Raises what it raises."""
    if batch:
        return _of_batch(_awaited(function, [trajectory]), 1)[0]
    return _awaited(function, trajectory)


def call_each(
    function: Callable[..., Any], trajectories: Sequence[Trajectory], *, batch: bool
) -> list[tuple[Outcome, int]]:
    """What it gives for each, or the exception that it raised, and the nanoseconds that took."""
    if batch:
        return _batch(function, trajectories)
    if is_async(function):
        return asyncio.run(_gathered(function, trajectories))
    return [_timed(lambda t=t: function(t)) for t in trajectories]  # type: ignore[misc]


def _awaited(function: Callable[..., Any], argument: Any) -> Any:
    if not is_async(function):
        return function(argument)

    async def whole() -> Any:
        return await function(argument)

    return asyncio.run(whole())


def _timed(act: Callable[[], Any]) -> tuple[Outcome, int]:
    begun = time.perf_counter_ns()
    try:
        found = act()
    except (Exception, SystemExit) as error:  # noqa: BLE001 — a user's function may raise anything
        found = error
    return found, time.perf_counter_ns() - begun


def _batch(function: Callable[..., Any], trajectories: Sequence[Trajectory]) -> list[tuple[Outcome, int]]:
    found, spent = _timed(lambda: _of_batch(_awaited(function, list(trajectories)), len(trajectories)))
    if not isinstance(found, BaseException):
        return [(one, spent // len(trajectories)) for one in found]
    if len(trajectories) == 1:
        return [(found, spent)]
    return [_timed(lambda t=t: _of_batch(_awaited(function, [t]), 1)[0]) for t in trajectories]  # type: ignore[misc]


def _of_batch(found: Any, wanted: int) -> list[Any]:
    """The grades of a batch, one for each trajectory."""
    if isinstance(found, str | bytes) or not isinstance(found, Sequence):
        raise GraderError(f"a batch grader returned {type(found).__name__}; it must return a list of grades")
    if len(found) != wanted:
        raise GraderError(f"a batch grader returned {len(found)} grades for {wanted} trajectories")
    return list(found)


async def _gathered(function: Callable[..., Any], trajectories: Sequence[Trajectory]) -> list[tuple[Outcome, int]]:
    places = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(trajectory: Trajectory) -> tuple[Outcome, int]:
        async with places:
            begun = time.perf_counter_ns()
            try:
                found = await function(trajectory)
            except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 — likewise
                found = error
            return found, time.perf_counter_ns() - begun

    return await asyncio.gather(*(one(t) for t in trajectories))


def described(error: BaseException) -> str:
    """An exception in one line, then where in the grader's own code it came from."""
    first = f"{type(error).__name__}: {error}"[:1000]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HERE)]
    lines = [_place(frame.filename, frame.lineno or 0, frame.name) for frame in frames]
    return "\n".join([first, *lines])[: len(first) + MAX_TRACE]


def _place(file: str, line: int, name: str) -> str:
    source = linecache.getline(file, line).strip()
    return f"  {Path(file).name}, line {line}, in {name}" + (f": {source}" if source else "")
