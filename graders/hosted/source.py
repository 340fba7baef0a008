"""Checking the source of a ``python`` grader without running it."""

from __future__ import annotations

import ast
import warnings

from millstream.errors import SettingsError
from millstream.syntax import parse_module


def check_source(source: str, limit: int, where: str) -> None:
    """Raises `SettingsError` unless the source is smaller than ``limit`` bytes and defines ``grade(sample, item)``."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        raise SettingsError(f"{where} holds half a character (a lone surrogate); save it as UTF-8") from None
    if size >= limit:
        raise SettingsError(f"{where} has {size:,} bytes; it must be smaller than {limit:,}")
    grades = [node for node in _module(source, where).body if _is_grade(node)]
    if not grades:
        raise SettingsError(f"{where} defines no function grade at its top level; write: def grade(sample, item): …")
    last = grades[-1]
    if isinstance(last, ast.AsyncFunctionDef):
        raise SettingsError(f"{where}, line {last.lineno}: grade must be a plain function, not async")
    assert isinstance(last, ast.FunctionDef)
    if not _takes_two(last.args):
        raise SettingsError(f"{where}, line {last.lineno}: grade must take two arguments: def grade(sample, item)")


def imports_of(source: str) -> tuple[str, ...]:
    """The top-level modules that a checked source imports whatever happens: at its top level, not in a ``try``."""
    return tuple(sorted({name.partition(".")[0] for name in modules_of(source)}))


def modules_of(source: str) -> tuple[str, ...]:
    """The same with their parts, as far as names tell: ``from a import b`` may mean the module ``a.b``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = parse_module(source).body
    found = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(sorted(set(found)))


def _module(source: str, where: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return parse_module(source)
    except SyntaxError as error:
        raise SettingsError(f"{where}, line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SettingsError(f"{where} can't be parsed: {str(error) or type(error).__name__}") from None


def _is_grade(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "grade"


def _takes_two(given: ast.arguments) -> bool:
    """Whether ``grade(sample, item)`` would be a call that fits."""
    places = len(given.posonlyargs) + len(given.args)
    wanted = places - len(given.defaults)
    loose = any(default is None for default in given.kw_defaults)
    return wanted <= 2 and (places >= 2 or given.vararg is not None) and not loose
