"""Judges of one's own, in TOML: ``[graders] files = ["judges.toml"]``, a table for each, named as a formula names it.

Kinds: ``score``, ``label``, ``rubric``, ``pairwise``, ``constitution``; ``ranking`` ranks the runs of a task
(`millstream graders rank`) and grades no run alone; ``learned`` is a reward model of one's own and asks no endpoint.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from millstream.errors import SettingsError, nearest
from millstream.grade import Grade
from millstream.graders.epochs import judge_epoch
from millstream.graders.judges.budget import sampled
from millstream.graders.judges.constitution import Constitution
from millstream.graders.judges.graded_text import NOTICE
from millstream.graders.judges.judge import ASKING, Judge
from millstream.graders.judges.label import Label
from millstream.graders.judges.pairwise import Pairwise
from millstream.graders.judges.ranking import Ranking
from millstream.graders.judges.rubric import Rubric
from millstream.graders.judges.score import Score
from millstream.graders.judges.shown import material, signs
from millstream.graders.judges.sitting import Sitting
from millstream.graders.learned import Learned, Spawn, learned_grader
from millstream.graders.registry import Grader, Told, grader
from millstream.trajectory import Trajectory

Asking: TypeAlias = Score | Label | Rubric | Pairwise | Constitution
"""The kinds that ask an endpoint about one run."""
Native: TypeAlias = Asking | Ranking | Learned
KINDS: Final[dict[str, type[Any]]] = {
    "score": Score,
    "label": Label,
    "rubric": Rubric,
    "pairwise": Pairwise,
    "constitution": Constitution,
    "ranking": Ranking,
    "learned": Learned,
}


def is_judges(file: str) -> bool:
    """Whether a name in ``[graders] files`` is a file of judges."""
    return file.lower().endswith(".toml")


def read_judges(file: Path) -> dict[str, Native]:
    """The judges of a file, by name. Raises `SettingsError` with the file, the table and the nearest known word."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None
    except OSError as error:
        raise SettingsError(f"no grader file at {file} ({error.strerror}); [graders] files names it") from None
    if not tables:
        raise SettingsError(f"{file} holds no judge; write a table [NAME] with kind = one of {', '.join(KINDS)}")
    return {name: _judge(table, f"{file}: [{name}]") for name, table in tables.items()}


def load_judges(file: Path, judge: Judge | None, spawn: Spawn | None = None) -> list[Grader]:
    """The judges of a file that grade runs, as graders; ``spawn`` makes the child that runs a learned one.

    Raises `SettingsError`, also when there is no endpoint.
    """
    found = []
    for name, native in read_judges(file).items():
        if isinstance(native, Learned):
            found.append(learned_grader(name, native, file, spawn))
        elif not isinstance(native, Ranking):
            found.append(made(name, native, judge, str(file)))
    return found


def made(name: str, native: Asking, judge: Judge | None, where: str) -> Grader:
    """A judge as a grader; its epoch has its definition, the way it is asked, and the model that it asks."""
    if judge is None:
        raise SettingsError(f"{where}: judge {name!r} needs an endpoint: set [judge] base_url")
    if not (judge.settings.model or native.model):
        raise SettingsError(f"{where}: judge {name!r} names no model: set [judge] model, or model in its table")
    low, high = native.ends()
    found = grader(name=name, low=low, high=high)(graded(name, native, judge))
    asked = {"asking": ASKING, "notice": NOTICE, "model": judge.settings.model, "max_tokens": judge.settings.max_tokens}
    found = found.beside(judge.settings.concurrency)
    return found.with_epoch(judge_epoch(name, msgspec.to_builtins(native), asked), "file")


def graded(name: str, native: Asking, judge: Judge) -> Callable[[Trajectory], Told]:
    """A judge as a function of a trajectory; where the budget thins, of those that are drawn."""

    def asked(t: Trajectory) -> Told:
        if isinstance(native, Pairwise):
            sitting = Sitting(judge, native, tuple(signs(t.task.question, t.final_answer or "")))
            return sitting.end(lambda sitting: native.grade_run(sitting, t))
        seen = material(t, native.shows)

        def act(sitting: Sitting) -> Grade:
            return native.grade(sitting, seen)

        return Sitting(judge, native, seen.flags).end(act)

    return lambda t: sampled(name, t, judge.budget.propensity(), asked)


def _judge(table: Any, where: str) -> Native:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{where} must be a table with kind and criteria")
    kind = table.get("kind")
    if kind not in KINDS:
        raise SettingsError(f"{where}: no kind {kind!r}{nearest(str(kind), list(KINDS))}")
    for field in table:
        known = ["kind", *KINDS[kind].__struct_fields__]
        if field not in known:
            raise SettingsError(f"{where}: unknown field {field!r}{nearest(field, known)}")
    try:
        native: Native = msgspec.convert(dict(table), KINDS[kind])
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {error}") from None
    native.check(where)
    if not isinstance(native, Ranking):
        low, high = native.ends()
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SettingsError(f"{where}: the range [{low}, {high}] must be finite, low before high")
    return native
