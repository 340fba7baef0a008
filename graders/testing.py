"""`millstream graders test FILE`: the examples that a file's graders declare, tried as the stream would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.graders import messages
from millstream.graders.examples import Example
from millstream.graders.running import Crew, Given, Spawn, effective
from millstream.settings import Graders

MEND = "declare some: @ms.grader(examples=[ms.example(answer=…, reference=…, score=…)])"


class Tried(Struct, frozen=True, kw_only=True):
    """One example, tried. ``number`` counts a grader's examples from 1; ``fault`` is empty when it holds."""

    grader: str
    number: int
    expected: str
    given: str
    fault: str
    milliseconds: float


def try_file(settings: Graders, file: Path, spawn: Spawn) -> list[Tried]:
    """Every example of a file's graders. Raises `SettingsError` when it can't be loaded or declares none."""
    load = messages.Load(files=(str(file.resolve()),), options=settings.options)
    crew = Crew(spawn, load, timeout_s=settings.timeout_s, attempts=settings.attempts)
    try:
        examples = crew.examples()
        if not any(examples.values()):
            raise SettingsError(f"grader file {file} declares no examples; {MEND}")
        return _tried(crew, examples)
    finally:
        crew.close()


def _tried(crew: Crew, examples: Mapping[str, Sequence[Example]]) -> list[Tried]:
    found = []
    for made in crew.graders:
        wanted = examples.get(made.name, ())
        rows = crew.grade([one.run for one in wanted], (made,)) if wanted else []
        found += [_one(n, one, effective(row[0])) for n, (one, row) in enumerate(zip(wanted, rows, strict=True), 1)]
    return found


def _one(number: int, one: Example, given: Given) -> Tried:
    score = getattr(given.grade, "score", None)
    return Tried(
        grader=given.grader.name,
        number=number,
        expected=one.status if one.score is None else f"{one.score:g}",
        given=str(given.grade.__struct_config__.tag) if score is None else f"{score:g}",
        fault=one.fault(given.grade),
        milliseconds=given.latency_ns / 1e6,
    )
