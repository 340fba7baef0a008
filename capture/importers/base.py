"""Importing: paths in, records for ``telemetry`` out, with a `RowProblem` for every row that is none.

A trajectory's id is a hash of its row (and of how often the same row came before it in the file, and of
the lineage it is imported for), an event's of its trajectory and number: a second import is all
duplicates. Records carry the header ``import``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from millstream import settings
from millstream.capture import otlp
from millstream.capture.edge import Edge
from millstream.capture.importers import ndjson, otlp_files
from millstream.capture.importers.chat import events
from millstream.capture.importers.formats import FORMATS, Format, format_of
from millstream.capture.importers.reading import Row, RowProblem, files, rows
from millstream.capture.raw import RawEdge
from millstream.capture.shared import Shared
from millstream.capture.shipping import HEADERS, Line, by_partition, messages
from millstream.codec import digest
from millstream.errors import EventError, SettingsError, Undecodable, nearest
from millstream.events import AnyEvent, Split, TrajectoryId
from millstream.ndjson import filled
from millstream.ports import Log, Message
from millstream.topics import TELEMETRY

_HEADERS = {**HEADERS, "import": "1"}
_APPEND_BYTES = 4_000_000
_DEEP = "JSON nested too deeply: flatten it"


class Options(Struct, frozen=True, kw_only=True):
    """How to import: ``lineage`` and ``split`` stand where given, else what the row says, else none and train."""

    format: str = "auto"
    lineage: str = ""
    split: Split | None = None
    capture: settings.Capture = settings.Capture()


class Imported(Struct, kw_only=True):
    """What an import did, or on a dry run would do."""

    files: int = 0
    trajectories: int = 0
    events: int = 0
    records: int = 0
    bytes: int = 0
    redacted: dict[str, int] = msgspec.field(default_factory=dict)
    problems: list[RowProblem] = msgspec.field(default_factory=list)


def import_paths(
    paths: Sequence[Path],
    options: Options = Options(),  # noqa: B008 - frozen
    shared: Shared | None = None,
    on_read: Callable[[int], None] = lambda _: None,
) -> Iterator[Message | RowProblem]:
    """Records, each of one trajectory, and problems, in the order of the files. ``on_read`` is told the bytes that
    were read since it was last told.

    Raises `SettingsError` for a path that is not there or a format that is unknown, before the first record.
    """
    if options.format not in FORMATS:
        raise SettingsError(f"unknown import format {options.format!r}{nearest(options.format, list(FORMATS))}")
    return _imported(files(list(paths)), options, shared or Shared(), on_read)


def import_into(
    log: Log,
    paths: Sequence[Path],
    options: Options = Options(),  # noqa: B008 - frozen
    *,
    dry_run: bool = False,
    shared: Shared | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Imported:
    """Import into ``telemetry`` and count; with ``dry_run`` count only. ``progress`` is told (bytes read, of how many).
    Raises `SettingsError`, `Unavailable`.
    """
    listed = files(list(paths))
    result = Imported(files=len(listed))
    done, of = 0, sum(path.stat().st_size for path in listed)

    def on_read(count: int) -> None:
        nonlocal done
        done += count
        progress(done, of)

    known: set[str] = set()
    held: dict[tuple[tuple[str, str], ...], list[Line]] = {}
    size = 0
    shared = Shared() if shared is None or dry_run else shared
    for item in import_paths(paths, options, shared, on_read):
        if isinstance(item, RowProblem):
            result.problems.append(item)
            continue
        lines = [(item.key, line) for line in filled(item.value)]
        known.add(item.key)
        result.events += len(lines)
        held.setdefault(tuple(sorted(item.headers.items())), []).extend(lines)
        size += len(item.value or b"")
        if size >= _APPEND_BYTES:
            _append(log, held, result, dry_run=dry_run)
            held, size = {}, 0
    _append(log, held, result, dry_run=dry_run)
    result.trajectories = len(known)
    result.redacted = shared.tally.counts
    return result


def _append(
    log: Log, held: Mapping[tuple[tuple[str, str], ...], Iterable[Line]], result: Imported, *, dry_run: bool
) -> None:
    """Append lines, by the headers of their records."""
    for headers, lines in held.items():
        for partition, part in by_partition(lines, log.partitions(TELEMETRY.name)).items():
            made = list(messages(part, dict(headers)))
            if not dry_run:
                log.append(TELEMETRY.name, made, partition)
            result.records += len(made)
            result.bytes += sum(len(message.value or b"") for message in made)


def _imported(
    paths: list[Path], options: Options, shared: Shared, on_read: Callable[[int], None]
) -> Iterator[Message | RowProblem]:
    for path in paths:
        file = _File(path, options, shared, on_read)
        yield from file.read()
        on_read(path.stat().st_size - file.told)


class _File:
    """One file: what its rows share, counted first, and its rows turned into records."""

    def __init__(self, path: Path, options: Options, shared: Shared, on_read: Callable[[int], None]) -> None:
        self._path, self._options = path, options
        self.told, self._on_read = 0, on_read
        self._edge, self._raw_edge = Edge(options.capture, shared), RawEdge(options.capture, shared)
        self._sizes: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._same: Counter[str] = Counter()
        for row in rows(path):
            if isinstance(row, Row) and not (ndjson.is_event(row.value) or otlp_files.is_otlp(row.value)):
                self._count(row.value)

    def _count(self, value: Any) -> None:
        try:
            form = format_of(value, self._options.format)
            parts = form.parts(value) if form else []
            self._sizes.update(form.group_key(part) for part in parts if form)
        except (EventError, RecursionError):
            return

    def read(self) -> Iterator[Message | RowProblem]:
        """Records and problems, in order."""
        held: list[Line] = []
        for row in rows(self._path):
            if isinstance(row, RowProblem):
                yield row
                continue
            self.told += row.size
            self._on_read(row.size)
            if self._options.format in ("auto", "otlp") and otlp_files.is_otlp(row.value):
                yield from self._spans(row)
                continue
            for made in self._told(row):
                if isinstance(made, EventError):
                    yield RowProblem(str(self._path), row.number, str(made))
                    continue
                lines = [(event.trajectory_id, self._edge.encode(event)) for event in made]
                if held and held[-1][0] != lines[0][0]:
                    yield from messages(held, _HEADERS)
                    held = []
                held += lines
        yield from messages(held, _HEADERS)

    def _spans(self, row: Row) -> Iterator[Message | RowProblem]:
        """The spans of a row, as they are told; what can become no trajectory is kept and reported."""
        for signal, part in otlp_files.parts(row.value, self._raw_edge):
            if isinstance(part, otlp.Refused):
                yield RowProblem(str(self._path), row.number, part.reason)
                continue
            if part.problem:
                yield RowProblem(str(self._path), row.number, f"kept as a dead letter: {part.problem}")
            headers = {**otlp.headers(signal, self._options.capture), "import": "1"}
            yield from messages([(part.key, part.line)], headers)

    def _told(self, row: Row) -> Iterator[list[AnyEvent] | EventError]:
        """The events of each run of a row, or why it is none."""
        wanted = self._options.format
        try:
            if wanted in ("auto", "millstream") and ndjson.is_event(row.value):
                yield [ndjson.event(row.value)]
                return
            form = format_of(row.value, wanted)
            if form is None:
                raise Undecodable(_unlike(row.value, wanted))
            parts = form.parts(row.value)
        except EventError as error:
            yield error
            return
        except RecursionError:
            yield Undecodable(_DEEP)
            return
        for number, part in enumerate(parts, 1):
            try:
                yield self._run(form, part, row.flags)
            except EventError as error:
                yield Undecodable(f"run {number} of {len(parts)}: {error}") if len(parts) > 1 else error
            except RecursionError:
                yield Undecodable(f"run {number} of {len(parts)}: {_DEEP}" if len(parts) > 1 else _DEEP)

    def _run(self, form: Format, part: Any, flags: tuple[str, ...]) -> list[AnyEvent]:
        key = form.group_key(part)
        run = form.run(part, self._seen[key] if key else 0, self._sizes[key] if key else 1)
        run.lineage = self._options.lineage or run.lineage
        run.split = self._options.split or run.split
        run.flags = (*run.flags, *flags)
        content = digest(msgspec.json.encode(part, order="sorted"))
        made = events(run, TrajectoryId(digest("imported run", run.lineage, content, self._same[content])))
        self._same[content] += 1
        self._seen[key] += 1
        return made


def _unlike(value: Any, wanted: str) -> str:
    keys = f"with {', '.join(sorted(map(str, value))[:8])}" if isinstance(value, dict) else type(value).__name__
    if isinstance(value, dict) and isinstance(value.get("messages"), str | int | float | dict):
        return f"messages is of type {type(value['messages']).__name__}; it must be a list of chat messages"
    known = "an event (kind, trajectory_id), a chat run (messages) or a run of another format of docs/events.md"
    return f"a row {keys} is not {known if wanted == 'auto' else f'of the format {wanted}'}"
