"""``graders attack``: whether a grader is fit to teach and to judge."""

from __future__ import annotations

from pathlib import Path

import click

from millstream.cli.common import emit, json_option, runtime_of, table

UNFIT = 1


@click.command()
@click.argument("name")
@click.option(
    "--tasks",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Your own tasks with references, to attack it on (default: the nine that are built in).",
)
@json_option
@click.pass_context
def attack(ctx: click.Context, name: str, tasks: Path | None, as_json: bool) -> int:
    """Show the grader NAME attacks that earn nothing, and say which it pays for; exit 1 when it is unfit.

    What was found is kept: a grader that is weak (pays for an attack) or blind (pays wrong answers) cannot
    be a gate's gold.
    """
    from millstream.bootstrap.examining import attack as examine

    found = examine(runtime_of(ctx), name, tasks)
    unfit = found.verdict in ("weak", "blind")
    if as_json:
        emit("grader-examination", found)
        return UNFIT if unfit else 0
    if found.findings:
        rows = [
            (f.family, f.tried, f"{f.paid} of {f.tasks}", f.escaped, f"{f.excess:+.2f}" if f.paid else "", f.example)
            for f in found.findings
        ]
        table(rows, ("attack", "runs", "tasks paid", "no score", "above fair", "for example"))
    click.echo(f"{found.epoch} is {found.verdict}: {found.reason}")
    return UNFIT if unfit else 0
