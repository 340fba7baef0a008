"""The decorator that makes a grader, and the registry that finds one by its name.

A grader is a function of a `Trajectory` that returns a `Grade`, or a bare number in its declared range.
Whatever else it returns, and whatever it raises, becomes a `Failed` grade: nothing here turns a failure
into a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Final, Literal, TypeAlias, overload

from msgspec import Struct, structs

from millstream.errors import GraderError, SettingsError, nearest
from millstream.grade import Abstained, Censored, Failed, Grade, Scored, fail
from millstream.graders.calling import call, call_each, described
from millstream.graders.examples import Example
from millstream.trajectory import Trajectory

ENTRY_POINTS: Final = "millstream.graders"
"""The entry-point group in which an installed package offers graders."""

Source: TypeAlias = Literal["builtin", "file", "entry_point"]
Function: TypeAlias = Callable[..., Any]
Factory: TypeAlias = Callable[..., Callable[[Trajectory], Grade]]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


class Told(Struct, frozen=True, kw_only=True):
    """A grade with what is recorded beside it: its cost in the price table's currency, flags, the model that
    answered (part of the epoch), and the probability with which this run was graded at all.
    """

    grade: Grade
    cost: float = 0.0
    flags: tuple[str, ...] = ()
    model: str = ""
    propensity: float = 1.0


@dataclass(frozen=True, slots=True)
class Grader:
    """A named grader. Calling it never raises: an exception is a `Failed` grade.

    `low` and `high` are the range its scores lie in. `epoch` says which version of its code, data and
    parameters graded; it is empty until a registry or a child process has worked it out. `data` are files
    and `libraries` distributions that the function depends on, both part of the epoch. The function may be async;
    with `batch` it takes a list of trajectories and returns a list of grades. `examples` are what it should say.
    `side_by_side`: how many calls of a slow function, safe for threads, are worth making at once. `outside`: it asks
    something that may be away, so that what it could not grade then it may grade later.
    """

    name: str
    function: Function
    low: float = 0.0
    high: float = 1.0
    epoch: str = ""
    source: Source = "file"
    data: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    batch: bool = False
    examples: tuple[Example, ...] = field(default=(), compare=False)
    side_by_side: int = 1
    outside: bool = False

    def __call__(self, trajectory: Trajectory) -> Grade:
        """The grade of a trajectory."""
        return self.told(trajectory).grade

    def told(self, trajectory: Trajectory) -> Told:
        """The grade of a trajectory, and what is recorded beside it."""
        try:
            return self._told(call(self.function, trajectory, batch=self.batch))
        except (Exception, SystemExit) as error:  # noqa: BLE001 — a user's function may raise anything
            return Told(grade=fail(described(error)))

    def told_each(self, trajectories: Sequence[Trajectory]) -> list[tuple[Told, int]]:
        """As `told`, of several, each with the nanoseconds it took."""
        found = call_each(self.function, trajectories, batch=self.batch)
        return [(self._judged(outcome), spent) for outcome, spent in found]

    def _judged(self, outcome: Any) -> Told:
        if isinstance(outcome, BaseException):
            return Told(grade=fail(described(outcome)))
        try:
            return self._told(outcome)
        except Exception as error:  # noqa: BLE001 — what it returned may raise when it is looked at
            return Told(grade=fail(described(error)))

    def _told(self, found: Any) -> Told:
        if isinstance(found, Told):
            return structs.replace(found, grade=as_grade(found.grade, self.low, self.high))
        return Told(grade=as_grade(found, self.low, self.high))

    def beside(self, calls: int) -> Grader:
        """The same grader, which asks something outside: slow, and safe to call so many times at once."""
        return replace(self, side_by_side=calls, outside=True)

    def with_epoch(self, epoch: str, source: Source) -> Grader:
        """The same grader with its epoch known."""
        return replace(self, epoch=epoch, source=source)


def as_grade(value: object, low: float = 0.0, high: float = 1.0) -> Grade:
    """What a grader returned, as a `Grade`.

    A number (numpy's too) counts when it lies in [low, high]; bool, None, NaN, text and everything else is
    `Failed`.
    """
    if isinstance(value, Scored):
        return value if low <= value.score <= high else _outside(value.score, low, high)
    if isinstance(value, Abstained | Failed | Censored):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        wanted = "a Grade (ms.score, ms.abstain, ms.fail) or a number"
        return fail(
            f"a grader returned {type(value).__name__} {str(value)[:80]!r}; it must return {wanted}", "unparsable"
        )
    if not math.isfinite(value):
        return fail(f"a grader returned {value!r}; a score must be finite", "unparsable")
    number = float(value)
    return Scored(score=number) if low <= number <= high else _outside(number, low, high)


def _outside(value: float, low: float, high: float) -> Failed:
    mend = "declare the range with @ms.grader(low=…, high=…)"
    return fail(f"score {value!r} lies outside the declared range [{low}, {high}]; {mend}", "unparsable")


@overload
def grader(function: Function, /) -> Grader: ...
@overload
def grader(
    *,
    name: str = ...,
    low: float = ...,
    high: float = ...,
    data: tuple[str, ...] = ...,
    libraries: tuple[str, ...] = ...,
    batch: bool = ...,
    examples: Sequence[Example] = ...,
) -> Callable[[Function], Grader]: ...
def grader(
    function: Function | None = None,
    /,
    *,
    name: str = "",
    low: float = 0.0,
    high: float = 1.0,
    data: tuple[str, ...] = (),
    libraries: tuple[str, ...] = (),
    batch: bool = False,
    examples: Sequence[Example] = (),
) -> Grader | Callable[[Function], Grader]:
    """Make a function a grader: ``@grader`` or ``@grader(name=…, low=…, high=…)``.

    The name is the function's unless given; keyword-only parameters of the function are its options
    (``[graders.options.NAME]``). It may be ``async def``: trajectories are then graded side by side. With ``batch``
    it takes a list of trajectories and returns as many grades. ``examples`` (made by `millstream.example`) are what
    `millstream graders test` runs. Raises `SettingsError` for a bad name or range.
    """

    def make(function: Function) -> Grader:
        made = Grader(
            name or function.__name__,
            function,
            low,
            high,
            data=tuple(data),
            libraries=tuple(libraries),
            batch=batch,
            examples=tuple(examples),
        )
        _check(made)
        return made

    return make if function is None else make(function)


def _check(made: Grader) -> None:
    if not _NAME.fullmatch(made.name):
        raise SettingsError(f"grader name {made.name!r}: use letters, digits and underscores (a formula names it)")
    if made.name.split(".")[0] == "feedback":
        raise SettingsError(f"grader name {made.name!r}: feedback is what people and outcomes say; choose another name")
    if not (math.isfinite(made.low) and math.isfinite(made.high) and made.low < made.high):
        raise SettingsError(
            f"grader {made.name!r}: the range [{made.low}, {made.high}] must be finite, low before high"
        )


class Registry:
    """Graders by name."""

    def __init__(self) -> None:
        """Begin empty."""
        self._graders: dict[str, Grader] = {}

    def add(self, made: Grader) -> None:
        """Take a grader in. A user's grader stands before a built-in of the same name; two of a user's
        with one name raise `SettingsError`.
        """
        known = self._graders.get(made.name)
        if known is not None and "builtin" not in (known.source, made.source):
            raise SettingsError(f"two graders are named {made.name!r}; rename one with @ms.grader(name=…)")
        if known is None or made.source != "builtin":
            self._graders[made.name] = made

    def get(self, name: str) -> Grader:
        """The grader of that name. Raises `SettingsError` naming the nearest one."""
        if name not in self._graders:
            raise SettingsError(f"unknown grader {name!r}{nearest(name, sorted(self._graders))}")
        return self._graders[name]

    def __contains__(self, name: str) -> bool:
        return name in self._graders

    def __iter__(self) -> Iterator[Grader]:
        return iter(sorted(self._graders.values(), key=lambda made: made.name))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(sorted(self._graders))


__all__ = ["ENTRY_POINTS", "Factory", "Grader", "GraderError", "Registry", "Told", "as_grade", "grader"]
