"""The child's side: `handle` loads graders that people wrote and runs them on trajectories.

The parent process gives each call a deadline, so a grader that hangs or takes the process down costs one
call and a fresh child, never the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from millstream.errors import GraderError, SettingsError
from millstream.grade import Grade, Scored, StepGrade, fail
from millstream.graders import messages
from millstream.graders.leftovers import end_others, processes
from millstream.graders.registry import Grader, Registry
from millstream.graders.userfiles import load_entry_points, load_file

MAX_STEPS, MAX_STEP_WORDS = 1000, 500
"""How many grades of steps are kept, and how many characters of each one's label and reason."""
MAX_WORDS: Final = 10_000
"""How many characters of a grade's reason and label are kept."""


def handle(method: str, payload: bytes) -> bytes:
    """Answer ``load`` (a `messages.Load`), ``examples`` (likewise) or ``grade`` (a `messages.Work`). Raises `Overrun`
    when a grader left a process behind.
    """
    if method == "load":
        return messages.encode(_load(messages.decode_load(payload)))
    if method == "examples":
        return messages.encode(_examples(messages.decode_load(payload)))
    if method == "grade":
        work = messages.unpack_work(payload)
        registry = _registry(work.load)  # what its import started may go on
        before = processes()
        done = messages.pack(_grade(work, registry))
        end_others(processes() - before)
        return done
    raise GraderError(f"unknown method {method!r}: a child of graders knows load, examples and grade")


def _examples(load: messages.Load) -> messages.Examples:
    return messages.Examples(by_grader={made.name: made.examples for made in _registry(load)})


def _load(load: messages.Load) -> messages.Loaded:
    try:
        registry = _registry(load)
    except SettingsError as error:
        return messages.Loaded(problem=str(error))
    return messages.Loaded(
        graders=tuple(
            messages.Declared(name=g.name, low=g.low, high=g.high, epoch=g.epoch, source=g.source) for g in registry
        )
    )


def _registry(load: messages.Load) -> Registry:
    """The graders of a load; kept, so that a later call finds them (one load a process in practice)."""
    key = messages.encode(load)
    if key not in _registries:
        registry = Registry()
        for file in load.files:
            for made in load_file(Path(file), load.options):
                registry.add(made)
        for made in load_entry_points(load.options, frozenset(load.wanted)):
            registry.add(made)
        _registries[key] = registry
    return _registries[key]


_registries: dict[bytes, Registry] = {}


def _grade(work: messages.Work, registry: Registry) -> messages.Done:
    graders = [_unchanged(registry.get(name), epoch) for name, epoch in work.graders]
    # By grader, each with trajectories of its own: what one changes in them no other sees.
    columns = [_column(grader, work.trajectories) for grader in graders]
    return messages.Done(
        grades=tuple(tuple(column[i][0] for column in columns) for i in range(len(work.trajectories))),
        latencies=tuple(tuple(column[i][1] for column in columns) for i in range(len(work.trajectories))),
    )


def _column(grader: Grader, raw: Sequence[bytes]) -> list[tuple[Grade, int]]:
    given = grader.told_each([messages.decode_trajectory(one) for one in raw])
    return [(_sound(told.grade), spent) for told, spent in given]


def _unchanged(grader: Grader, epoch: str) -> Grader:
    """The grader, if it is still the one whose epoch its grades will bear: a file may change under a child
    that is replaced.
    """
    if grader.epoch != epoch:
        raise GraderError(f"grader {grader.name!r} was changed since it was loaded; start `millstream up` again")
    return grader


def _bounded(step: StepGrade) -> StepGrade:
    """A step's grade with its words bounded."""
    return msgspec.structs.replace(step, label=step.label[:MAX_STEP_WORDS], reason=step.reason[:MAX_STEP_WORDS])


def _sound(grade: Grade) -> Grade:
    """The grade with its words bounded; `Failed` when a field of it is none that can be written down."""
    try:
        words = {name: getattr(grade, name)[:MAX_WORDS] for name in ("reason", "label") if getattr(grade, name, "")}
        steps = {"steps": tuple(map(_bounded, grade.steps[:MAX_STEPS]))} if isinstance(grade, Scored) else {}
        return messages.decode_grade(messages.encode(msgspec.structs.replace(grade, **words, **steps)))
    except Exception as error:  # noqa: BLE001 — a user's grade may hold anything
        return fail(f"a grader returned a grade that can't be written: {error}"[:1000], "unparsable")
