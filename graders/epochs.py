"""Epochs: which version of a grader's code, data and parameters gave a grade.

A built-in's epoch is its name and an integer version, held by golden outcomes (``tests/golden/graders``):
whoever changes an outcome raises the version. A user's epoch is a hash of everything that can change an
outcome and can be seen: the syntax tree of its file and of the local modules that it imports (layout and
comments do not count), declared data files, parameters, versions of named libraries, and Python's minor.
Installed packages and Millstream itself are no local modules: a grader that depends on one names it in
``libraries``. A judge's epoch is its prompt, its parameters and, once it has answered, the name of the
model that did.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.codec import digest
from millstream.errors import SettingsError
from millstream.syntax import parse_module

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_OURS: Final = "millstream"


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


MODEL_MARK: Final = "+"
"""Stands in an epoch before the name of the model that answered."""


def judge_epoch(name: str, prompt: Any, parameters: Mapping[str, Any], model: str = "") -> str:
    """``name@hash`` of a judge's prompt (any JSON value: texts, messages) and parameters (the model asked
    for among them), with ``+model`` once the model that answered has said its name. Two answers of one
    judge by two models are of two epochs.
    """
    told = msgspec.json.encode(prompt, order="deterministic")
    return with_model(f"{name}@{digest('judge', name, told, parameters_digest(parameters))[:16]}", model)


def with_model(epoch: str, model: str) -> str:
    """A judge's epoch with the model name that came back; the same epoch when none did."""
    return f"{epoch}{MODEL_MARK}{model.strip()[:120]}" if model.strip() else epoch


def base_epoch(epoch: str) -> str:
    """An epoch without the name of the model that answered: what is known before a judge is asked."""
    return epoch.partition(MODEL_MARK)[0]


def _trees(file: Path) -> dict[Path, str]:
    """The syntax trees of a file and of every local module it reaches, by path."""
    found: dict[Path, str] = {}
    waiting = [file.resolve()]
    bases = dict.fromkeys((file.resolve().parent, _import_root(file.resolve())))
    home = _home(file.resolve())
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        tree = _parse(module)
        found[module] = ast.dump(tree)
        for base in bases:
            waiting.extend(path for path in _local_imports(tree, module, base) if _is_local(path, home))
    return found


def _home(file: Path) -> Path:
    """The folder of a file's outermost package, or the file itself where it is in none."""
    home = file
    while (home.parent / "__init__.py").is_file():
        home = home.parent
    return home


def _is_local(module: Path, home: Path) -> bool:
    """Whether a module is the grader's own: of its package, or not installed."""
    return module.is_relative_to(home) or _INSTALLED.isdisjoint(module.parts)


def _import_root(file: Path) -> Path:
    """The folder that must be importable for a file's package to be: the first above it that is no package."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _parse(file: Path) -> ast.Module:
    try:
        return parse_module(file.read_bytes(), str(file))
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
    """The module files that importing ``dotted`` from ``base`` executes, if they lie there; none of ours."""
    place = base
    if dotted.partition(".")[0] == _OURS:
        return
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
