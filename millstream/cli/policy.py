"""Commands that act on policies: each appends a decision, or asks for one."""

from __future__ import annotations

import click

from millstream.cli.common import emit, json_option, runtime_of
from millstream.policy import Version

lineage_option = click.option("--lineage", metavar="NAME", default="", help="The lineage (default: [policy] lineage).")
reason_option = click.option("--reason", default="by hand", show_default=True, help="Why; kept with the decision.")
quarantined_option = click.option("--quarantined", is_flag=True, help="Even one that learned from recalled evidence.")
VERDICT_NO = 1


def _tell(decided: tuple[str, Version], said: str, as_json: bool) -> None:
    lineage, version = decided
    if as_json:
        emit("policy-decision", {"lineage": lineage, "version": version.version, "stage": version.stage})
    else:
        click.echo(f"version {version.version} of {lineage} {said}")


@click.command()
@click.option("--algorithm", metavar="NAME", default="", help="sft or grpo (default: [trainer] algorithm).")
@lineage_option
@json_option
@click.pass_context
def train(ctx: click.Context, algorithm: str, lineage: str, as_json: bool) -> None:
    """Ask for a training on what the buffer holds now; a running `up` does it."""
    request = runtime_of(ctx).request_training(lineage, algorithm)
    if as_json:
        emit("training-request", {"id": request.id, "parent": request.parent, "rollouts": len(request.rollout_ids)})
    else:
        click.echo(
            f"asked for training {request.id} of version {request.parent} on {len(request.rollout_ids)} rollouts"
        )


@click.command()
@click.argument("version", type=int)
@click.option("--dry-run", is_flag=True, help="Judge and print; decide nothing.")
@lineage_option
@json_option
@click.pass_context
def gate(ctx: click.Context, version: int, dry_run: bool, lineage: str, as_json: bool) -> int:
    """Judge VERSION against the champion on unseen held-out tasks; exit 1 unless it is promoted."""
    judged = runtime_of(ctx).judge(lineage, version, dry_run=dry_run)
    if as_json:
        emit(
            "gate", {"version": version, "verdict": judged.verdict, "reasons": judged.reasons, "table": judged.evidence}
        )
    else:
        click.echo(f"version {version}: {judged.verdict}")
        for reason in judged.reasons:
            click.echo(f"  {reason}")
    return 0 if judged.verdict == "promote" else VERDICT_NO


@click.command()
@click.argument("version", type=int)
@lineage_option
@reason_option
@quarantined_option
@json_option
@click.pass_context
def promote(ctx: click.Context, version: int, lineage: str, reason: str, quarantined: bool, as_json: bool) -> None:
    """Make VERSION the champion by hand."""
    _tell(runtime_of(ctx).promote(lineage, version, reason, quarantined=quarantined), "is the champion now", as_json)


@click.command()
@click.option(
    "--to",
    "version",
    metavar="VERSION",
    type=int,
    help="The version to serve again (default: the last champion that is not quarantined).",
)
@lineage_option
@reason_option
@quarantined_option
@json_option
@click.pass_context
def rollback(
    ctx: click.Context, version: int | None, lineage: str, reason: str, quarantined: bool, as_json: bool
) -> None:
    """Serve an earlier version again; in a running `up`, new runs get it within a second."""
    _tell(runtime_of(ctx).rollback(lineage, version, reason, quarantined=quarantined), "is the champion again", as_json)


@click.command()
@click.argument("version", type=int)
@lineage_option
@reason_option
@json_option
@click.pass_context
def retire(ctx: click.Context, version: int, lineage: str, reason: str, as_json: bool) -> None:
    """Mark VERSION as never to serve again (unless promoted by hand)."""
    _tell(runtime_of(ctx).retire(lineage, version, reason), "is retired", as_json)


@click.command()
@click.argument("version", type=int)
@click.option("--verify", is_flag=True, help="Compare the weights with the registered ones; exit 1 when they differ.")
@lineage_option
@json_option
@click.pass_context
def rebuild(ctx: click.Context, version: int, verify: bool, lineage: str, as_json: bool) -> int:
    """Train VERSION again from its manifest: the same data and, on the same CPU, the same weights."""
    result = runtime_of(ctx).rebuild(lineage, version)
    if as_json:
        emit(
            "rebuild",
            {"version": version, "same": result.same, "folder": str(result.folder), "hash": result.content_hash},
        )
    else:
        click.echo(
            f"version {version} made again in {result.folder}: weights {'the same' if result.same else 'DIFFER'}"
        )
    return VERDICT_NO if verify and not result.same else 0
