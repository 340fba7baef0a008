"""The built-in graders: a closed list of name, version, range and the factory that takes the options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from millstream.errors import SettingsError, nearest
from millstream.graders import (
    budgets,
    code_tests,
    correct,
    efficiency,
    finqa,
    groundedness,
    numeric,
    pattern,
    safety,
    schema,
    similar,
    suspect,
    tatqa,
    text,
    tools,
)
from millstream.graders import format as form
from millstream.graders.epochs import builtin_epoch, file_digest
from millstream.graders.hosted.similarity import LIBRARIES
from millstream.graders.registry import Factory, Grader
from millstream.sandboxing import Sandbox


class Builtin(Struct, frozen=True):
    """A built-in grader. Raising ``version`` says that outcomes changed; the golden files hold it to that."""

    name: str
    version: int
    factory: Factory
    tells: str
    sandboxed: bool = False
    """Whether its factory takes a sandbox."""
    libraries: tuple[str, ...] = ()
    """Distributions whose versions decide an outcome."""


BUILTINS: Final = {
    made.name: made
    for made in (
        Builtin("correct", correct.VERSION, correct.correct, "the final answer is the task's reference"),
        Builtin("numeric", numeric.VERSION, numeric.numeric, "the final number is the reference, within what it shows"),
        Builtin("exact", text.VERSION, text.exact, "the final answer is the reference, word for word"),
        Builtin("contains", text.VERSION, text.contains, "the final answer holds the reference"),
        Builtin(
            "similarity",
            similar.VERSION,
            similar.similarity,
            "how alike the final answer is to the reference",
            libraries=LIBRARIES,
        ),
        Builtin("regex", pattern.VERSION, pattern.regex, "the final answer fits a regular expression"),
        Builtin("finqa", finqa.VERSION, finqa.finqa, "the final answer is a FinQA program that gives the reference"),
        Builtin("tatqa", tatqa.VERSION, tatqa.tatqa, "the final answer is that of a TAT-QA question, in its scale"),
        Builtin("schema", schema.VERSION, schema.json_schema, "the final answer fits a JSON Schema"),
        Builtin(
            "code",
            code_tests.VERSION,
            code_tests.code,
            "share of the task's tests that the final answer's code passes, run in the sandbox",
            sandboxed=True,
        ),
        Builtin("format", form.VERSION, form.format_validity, "share of well-formed actions"),
        Builtin("tools", tools.VERSION, tools.tool_use, "the calls are the ones that the task expects"),
        Builtin("efficiency", efficiency.VERSION, efficiency.efficiency, "share of calls that were useful"),
        Builtin("budget", budgets.VERSION, budgets.budget, "steps, calls and tokens within their budgets"),
        Builtin("cost", budgets.COST_VERSION, budgets.cost, "the cost of the model calls within its budget"),
        Builtin("latency", budgets.VERSION, budgets.latency, "the time from start to end within its budget"),
        Builtin("safety", safety.VERSION, safety.safety, "no forbidden tool, forbidden text or leaked secret"),
        Builtin("suspect", suspect.VERSION, suspect.suspect, "which step most likely went wrong: a hint, no reward"),
        Builtin(
            "groundedness",
            groundedness.VERSION,
            groundedness.groundedness,
            "the final answer is a loaded figure (the example's, with a hole: do not train on it)",
        ),
    )
}


def builtin(
    name: str,
    options: Mapping[str, Any] | None = None,
    root: Path | None = None,
    sandbox: Sandbox | None = None,
) -> Grader:
    """A built-in grader with its options; an option ``file`` is relative to ``root``, and its content is
    part of the epoch. ``sandbox`` is for the one that runs code. Raises `SettingsError` for an unknown name or option.
    """
    made = BUILTINS.get(name)
    if made is None:
        raise SettingsError(f"unknown grader {name!r}{nearest(name, sorted(BUILTINS))}")
    given = dict(options or {})
    known = [option for option in inspect.signature(made.factory).parameters if option != "sandbox"]
    for option in given:
        if option not in known:
            hint = nearest(option, known) if known else "; it has no options"
            raise SettingsError(f"[graders.options.{name}]: unknown option {option!r}{hint}")
    hashed = dict(given)
    if "file" in given:
        path = (root or Path()) / str(given["file"])
        given["file"], hashed["file"] = str(path), file_digest(path, f"[graders.options.{name}]")
    if made.sandboxed:
        given["sandbox"] = sandbox
        hashed["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    function = made.factory(**given)
    if made.libraries:
        hashed["libraries"] = [f"{library} {metadata.version(library)}" for library in made.libraries]
    return Grader(name, function, epoch=builtin_epoch(name, made.version, hashed), source="builtin")
