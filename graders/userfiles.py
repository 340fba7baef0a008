"""Loading graders that people wrote: files named in settings, and entry points of installed packages.

This runs inside the child process: a user's module is never imported by the process that streams.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from millstream.codec import digest
from millstream.errors import SettingsError, nearest
from millstream.graders.epochs import user_epoch
from millstream.graders.registry import ENTRY_POINTS, Grader, Source


def load_file(file: Path, options: Mapping[str, Mapping[str, Any]]) -> list[Grader]:
    """The graders that a file defines, in its order. Raises `SettingsError` when it can't be imported or
    defines none; its folder becomes importable, so that it finds modules beside it.
    """
    module = _import(file)
    found = [made for made in vars(module).values() if isinstance(made, Grader) and _is_from(made, module)]
    if not found:
        raise SettingsError(f"grader file {file} defines no grader: put @ms.grader above a function of a trajectory")
    return [prepared(made, file, options.get(made.name, {}), "file") for made in dict.fromkeys(found)]


def load_entry_points(options: Mapping[str, Mapping[str, Any]], wanted: frozenset[str]) -> list[Grader]:
    """The graders among ``wanted`` that installed packages offer in the entry-point group."""
    graders = []
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name not in wanted:
            continue
        try:
            made = point.load()
        except Exception as error:
            raise SettingsError(
                f"entry point {point.value} (grader {point.name!r}) can't be loaded: {error}"
            ) from error
        if not isinstance(made, Grader):
            raise SettingsError(f"entry point {point.value} is no grader; decorate it with @millstream.grader")
        file = inspect.getsourcefile(inspect.unwrap(made.function))
        graders.append(prepared(made, Path(file or ""), options.get(made.name, {}), "entry_point"))
    return graders


def offered() -> tuple[str, ...]:
    """The names of graders that installed packages offer; imports none of them."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=ENTRY_POINTS)}))


def prepared(made: Grader, file: Path, options: Mapping[str, Any], source: Source) -> Grader:
    """A grader with its options bound and its epoch worked out. Raises `SettingsError` for an option that
    is no keyword-only parameter of the function.
    """
    known = {
        name
        for name, parameter in inspect.signature(made.function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for option in options:
        if option not in known:
            where = f"[graders.options.{made.name}]"
            raise SettingsError(f"{where}: unknown option {option!r}{nearest(option, sorted(known))}")
    epoch = user_epoch(made.name, file, options, made.data, made.libraries)
    function = functools.partial(made.function, **options) if options else made.function
    return replace(made, function=function).with_epoch(epoch, source)


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        raise SettingsError(f"no grader file at {file}; [graders] files names it")
    if file.suffix != ".py":
        raise SettingsError(f"grader file {file} is none: graders end in .py, judges in .toml, hosted ones in .json")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"millstream_user_{digest(str(file.resolve()))[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SettingsError(f"grader file {file}{_line(error, file)} can't be imported: {_said(error)}") from error
    return module


def _line(error: BaseException, file: Path) -> str:
    """Where in the file it came from, as far as it is known."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""


def _said(error: BaseException) -> str:
    told = error.msg if isinstance(error, SyntaxError) else error
    return f"{type(error).__name__}: {told}"


def _is_from(made: Grader, module: ModuleType) -> bool:
    """Whether a grader was defined in the module rather than imported into it."""
    return getattr(inspect.unwrap(made.function), "__module__", "") == module.__name__
