"""The child's side: `handle` loads graders that people wrote and runs them on trajectories.

The parent process gives each call a deadline, so a grader that hangs or takes the process down costs one
call and a fresh child, never the stream.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from millstream.errors import GraderError, SettingsError
from millstream.grade import Grade, fail
from millstream.graders import messages
from millstream.graders.registry import Grader, Registry
from millstream.graders.userfiles import load_entry_points, load_file
from millstream.trajectory import Trajectory

MAX_WORDS: Final = 10_000
"""How many characters of a grade's reason and label are kept."""


def handle(method: str, payload: bytes) -> bytes:
    """Answer ``load`` (a `messages.Load`) or ``grade`` (a `messages.Work`)."""
    if method == "load":
        return messages.encode(_load(messages.decode_load(payload)))
    if method == "grade":
        return messages.encode(_grade(messages.decode_work(payload)))
    raise GraderError(f"unknown method {method!r}: a child of graders knows load and grade")


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


def _grade(work: messages.Work) -> messages.Done:
    registry = _registry(work.load)
    graders = [_unchanged(registry.get(name), epoch) for name, epoch in work.graders]
    rows = [[_timed(grader, messages.decode_trajectory(raw)) for grader in graders] for raw in work.trajectories]
    return messages.Done(
        grades=tuple(tuple(grade for grade, _ in row) for row in rows),
        latencies=tuple(tuple(ns for _, ns in row) for row in rows),
    )


def _timed(grader: Grader, trajectory: Trajectory) -> tuple[Grade, int]:
    begun = time.perf_counter_ns()
    grade = _sound(grader(trajectory))
    return grade, time.perf_counter_ns() - begun


def _unchanged(grader: Grader, epoch: str) -> Grader:
    """The grader, if it is still the one whose epoch its grades will bear: a file may change under a child
    that is replaced.
    """
    if grader.epoch != epoch:
        raise GraderError(f"grader {grader.name!r} was changed since it was loaded; start `millstream up` again")
    return grader


def _sound(grade: Grade) -> Grade:
    """The grade with its words bounded; `Failed` when a field of it is none that can be written down."""
    try:
        words = {name: getattr(grade, name)[:MAX_WORDS] for name in ("reason", "label") if getattr(grade, name, "")}
        return messages.decode_grade(messages.encode(msgspec.structs.replace(grade, **words)))
    except Exception as error:  # noqa: BLE001 — a user's grade may hold anything
        return fail(f"a grader returned a grade that can't be written: {error}"[:1000], "unparsable")
