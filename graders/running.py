"""Running graders over trajectories: built-ins in this process, people's own in a child with a deadline.

A hang is ``Failed(timeout)``, a death of the child ``Failed(infrastructure)`` and tried again, an exception
``Failed(error)``. Whatever happens to one grader on one trajectory, its neighbours get their grades.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from millstream.errors import GraderError, MillstreamError, Overrun, SettingsError, Unavailable
from millstream.grade import Failed, Grade, fail
from millstream.graders import messages
from millstream.graders.epochs import with_model
from millstream.graders.examples import Example
from millstream.graders.registry import Grader
from millstream.graders.window import Window
from millstream.trajectory import Trajectory

if TYPE_CHECKING:
    from millstream.graders.crews import Crews

Spawn: TypeAlias = Callable[[str], messages.Caller]
"""Makes the child process that serves a module; `millstream.bootstrap` hands it in."""

LOAD_TIMEOUT_S = 60.0
AHEAD_S = 0.05
"""How long a call about what comes next may take: trajectories wait for it to be committed."""
MOST_AHEAD = 128
CAUTION = 64
"""How many trajectories go alone after a call that failed, before several go together again."""
REASON = 3000
"""How much a failure tells: its last words may be a traceback."""


class Given(Struct, frozen=True):
    """One attempt of one grader at one trajectory; what else it told is recorded with the grade."""

    grader: Grader
    grade: Grade
    attempt: int = 1
    latency_ns: int = 0
    cost: float = 0.0
    flags: tuple[str, ...] = ()
    model: str = ""
    propensity: float = 1.0

    @property
    def epoch(self) -> str:
        """The grader's, with the model that answered."""
        return with_model(self.grader.epoch, self.model)


class Crew:
    """The user graders of one child process. Not thread-safe: one caller at a time."""

    def __init__(self, spawn: Spawn, load: messages.Load, *, timeout_s: float = 10.0, attempts: int = 2) -> None:
        """Start a child and load. Raises `SettingsError` when a file can't be loaded."""
        self._load = load
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._suspects: set[str] = set()
        self._seconds = AHEAD_S
        self._caution = 0
        self._warm = True
        self._child = spawn(messages.HANDLER)
        try:
            loaded = self._loaded()
        except BaseException:
            self._child.close()
            raise
        self.graders = tuple(
            Grader(d.name, _elsewhere, d.low, d.high, epoch=d.epoch, source=d.source) for d in loaded.graders
        )

    def _loaded(self) -> messages.Loaded:
        load = self._load
        try:
            loaded = messages.decode_loaded(self._child.call("load", messages.encode(load), LOAD_TIMEOUT_S))
        except MillstreamError as error:
            raise SettingsError(
                f"graders in {', '.join(load.files) or 'entry points'} can't be loaded: {error}"
            ) from error
        if loaded.problem:
            raise SettingsError(loaded.problem)
        return loaded

    def examples(self) -> dict[str, tuple[Example, ...]]:
        """What the graders' files declare that they say, by grader."""
        answer = self._child.call("examples", messages.encode(self._load), LOAD_TIMEOUT_S)
        return messages.decode_examples(answer).by_grader

    @property
    def ahead(self) -> int:
        """How many trajectories are worth a call together now: as many as take `AHEAD_S`, one after a failure."""
        if self._caution:
            return 1
        return max(1, min(MOST_AHEAD, int(AHEAD_S / self._seconds)))

    def foresee(self, raw: Sequence[bytes]) -> list[list[list[Given]]] | None:
        """The grades of trajectories (as JSON) that come next, in one call; None when it failed: whoever asked goes
        on with one at a time, so that what is slow or deadly costs its own time only.
        """
        try:
            return self._asked(self.graders, raw)
        except (Unavailable, GraderError):
            self._caution = CAUTION
            return None

    def grade(
        self, trajectories: Sequence[Trajectory], graders: Sequence[Grader] | None = None
    ) -> list[list[list[Given]]]:
        """Every attempt, by trajectory and by grader (default: all). All graders go to the child in one call; when
        it hangs or dies, each pair goes alone, and a grader that was to blame goes alone for the next `CAUTION`.
        """
        asked = self.graders if graders is None else tuple(graders)
        self._caution = max(0, self._caution - len(trajectories))
        if not self._caution:
            self._suspects.clear()
        columns: dict[str, list[list[Given]]] = {}
        together = [grader for grader in asked if grader.name not in self._suspects]
        for some in ([together] if together else []) + [[g] for g in asked if g.name in self._suspects]:
            rows = self._called(some, trajectories)
            columns |= {grader.name: [row[i] for row in rows] for i, grader in enumerate(some)}
        return [[columns[grader.name][i] for grader in asked] for i in range(len(trajectories))]

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _called(self, graders: Sequence[Grader], trajectories: Sequence[Trajectory]) -> list[list[list[Given]]]:
        try:
            return self._together(graders, trajectories)
        except (Unavailable, GraderError) as error:
            alone = len(graders) * len(trajectories) == 1
            first = self._failed(error) if alone else None
        return [[self._alone(grader, t, first) for grader in graders] for t in trajectories]

    def _together(self, graders: Sequence[Grader], trajectories: Sequence[Trajectory]) -> list[list[list[Given]]]:
        return self._asked(graders, [messages.encode(trajectory) for trajectory in trajectories])

    def _asked(self, graders: Sequence[Grader], raw: Sequence[bytes]) -> list[list[list[Given]]]:
        names = tuple((grader.name, grader.epoch) for grader in graders)
        work = messages.pack(messages.Work(load=self._load, graders=names, trajectories=tuple(raw)))
        begun = time.perf_counter()
        done = messages.unpack_done(self._ask(work))
        self._seconds = (self._seconds + (time.perf_counter() - begun) / len(raw)) / 2
        return [
            [[Given(grader, grade, 1, ns)] for grader, grade, ns in zip(graders, row, latencies, strict=True)]
            for row, latencies in zip(done.grades, done.latencies, strict=True)
        ]

    def _ask(self, work: bytes) -> bytes:
        """One call to a child that has loaded its graders: starting one is not on the graders' time."""
        if not self._warm:
            self._child.call("load", messages.encode(self._load), LOAD_TIMEOUT_S)
        self._warm = False
        try:
            answer = self._child.call("grade", work, self._timeout_s)
        except GraderError:
            self._warm = True
            raise
        self._warm = True
        return answer

    def _alone(self, grader: Grader, trajectory: Trajectory, first: Grade | None) -> list[Given]:
        """Every attempt at one pair, from the second on where the first was made."""
        made = [] if first is None else [Given(grader, first, 1)]
        while not made or (_worth_another(made[-1].grade) and len(made) < self._attempts):
            begun = time.perf_counter_ns()
            try:
                grade = self._together([grader], [trajectory])[0][0][0].grade
            except (Unavailable, GraderError) as error:
                grade = self._failed(error)
                self._suspects.add(grader.name)
                self._caution = CAUTION
            made.append(Given(grader, grade, len(made) + 1, time.perf_counter_ns() - begun))
        return made

    def _failed(self, error: Exception) -> Grade:
        if isinstance(error, TimeoutError):
            return fail(f"no grade within {self._timeout_s} s; the grading process was replaced", "timeout")
        if isinstance(error, Overrun):
            return fail(f"{error}; the grading process was replaced")
        if isinstance(error, Unavailable):
            return fail(f"the grading process ended: {error}"[:REASON], "infrastructure")
        return fail(str(error)[:REASON])


def _worth_another(grade: Grade) -> bool:
    return getattr(grade, "kind", "") == "infrastructure"


def _elsewhere(_: Trajectory) -> Grade:
    raise GraderError("this grader runs in its child process: ask its Crew")


class GraderSet:
    """The enabled graders, built-in and people's own, over one trajectory."""

    def __init__(self, builtin: Sequence[Grader], crew: Crew | Crews | None = None) -> None:
        """``crew`` runs the user's graders, all of them."""
        self.builtin = tuple(builtin)
        self.crew = crew
        self.graders = (*self.builtin, *(crew.graders if crew else ()))
        self._window = Window(self.builtin)

    def only(self, name: str) -> GraderSet:
        """The set with just the grader of that name; it takes the child process over."""
        if self.crew:
            self.crew.graders = tuple(grader for grader in self.crew.graders if grader.name == name)
        return GraderSet([grader for grader in self.builtin if grader.name == name], self.crew)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all, in the order their grades come."""
        return tuple(grader.name for grader in self.graders)

    def grade(self, trajectory: Trajectory, foreseen: list[list[Given]] | None = None) -> list[list[Given]]:
        """Every attempt of every grader, grader by grader in the order of ``graders``. ``foreseen``: what the child
        process said of it before.
        """
        self._window.begin([trajectory])
        given = [[self._here(grader, trajectory)] for grader in self.builtin]
        if foreseen is not None:
            given += foreseen
        elif self.crew and self.crew.graders:
            given += self.crew.grade([trajectory])[0]
        return given

    @property
    def window(self) -> int:
        """How many trajectories slow graders are asked about at once; 1: none is slow."""
        return self._window.width

    def begin(self, trajectories: Sequence[Trajectory]) -> None:
        """These come next: slow graders are asked about them already."""
        self._window.begin(trajectories)

    @property
    def ahead(self) -> int:
        """How many trajectories are worth `foresee` together."""
        return self.crew.ahead if self.crew and self.crew.graders else 1

    def foresee(self, raw: Sequence[bytes]) -> list[list[list[Given]]] | None:
        """What the child process says of trajectories (as JSON) that come next; None: ask for each."""
        return self.crew.foresee(raw) if self.crew else None

    def grade_each(self, trajectories: Sequence[Trajectory]) -> list[list[list[Given]]]:
        """As `grade`, of several trajectories: the child process is asked once for all of them."""
        if not trajectories:
            return []
        rows = []
        for place, t in enumerate(trajectories):
            self._window.begin(trajectories[place : place + self.window])
            rows.append([[self._here(grader, t)] for grader in self.builtin])
        if self.crew and self.crew.graders:
            rows = [[*row, *theirs] for row, theirs in zip(rows, self.crew.grade(trajectories), strict=True)]
        return rows

    def close(self) -> None:
        """End what runs beside: threads of slow graders, the child process."""
        self._window.close()
        for grader in self.builtin:
            getattr(grader.function, "close", bool)()
        if self.crew:
            self.crew.close()

    def _here(self, grader: Grader, trajectory: Trajectory) -> Given:
        told, spent = self._window.told(grader, trajectory)
        return Given(grader, told.grade, 1, spent, told.cost, told.flags, told.model, told.propensity)


def effective(attempts: Sequence[Given]) -> Given:
    """The attempt that counts: the first that did not fail, else the last."""
    return next((given for given in attempts if not isinstance(given.grade, Failed)), attempts[-1])
