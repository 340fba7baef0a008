"""What the commands share: settings, the runtime, options, and printing facts as text or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from millstream.loading import Loaded, load

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.bootstrap import Runtime

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Exactly one JSON document on standard output.")
limit_option = click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), help="At most this many rows (default: all)."
)


def settings_of(ctx: click.Context) -> Loaded:
    """The settings of this invocation."""
    file: Path | None = ctx.find_root().obj
    return load(file)


def runtime_of(ctx: click.Context) -> Runtime:
    """The runtime of this invocation, closed when the command ends."""
    from millstream.bootstrap import Runtime

    return ctx.find_root().with_resource(Runtime(settings_of(ctx)))


def emit(schema: str, document: Any) -> None:
    """Print one JSON document (a mapping or a struct) with its schema; in ASCII where the terminal is no UTF-8."""
    import msgspec

    plain = {"schema": f"millstream.{schema}/1", **msgspec.to_builtins(document)}
    escaped = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(plain, ensure_ascii=escaped, allow_nan=False) + "\n")


def emit_items(schema: str, items: Sequence[Any], limit: int | None) -> None:
    """Print a list as ``{"items": […]}``, complete unless limited."""
    emit(schema, {"items": list(items)[:limit], "total": len(items)})


def table(rows: Iterable[Sequence[object]], head: Sequence[str]) -> None:
    """Print rows in columns, the head first."""
    lines = [[str(cell) for cell in head], *([_word(cell) for cell in row] for row in rows)]
    widths = [min(60, max(len(line[i]) for line in lines)) for i in range(len(head))]
    for line in lines:
        click.echo("  ".join(_clip(cell, w).ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip())


def _word(cell: object) -> str:
    """A cell as people read it: what is not known is a dash, a truth value yes or no."""
    return "–" if cell is None else {True: "yes", False: "no"}[cell] if isinstance(cell, bool) else str(cell)


def _clip(text: str, width: int) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= width else text[: width - 1] + "…"


TERMINAL_S: Final = 0.2
ELSEWHERE_S: Final = 10.0
"""How often long work tells how far it is: on a terminal as a line that moves, elsewhere as one line more."""


class Meter:
    """How far long work is, on standard error; work that is done before the first line is due says nothing. ``words``
    hold ``{done}`` and ``{of}``.
    """

    def __init__(self, words: str, now: Callable[[], float] = time.monotonic) -> None:
        self._words = words
        self._now = now
        self._moves = sys.stderr is not None and sys.stderr.isatty()  # a daemon may have closed it
        self._pause = TERMINAL_S if self._moves else ELSEWHERE_S
        self._next = now() + self._pause
        self._open = False

    def __call__(self, done: int, of: int) -> None:
        """So much is done."""
        if self._now() < self._next:
            return
        self._next = self._now() + self._pause
        self._open = self._moves
        click.echo(
            self._words.format(done=f"{done:,}", of=f"{of:,}") + ("\r" if self._moves else "\n"), err=True, nl=False
        )

    def end(self) -> None:
        """What is printed next gets a line of its own."""
        if self._open:
            click.echo(err=True)
