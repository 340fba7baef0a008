"""The child's side of `millstream.capture.finders`: loads files with ``find_…`` functions and asks them.

A function takes a text and gives the places to take out, ``(start, end)`` each; what follows ``find_`` is their kind.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

Finder: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
Places: TypeAlias = list[tuple[int, int, str]]

PREFIX: Final = "find_"
_KIND = re.compile(r"[a-z0-9_]{1,40}")
_files = msgspec.msgpack.Decoder(list[str]).decode
_work = msgspec.msgpack.Decoder(tuple[list[str], list[str]]).decode
_encode = msgspec.msgpack.Encoder().encode
_loaded: dict[tuple[str, ...], dict[str, Finder]] = {}


def handle(method: str, payload: bytes) -> bytes:
    """Answer ``load`` (paths; gives the kinds that they find) or ``find`` (paths, texts; gives the places in each)."""
    if method == "load":
        return _encode(sorted(_finders(_files(payload))))
    if method == "find":
        files, texts = _work(payload)
        finders = _finders(files)
        return _encode([_places(text, finders) for text in texts])
    raise ValueError(f"unknown method {method!r}")


def _finders(files: list[str]) -> dict[str, Finder]:
    key = tuple(files)
    if key not in _loaded:
        made: dict[str, Finder] = {}
        for number, file in enumerate(files):
            found = _of_file(Path(file), number)
            if not found:
                raise ValueError(f"{file} has no function {PREFIX}KIND(text), with a KIND of a-z, 0-9 and _")
            made |= found
        _loaded[key] = made
    return _loaded[key]


def _of_file(path: Path, number: int) -> dict[str, Finder]:
    spec = importlib.util.spec_from_file_location(f"millstream_redactor_{number}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    told = {name.removeprefix(PREFIX): item for name, item in vars(module).items() if name.startswith(PREFIX)}
    return {kind: item for kind, item in told.items() if callable(item) and _KIND.fullmatch(kind)}


def _places(text: str, finders: dict[str, Finder]) -> Places:
    return [(*_place(place, text, kind), kind) for kind, find in finders.items() for place in find(text)]


def _place(place: Any, text: str, kind: str) -> tuple[int, int]:
    start, end = place
    if not 0 <= int(start) < int(end) <= len(text):
        raise ValueError(f"{PREFIX}{kind} gave ({start}, {end}) in a text of {len(text)} letters")
    return int(start), int(end)
