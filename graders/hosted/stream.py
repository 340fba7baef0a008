"""Hosted graders as graders of the stream: ``[graders] files = ["my_grader.json"]``."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.codec import digest
from millstream.errors import SettingsError, nearest
from millstream.graders.hosted.definitions import (
    Definition,
    Endpoint,
    LabelModel,
    Multi,
    Python,
    ScoreModel,
    Single,
    TextSimilarity,
)
from millstream.graders.hosted.means import NOTHING, Means
from millstream.graders.hosted.parsing import parse
from millstream.graders.hosted.running import Outcome, run
from millstream.graders.hosted.samples import item_of_run, sample_of_run
from millstream.graders.hosted.similarity import LIBRARIES, measure
from millstream.graders.hosted.source import imports_of
from millstream.graders.judges.budget import sampled
from millstream.graders.judges.judge import ASKING
from millstream.graders.registry import Grader, Told, grader
from millstream.trajectory import Trajectory

VERSION: Final = 1
"""Raised when the same file gives other outcomes."""
OPTIONS: Final = ("low", "high")


def is_hosted(file: str) -> bool:
    """Whether a name in ``[graders] files`` is a hosted grader's JSON."""
    return file.lower().endswith(".json")


def load_hosted(file: Path, options: Mapping[str, Mapping[str, Any]], means: Means = NOTHING) -> Grader:
    """The grader of a JSON file, named as a formula can name it. Raises `SettingsError` with file and field."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"no grader file at {file} ({error.strerror}); [graders] files names it") from None
    definition = parse(text, where=str(file))
    _ready(definition, str(file), means)
    name = grader_name(definition.name)
    low, high = _range(definition, options.get(name, {}), f"[graders.options.{name}]")
    made = grader(name=name, low=low, high=high)(graded(definition, means))
    if _judged(definition):
        made = made.beside(means.bench.settings.concurrency if means.bench else 1)
    elif any(isinstance(part, Endpoint) for part in parts_of(definition)):
        made = made.beside(1)
    return made.with_epoch(f"{name}@{_epoch(definition, low, high, means)[:16]}", "file")


def grader_name(name: str) -> str:
    """The name in the stream: letters, digits and underscores, so that a reward formula can hold it."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "hosted"
    return plain if not plain[0].isdigit() else f"_{plain}"


def graded(definition: Definition, means: Means = NOTHING) -> Callable[[Trajectory], Told]:
    """The definition as a function of a trajectory. Where it asks a judge whose budget thins, a run that is not
    among those drawn is abstained from.
    """

    def asked(t: Trajectory) -> Told:
        return told_of(run(definition, item_of_run(t), sample_of_run(t), means, t.id))

    return asked if not _judged(definition) else lambda t: sampled(definition.name, t, means.propensity(), asked)


def _judged(definition: Definition) -> bool:
    return any(isinstance(part, ScoreModel | LabelModel) for part in parts_of(definition))


def told_of(outcome: Outcome) -> Told:
    """A grade of the stream, with what asking outside took."""
    spent = outcome.spent.values()
    return Told(
        grade=outcome.grade,
        cost=sum(one.cost for one in spent),
        flags=tuple(sorted({note for one in spent for note in one.notes})),
        model=" ".join(sorted({one.model for one in spent if one.model})),
    )


def parts_of(definition: Definition) -> list[Single]:
    """The graders in a definition: those of a multi, else itself."""
    return list(definition.graders.values()) if isinstance(definition, Multi) else [definition]


def _ready(definition: Definition, where: str, means: Means) -> None:
    """Raises at the start, rather than failing every grade, what this version can't run."""
    for part in parts_of(definition):
        if isinstance(part, TextSimilarity):
            measure(part.evaluation_metric)
        elif told := means.missing(part):
            raise SettingsError(f"{where}: {told}")


def _range(definition: Definition, options: Mapping[str, Any], where: str) -> tuple[float, float]:
    for option in options:
        if option not in OPTIONS:
            raise SettingsError(f"{where}: unknown option {option!r}{nearest(option, list(OPTIONS))}")
    low, high = definition.range if isinstance(definition, ScoreModel) else (0.0, 1.0)
    given = options.get("low", low), options.get("high", high)
    for end in given:
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise SettingsError(f"{where}: low and high must be numbers, not {end!r}")
    return float(given[0]), float(given[1])


def _epoch(definition: Definition, low: float, high: float, means: Means) -> str:
    """A hash of all that decides a grade: the fields, the range, this module's version, the libraries used; for code
    Python's minor and what it imports, too; for a judge the way and the model that it is asked.
    """
    similar = any(isinstance(part, TextSimilarity) for part in parts_of(definition))
    libraries = [f"{name} {metadata.version(name)}" for name in LIBRARIES] if similar else []
    libraries += [line for part in parts_of(definition) if isinstance(part, Python) for line in _stands_on(part)]
    if _judged(definition) and means.bench is not None:
        libraries.append(f"asking {ASKING} {means.bench.settings.model}")
    fields = msgspec.json.encode(definition, order="deterministic")
    return digest("hosted", VERSION, fields, f"{low!r} {high!r}", *libraries)


def _stands_on(code: Python) -> list[str]:
    """What code runs on that can change its outcome: Python's minor, versions of the packages it imports."""
    names = [name for name in imports_of(code.source) if name not in sys.stdlib_module_names]
    known = metadata.packages_distributions() if names else {}
    versions = {dist: metadata.version(dist) for name in names for dist in known.get(name, ())}
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return [python, *(f"{dist} {version}" for dist, version in sorted(versions.items()))]
