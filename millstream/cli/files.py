"""``assemble FILE`` and ``grade FILE``: the pure stages on files, NDJSON in, NDJSON out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click

from millstream.cli.common import settings_of

PARTLY = 4


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--close-open", is_flag=True, help="At the end of the file, seal what is still open.")
@click.pass_context
def assemble(ctx: click.Context, file: BinaryIO, close_open: bool) -> int:
    """Assemble the events of FILE (`-`: standard input) into trajectories, one a line.

    Lines that are no events are reported on standard error (exit 4); the rest goes on.
    """
    from millstream.streams.files import assemble_file

    bad = 0
    for kind, line in assemble_file(file, settings_of(ctx).settings.assembly, close_open=close_open):
        if kind == "dead":
            bad += 1
            click.echo(line, err=True)
        else:
            sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
    return PARTLY if bad else 0


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--grader", metavar="NAME", required=True, help="A built-in (numeric, exact, contains, …) or one of yours."
)
@click.option("--tasks", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Tasks with references.")
@click.pass_context
def grade(ctx: click.Context, file: BinaryIO, grader: str, tasks: Path | None) -> int:
    """Grade the rows of FILE (`-`: standard input): {"id", "answer"} against --tasks, or trajectories.

    Prints one {"id", "status", "score", "reason"} a row. A row that cannot be read is reported with its
    line, and the rest goes on (exit 4).
    """
    import msgspec

    from millstream.bootstrap import grader_named
    from millstream.graders.files import Problem, grade_lines, read_tasks

    known = read_tasks(tasks.read_bytes(), tasks.name) if tasks else {}
    bad = 0
    with grader_named(settings_of(ctx), grader) as function:
        for row in grade_lines(file, function, known):
            if isinstance(row, Problem):
                bad += 1
                click.echo(f"{file.name}, line {row.line}: {row.reason}", err=True)
            else:
                sys.stdout.buffer.write(msgspec.json.encode(row) + b"\n")
    sys.stdout.buffer.flush()
    return PARTLY if bad else 0
