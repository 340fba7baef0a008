"""``graders rank``: the runs of each task judged against each other."""

from __future__ import annotations

import click

from millstream.cli.common import emit_items, json_option, limit_option, runtime_of, table

PARTLY = 4


@click.command()
@click.argument("name")
@click.option("--record", is_flag=True, help="Record each run's score as feedback (a formula calls it feedback.NAME).")
@limit_option
@json_option
@click.pass_context
def rank(ctx: click.Context, name: str, record: bool, limit: int | None, as_json: bool) -> int:
    """Let the judge NAME rank the recorded runs of each task, or prefer among every two of them.

    Runs are of one group when task, lineage and policy version are the same. A judge of the kind ranking puts
    up to 16 in order; pairwise and constitution compare every two of up to 8. Exit 4 when a group failed.
    """
    from millstream.bootstrap.ranking import rank as rank_groups

    found = list(rank_groups(runtime_of(ctx), name, limit=limit, record=record))
    if as_json:
        emit_items("grader-ranks", found, None)
    else:
        rows = [
            (group.task, group.version or "–", place.trajectory_id, f"{place.score:.3f}")
            for group in found
            for place in sorted(group.places, key=lambda place: -place.score)
        ]
        table(rows, ("task", "version", "run", "score"))
        for group in found:
            if group.status == "failed":
                click.echo(f"{group.task}: {group.reason}", err=True)
        pairs, cost = sum(len(group.pairs) for group in found), sum(group.cost for group in found)
        click.echo(f"{len(found)} groups, {pairs} preferences, cost {cost:g}{', recorded' if record else ''}")
    return PARTLY if any(group.status == "failed" for group in found) else 0
