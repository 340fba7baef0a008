"""Commands that change what counts as evidence: ``regrade``, ``recall`` and ``replay``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from millstream.cli.common import Meter, emit, json_option, runtime_of
from millstream.cli.look import as_of_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.bootstrap.evidence import Preview
    from millstream.streams.remapping import Remapped

SHOWN = 20
"""How many changed trajectories are named for people."""


@click.command()
@click.option("--grader", metavar="NAME", required=True, help="The grader, as the settings have it now.")
@click.option("--since", metavar="TIME", help="Only runs sealed at an ISO time or later.")
@click.option("--diff", "only_diff", is_flag=True, help="Say what would change; append nothing.")
@json_option
@click.pass_context
def regrade(ctx: click.Context, grader: str, since: str | None, only_diff: bool, as_json: bool) -> None:
    """Grade recorded runs again: new grades are appended beside the old, which stay.

    Graded are the runs whose standing grade is of another epoch of the grader, failed or was recalled. Their
    rewards follow, and a running `up` (or the next one) takes their rollouts out of the buffer and admits
    them anew. Interrupted, it goes on where it stopped.

    --diff grades without appending: which rewards flip, which rollouts in the buffer and which versions rest
    on them, and which of the gate's decisions would have been others.
    """
    from millstream.bootstrap.evidence import preview, regrading, running
    from millstream.console.tables import tally_words

    runtime = runtime_of(ctx)
    with regrading(runtime, grader, as_of_ms(since, "--since") or 0) as work:
        if only_diff:
            _tell_diff(preview(runtime, work, _progress), as_json)
            return
        report = work.append(_progress)
    if pid := running(runtime):
        click.echo(
            f"`up` (pid {pid}) grades new runs by {grader} as it was when it began: start it again if that has changed",
            err=True,
        )
    if as_json:
        emit("regrade", report)
        return
    click.echo(f"{report.epoch}: {report.regraded} of {report.runs} runs regraded: {tally_words(report.grades)}")
    if report.standing:
        click.echo(f"{report.standing} stand: their grade is of this epoch already")
    if report.unreadable:
        click.echo(f"{report.unreadable} runs could not be read")


@click.command()
@click.argument("target", metavar="GRADER|TRAJECTORY")
@click.option("--epoch", "epochs", metavar="EPOCH", multiple=True, help="Only this epoch of the grader (repeatable).")
@click.option("--since", metavar="TIME", help="Only grades known at an ISO time or later.")
@click.option("--until", metavar="TIME", help="Only grades known before an ISO time (default: from now on as well).")
@click.option("--trajectory", "run", is_flag=True, help="The name is a run's, though a grader has it, too.")
@click.option("--reason", default="", help="Why; kept with the recall.")
@click.option("--dry-run", is_flag=True, help="Say what rests on it; take nothing back.")
@click.option("--undo", is_flag=True, help="The name is a recall's id: it was a mistake, let it go.")
@json_option
@click.pass_context
def recall(  # noqa: PLR0913 — one parameter an option
    ctx: click.Context,
    *,
    target: str,
    epochs: tuple[str, ...],
    since: str | None,
    until: str | None,
    run: bool,
    reason: str,
    dry_run: bool,
    undo: bool,
    as_json: bool,
) -> None:
    """Take back what a bad grader, or one run, put into training.

    Its grades stay in the log but are no rewards any more: a running `up` (or the next one) takes the rollouts
    out of the buffer, and every version that learned from them, itself or through its parent, is quarantined.
    The champion goes on serving until you roll back; what would mend it is said.
    """
    from millstream.bootstrap import evidence
    from millstream.console import recalled

    runtime = runtime_of(ctx)
    if undo:
        evidence.undo(runtime, target, reason)
        emit("recall-undone", {"id": target}) if as_json else click.echo(f"recall {target} is undone")
        return
    span = (as_of_ms(since, "--since") or 0, as_of_ms(until, "--until") or 0)
    named = evidence.recall_target(runtime.log, target, epochs, span, run=run)
    found = evidence.recall(runtime, named, reason, dry_run=dry_run)
    if as_json:
        emit("recall", found)
        return
    rests = recalled.RestsOn(grades=found.grades, impact=found.impact)
    click.echo(recalled.render(named.words, rests, found.mends, written=found.written, stood=found.stood))
    if found.written:
        click.echo(f"  → if it was a mistake: `millstream recall --undo {found.id}`")


@click.command()
@click.option(
    "--from", "source", type=click.Choice(["telemetry"]), default="telemetry", show_default=True, help="What is read."
)
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@json_option
@click.pass_context
def replay(ctx: click.Context, source: str, dry_run: bool, as_json: bool) -> None:  # noqa: ARG001 — there is one source
    """Read history again, by the mapping and the settings of now: after an upgrade that reads a dialect better.

    A trajectory that is another one now gets its next revision, is graded again by a running `up` (or the next
    one), and its rollout follows; all else stays. Interrupted, run it again: it does what is left.
    """
    import msgspec

    from millstream.bootstrap.replaying import replay as run

    meter = Meter("read {done} of {of} records")
    found = run(runtime_of(ctx), meter, dry_run=dry_run)
    meter.end()
    if as_json:
        emit("replay", {**msgspec.to_builtins(found), "dry_run": dry_run})
        return
    click.echo("\n".join(_replayed(found, dry_run=dry_run)))


def _replayed(found: Remapped, *, dry_run: bool) -> Iterator[str]:
    for change in found.changed[:SHOWN]:
        was, now = change.before, change.after
        old = (
            f"revision {was.revision}, {was.status}, {was.events} events (mapping {was.mapping_epoch})" if was else "-"
        )
        yield f"{change.trajectory_id}: {old} → revision {now.revision}, {now.status}, {now.events} events"
    if len(found.changed) > SHOWN:
        yield f"and {len(found.changed) - SHOWN} more (--json names all)"
    told = "would change" if dry_run else "changed"
    yield (
        f"mapping {found.mapping_epoch}: {len(found.changed)} trajectories {told}, {found.unchanged} stay as they are, "
        f"in {found.records} records"
    )
    if found.dead_letters or found.feedback:
        yield f"new: {found.dead_letters} dead letters, {found.feedback} pieces of feedback"
    if found.kept:
        yield f"{found.kept} began before what telemetry holds and can't be read again"
    if found.untold:
        yield f"{found.untold} are not told by this mapping (or not yet); they stay as they are"


def _tell_diff(found: Preview, as_json: bool) -> None:
    import msgspec

    from millstream.console.regrade_diff import render

    if as_json:
        gates = [{**msgspec.to_builtins(gate), "otherwise": gate.otherwise} for gate in found.gates]
        emit("regrade-diff", {**msgspec.to_builtins(found.diff), "gates": gates})
        return
    click.echo(render(found.diff))
    for gate in found.gates:
        who = f"gate of version {gate.version} of {gate.lineage} against {gate.champion}, gold {gate.gold_epoch or '?'}"
        would = "can't be told" if gate.would is None else f"{gate.would}{' INSTEAD' if gate.otherwise else ' as well'}"
        click.echo(f"{who}: was {gate.verdict}, would be: {would} ({gate.reason})")


def _progress(done: int, of: int) -> None:
    """A line that moves, on standard error."""
    end = "\r" if done < of and sys.stderr.isatty() else "\n"
    click.echo(f"regraded {done:,} of {of:,}{end}", err=True, nl=False)
