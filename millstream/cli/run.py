"""``up`` and ``import``: what moves events."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from millstream.cli.common import Meter, emit, json_option, runtime_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.capture.importers.reading import RowProblem
    from millstream.ports import Gap

PARTLY = 4


def in_few_lines(problems: Iterable[RowProblem]) -> Iterator[str]:
    """Lines that tell the problems; rows of a file that follow each other and have the same reason share one."""
    first: RowProblem | None = None
    last = 0
    for problem in problems:
        if first and (first.file, first.reason, last + 1) == (problem.file, problem.reason, problem.row):
            last = problem.row
            continue
        if first:
            yield _rows(first, last)
        first, last = problem, problem.row
    if first:
        yield _rows(first, last)


def _rows(first: RowProblem, last: int) -> str:
    return str(first) if last == first.row else f"{first.file}: rows {first.row} to {last}: {first.reason}"


@click.command()
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do, ignoring pending timers.")
@click.option("--close-open", is_flag=True, help="Seal open runs and close open groups now, as if their timers fired.")
@click.option(
    "--accept-loss", is_flag=True, help="Go on without records that can't be read any more; audit lists them."
)
@json_option
@click.pass_context
def up(ctx: click.Context, until_idle: bool, close_open: bool, accept_loss: bool, as_json: bool) -> None:
    """Run every stage in this process: assemble, grade, buffer, trigger, train and judge.

    Any number of agents and imports may write beside it; a second `up` on the same data is refused.
    """
    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    pipeline = runtime_of(ctx).pipeline()
    if accept_loss:
        for gap in pipeline.accept_loss():
            _tell_loss(gap)
    click.echo(pipeline.describe(), err=True)
    totals = pipeline.run(stop, until_idle=until_idle, close_open=close_open)
    if as_json:
        emit("up", {"records": totals, "open": pipeline.left_open()})
        return
    click.echo("; ".join(f"{stage} {count}" for stage, count in totals.items()) + " records", err=True)
    if told := _left_open(**pipeline.left_open()):
        click.echo(told, err=True)


def _left_open(trajectories: int, groups: int) -> str:
    """What an `up` that ended leaves for the next, and what to do about it; '' for nothing."""
    what = [
        f"{count} {one if count == 1 else many} open ({why})"
        for count, one, many, why in (
            (trajectories, "run is", "runs are", "not ended, or [assembly] grace_s is not over"),
            (groups, "group of rollouts is", "groups of rollouts are", "[buffer] group_timeout_s"),
        )
        if count
    ]
    mend = "left for the next `millstream up`; `millstream up --until-idle --close-open` closes what is open now"
    return f"{'; '.join(what)}: {mend}" if what else ""


@click.command()
@click.argument(
    "stage", metavar="STAGE", type=click.Choice(["assemble", "grade", "buffer", "trigger", "train", "gate"])
)
@click.option(
    "--instance",
    metavar="NAME",
    default="",
    help="Who this worker is in its group, the same after a restart (default: the host and a number).",
)
@click.option(
    "--accept-loss", is_flag=True, help="Go on without records that can't be read any more; audit lists them."
)
@click.pass_context
def worker(ctx: click.Context, stage: str, instance: str, accept_loss: bool) -> None:
    """Run one stage (assemble, grade, buffer, trigger, train or gate) on Kafka until SIGTERM.

    Of `buffer`, `trigger`, `train` and `gate` one works and the others stand by.
    """
    from millstream.bootstrap.workers import run_worker

    click.echo(f"running {stage}", err=True)
    moved = run_worker(runtime_of(ctx), stage, instance=instance, accept_loss=_tell_loss if accept_loss else None)
    click.echo(f"{stage} {moved} records", err=True)


def _tell_loss(gap: Gap) -> None:
    lost = f"{gap.topic}:{gap.partition} {gap.first} to {gap.end}"
    click.echo(f"accepted the loss of {lost} by {gap.stage}: {gap.reason}", err=True)


@click.command(name="import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "kind", metavar="NAME", default="auto", help="auto, or a format's name (see docs/events.md).")
@click.option(
    "--lineage", metavar="NAME", default="", help="The lineage the runs belong to (default: what the file says)."
)
@click.option("--dry-run", is_flag=True, help="Say what would be imported; write nothing.")
@json_option
@click.pass_context
def import_(ctx: click.Context, paths: tuple[Path, ...], kind: str, lineage: str, dry_run: bool, as_json: bool) -> int:
    """Bring runs in from files; importing the same file twice changes nothing.

    A bad row is reported with its file and row, and the rest goes in (exit 4).
    """
    runtime = runtime_of(ctx)
    meter = Meter("read {done} of {of} bytes")
    result = runtime.import_files(list(paths), kind=kind, lineage=lineage, dry_run=dry_run, progress=meter)
    meter.end()
    for line in in_few_lines(result.problems):
        click.echo(line, err=True)
    if as_json:
        emit("import", {**msgspec.to_builtins(result), "dry_run": dry_run})
    else:
        told = "would import" if dry_run else "imported"
        runs = f"{result.trajectories} run{'' if result.trajectories == 1 else 's'}"
        click.echo(f"{told} {runs}, {result.events} events; {len(result.problems)} bad rows")
        if result.redacted:
            click.echo("taken out: " + ", ".join(f"{number} {kind}" for kind, number in result.redacted.items()))
    return PARTLY if result.problems else 0
