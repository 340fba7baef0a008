"""Epochs: which version of a grader's code, data and parameters gave a grade.

A built-in's epoch is its name and an integer version, held by golden outcomes (``tests/golden/graders``):
whoever changes an outcome raises the version. A user's epoch is a hash of everything that can change an
outcome and can be seen: the syntax tree of its file and of the local modules that it imports (layout and
comments do not count), declared data files, parameters, versions of named libraries, and Python's minor.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from millstream.codec import digest
from millstream.errors import SettingsError


def parameters_digest(options: Mapping[str, Any]) -> str:
    """A hash of parameters; the order of the keys does not count."""
    return digest(msgspec.json.encode(options, order="deterministic"))


def builtin_epoch(name: str, version: int, options: Mapping[str, Any]) -> str:
    """``name@version``, with a hash of the parameters when there are any."""
    return f"{name}@{version}" + (f":{parameters_digest(options)[:8]}" if options else "")


def user_epoch(
    name: str, file: Path, options: Mapping[str, Any], data: tuple[str, ...] = (), libraries: tuple[str, ...] = ()
) -> str:
    """``name@hash`` for a grader in ``file``. Data paths are relative to it.

    Raises `SettingsError` for a data file or library that is not there, or a file that is no Python.
    """
    parts = [f"python {sys.version_info.major}.{sys.version_info.minor}", name, parameters_digest(options)]
    parts += [f"{module.name}:{tree}" for module, tree in sorted(_trees(file).items())]
    parts += [f"data {item}:{file_digest(file.parent / item, f'data of grader {name!r}')}" for item in sorted(data)]
    parts += [f"library {library}=={_version(name, library)}" for library in sorted(libraries)]
    return f"{name}@{digest(*parts)[:16]}"


def _trees(file: Path) -> dict[Path, str]:
    """The syntax trees of a file and of every local module it reaches, by path."""
    found: dict[Path, str] = {}
    waiting = [file.resolve()]
    bases = dict.fromkeys((file.resolve().parent, _import_root(file.resolve())))
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        tree = _parse(module)
        found[module] = ast.dump(tree)
        for base in bases:
            waiting.extend(_local_imports(tree, module, base))
    return found


def _import_root(file: Path) -> Path:
    """The folder that must be importable for a file's package to be: the first above it that is no package."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise SettingsError(f"grader file {file} is not Python: {error}") from None
    except OSError as error:
        raise SettingsError(f"grader file {file} can't be read: {error.strerror}") from None


def _local_imports(tree: ast.Module, module: Path, root: Path) -> Iterator[Path]:
    """The files beside the grader that its import statements name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = root
            if node.level:
                base = module.parent
                for _ in range(node.level - 1):
                    base = base.parent
            yield from _files_of(base, node.module or "")
            for alias in node.names:
                yield from _files_of(base, f"{node.module}.{alias.name}" if node.module else alias.name)


def _files_of(base: Path, dotted: str) -> Iterator[Path]:
    """The module files that importing ``dotted`` from ``base`` executes, if they lie there."""
    place = base
    for part in dotted.split(".") if dotted else []:
        place = place / part
        if place.with_suffix(".py").is_file():
            yield place.with_suffix(".py").resolve()
        if (place / "__init__.py").is_file():
            yield (place / "__init__.py").resolve()


def file_digest(path: Path, where: str) -> str:
    """A hash of a file's content. Raises `SettingsError` naming ``where`` when it can't be read."""
    try:
        with path.open("rb") as source:
            state = blake2b(digest_size=16)
            while chunk := source.read(1 << 20):
                state.update(chunk)
    except OSError as error:
        raise SettingsError(f"{where}: {path} can't be read: {error.strerror}") from None
    return state.hexdigest()


def _version(name: str, library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        raise SettingsError(f"grader {name!r} names the library {library!r}, which is not installed") from None
