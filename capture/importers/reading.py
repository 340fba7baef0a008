"""Rows of a file: JSON lines, a JSON array, or one JSON object, told apart by content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from millstream.capture.importers import yaml_files
from millstream.errors import SettingsError, Undecodable
from millstream.repair import parsed

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", *yaml_files.SUFFIXES)
"""What is read of a folder."""
_WHOLE_BYTES = 256_000_000
"""A file that is one value, or a line, is read up to this size."""
_PIECE_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_PACKED = {b"PK\x03\x04": "zip", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
"""What packed files begin with."""


class RowProblem(Struct, frozen=True):
    """A row that could not be imported; ``row`` counts from 1, 0 is the file as a whole."""

    file: str
    row: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}: row {self.row}" if self.row else self.file
        return f"{place}: {self.reason}"


class Row(Struct, frozen=True):
    """A row of a file and what was mended to read it (``non_finite``, ``surrogate_replaced``). ``size``: the bytes of
    its line, 0 where a file is one value.
    """

    number: int
    value: Any
    flags: tuple[str, ...] = ()
    size: int = 0


def files(paths: list[Path]) -> list[Path]:
    """The files behind paths: a folder stands for the files in and below it that have a known suffix, but for hidden
    ones. Raises `SettingsError`.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(item for item in path.rglob("*") if _is_row_file(item.relative_to(path), item))
            if not inside:
                raise SettingsError(f"{path} holds no file to import; files end in {', '.join(SUFFIXES)}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise SettingsError(f"no file or folder at {path}; give paths of files to import")
    return found


def _is_row_file(inside: Path, item: Path) -> bool:
    return item.suffix in SUFFIXES and item.is_file() and not any(part.startswith(".") for part in inside.parts)


def rows(path: Path) -> Iterator[Row | RowProblem]:
    """The rows in order. A row that is no JSON is a `RowProblem` and the next ones come all the same. A file of YAML is
    one row.
    """
    if path.suffix in yaml_files.SUFFIXES:
        yield _yaml(path)
        return
    try:
        with path.open("rb") as file:
            first = file.readline(_WHOLE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path} can't be read: {error.strerror}; make it readable") from None
    packed = next((name for begin, name in _PACKED.items() if first.startswith(begin)), "")
    if packed:
        yield RowProblem(str(path), 0, f"packed ({packed}); unpack it, then import what was in it")
        return
    if not _is_json(first) and path.stat().st_size <= _WHOLE_BYTES:
        whole = _whole(path)
        if whole is not None:
            yield from whole
            return
    if _is_json(first) and first.lstrip(_BOM).lstrip().startswith(b"[") and _one_line(path, first):
        yield from _whole(path) or ()
        return
    yield from _lines(path)


def _yaml(path: Path) -> Row | RowProblem:
    if path.stat().st_size > _WHOLE_BYTES:
        return RowProblem(str(path), 0, f"YAML of more than {_WHOLE_BYTES} bytes")
    try:
        return Row(1, yaml_files.decoded(path.read_bytes()))
    except OSError as error:
        raise SettingsError(f"{path} can't be read: {error.strerror}; make it readable") from None
    except Undecodable as error:
        return RowProblem(str(path), 1, str(error))


def _one_line(path: Path, first: bytes) -> bool:
    return path.stat().st_size - len(first) < 3


def _is_json(data: bytes) -> bool:
    try:
        decoded(data)
    except Undecodable:
        return False
    return True


def _lines(path: Path) -> Iterator[Row | RowProblem]:
    with path.open("rb") as file:
        for number, line in enumerate(_bounded(file), 1):
            if len(line) > _WHOLE_BYTES:
                yield RowProblem(str(path), number, f"a line of more than {_WHOLE_BYTES:,} bytes")
                continue
            if not line.strip():
                continue
            try:
                value, flags = decoded(line)
            except Undecodable as error:
                yield RowProblem(str(path), number, str(error))
            else:
                yield Row(number, value, flags, len(line))


def _bounded(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; of one that is too long only so much that it is known for one."""
    while line := file.readline(_WHOLE_BYTES + 1):
        rest = line
        while len(line) > _WHOLE_BYTES and rest and not rest.endswith(b"\n"):
            rest = file.readline(_PIECE_BYTES)
        yield line


def _whole(path: Path) -> list[Row] | None:
    """The rows of a file that is one JSON value: an array's items, or the value itself; None: it is not."""
    try:
        value, flags = decoded(path.read_bytes())
    except Undecodable:
        return None
    if isinstance(value, list) and not (value and _is_message(value[0])):
        return [Row(number, item, flags) for number, item in enumerate(value, 1)]
    return [Row(1, value, flags)]


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value and "kind" not in value


def decoded(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """A JSON value and the flags of what was mended: NaN is null, half an emoji U+FFFD. Raises `Undecodable`."""
    data = data.removeprefix(_BOM)
    try:
        return parsed(data)
    except UnicodeDecodeError as error:
        raise Undecodable(f"not UTF-8 at byte {error.start}; rows are JSON in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"not JSON: {error}") from None
