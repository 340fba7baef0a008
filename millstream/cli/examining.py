"""``graders attack | calibrate``: whether a grader is fit to teach and to judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from millstream.cli.common import emit, json_option, runtime_of, table
from millstream.cli.look import as_of_ms, as_of_option, valid_at_option

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


@click.command()
@click.argument("name")
@click.option("--gold", metavar="GRADER", default="", help="What is right (default: [alarms] gold).")
@click.option(
    "--labels",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Human labels in place of a gold grader: rows {trajectory_id, label or value}.",
)
@click.option("--with", "others", metavar="NAMES", default="", help="More graders, to be one judge with NAME.")
@click.option("--cut", type=float, default=0.5, show_default=True, help="From which score on it is a pass.")
@click.option("--by-label", is_flag=True, help="Compare the labels of the grades, not pass and fail.")
@click.option("--risk", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.1, show_default=True,
              help="The error that is allowed where it judges.")  # fmt: skip
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
              show_default=True, help="How sure to be that it is kept.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Raise no alarm when the agreement has drifted.")
@as_of_option
@valid_at_option
@json_option
@click.pass_context
def calibrate(ctx: click.Context, /, name: str, labels: Path | None, as_json: bool, **options: Any) -> None:
    """Compare the grader NAME with gold on the runs that have both: agreement, kappa, class by class.

    Says where it should abstain so that its error stays within the risk, what several judges are worth
    together, and whether the agreement has drifted over time, which is an alarm (a look back raises none).
    """
    from millstream.bootstrap.examining import calibrated
    from millstream.console import calibration as console

    runtime = runtime_of(ctx)
    wanted = console.Wanted(
        graders=(name, *console.names(options["others"])),
        gold=options["gold"] or runtime.plans[0].alarms.gold,
        cut=options["cut"],
        labels=options["by_label"],
        risk=options["risk"],
        confidence=options["confidence"],
    )
    times = as_of_ms(options["as_of"]), as_of_ms(options["valid_at"], "--valid-at")
    found, alarm = calibrated(runtime, wanted, labels, times, dry_run=options["dry_run"])
    if as_json:
        emit("grader-calibration", {**msgspec.to_builtins(found), "alarm": alarm.id if alarm else None})
        return
    click.echo(console.render(found))
    if alarm:
        click.echo(f"alarm {alarm.id} is raised: `millstream alarms show {alarm.id}`")
