"""Commands that read: lists, single items, explanations, the books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from millstream.cli.common import emit, emit_items, json_option, limit_option, runtime_of, table
from millstream.errors import SettingsError

as_of_option = click.option("--as-of", "as_of", metavar="TIME", help="As the log stood at an ISO time.")

valid_at_option = click.option(
    "--valid-at", "valid_at", metavar="TIME", help="What held at an ISO time, whenever it became known."
)

Rows = Callable[..., Sequence[Any]]
"""From the runtime and log times (``as_of_ms``; ``valid_at_ms`` where a listing has it) to the rows."""
PARTLY = 4


def as_of_ms(text: str | None, option: str = "--as-of") -> int | None:
    """Milliseconds of an ISO time (local where no zone is given), or None."""
    from datetime import datetime

    if text is None:
        return None
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise SettingsError(
            f"{option} {text!r} is no ISO time; write 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        ) from None


def listing(
    name: str,
    one: str,
    summary: str,
    rows: Rows,
    find: Rows,
    columns: Sequence[str],
    *,
    valid: bool = False,
) -> click.Group:
    """A group with ``list`` and ``show ID``, both with ``--json`` and ``--as-of``, and ``--valid-at`` where the
    rows have a time at which they hold (``valid``).
    """
    times_options = (lambda f: as_of_option(valid_at_option(f))) if valid else as_of_option

    @click.group(name=name, help=summary)
    def group() -> None: ...

    @group.command("list", help="One line each.")
    @json_option
    @limit_option
    @times_options
    @click.pass_context
    def show_all(ctx: click.Context, /, as_json: bool, limit: int | None, **at: str | None) -> None:
        found = [_plain(row) for row in rows(runtime_of(ctx), **_times(at))]
        if as_json:
            emit_items(name, found, limit)
        else:
            table(([_cell(row.get(c, "")) for c in columns] for row in found[:limit]), columns)
            click.echo(f"{len(found)} {one if len(found) == 1 else name}", err=True)

    @group.command("show", help="One item, whole.")
    @click.argument("item_id", metavar="ID")
    @json_option
    @times_options
    @click.pass_context
    def show_one(ctx: click.Context, /, item_id: str, as_json: bool, **at: str | None) -> None:
        import json

        wanted = [row for row in find(runtime_of(ctx), **_times(at)) if item_id in _ids(row)]
        if not wanted:
            raise SettingsError(f"no {name} with id {item_id!r}; `millstream {name} list` shows what is there")
        if as_json and len(wanted) > 1:
            raise SettingsError(f"{len(wanted)} {name} have {item_id!r}; name one of {_own_ids(wanted)}")
        for row in wanted:
            emit(one, _whole(row)) if as_json else click.echo(json.dumps(_whole(row), indent=2, ensure_ascii=False))

    return group


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _times(at: dict[str, str | None]) -> dict[str, int | None]:
    """The times of a read, by the parameters of the functions that read."""
    return {f"{name}_ms": as_of_ms(text, f"--{name.replace('_', '-')}") for name, text in at.items()}


def _plain(row: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(row)


def _whole(row: Any) -> dict[str, Any]:
    """As JSON, with the fields that have their defaults (`status` of a trajectory, say)."""
    every = {name: _plain(getattr(row, name)) for name in getattr(row, "__struct_fields__", ())}
    return {**every, **_plain(row)}


def _ids(row: Any) -> set[str]:
    """What `show` finds a row by: its own ids, its version (also as LINEAGE/VERSION), its trajectory's id."""
    plain = row if isinstance(row, dict) else {name: getattr(row, name) for name in row.__struct_fields__}
    found = {str(plain[n]) for n in ("id", "trajectory_id", "rollout_id") if plain.get(n)}
    if "stage" in plain:
        found |= {str(plain["version"]), f"{plain['lineage']}/{plain['version']}"}
    return found


def _own_ids(rows: Sequence[Any]) -> str:
    return ", ".join(
        row.get("id") or max(_ids(row), key=len) if isinstance(row, dict) else getattr(row, "id", "") or row.rollout_id
        for row in rows
    )


def _catalog(function: str) -> Rows:
    def rows(runtime: Any, **at: int | None) -> Sequence[Any]:
        from millstream.console import catalog, decided, graded

        home = next(home for home in (decided, graded, catalog) if hasattr(home, function))
        found: Sequence[Any] = getattr(home, function)(runtime.log, **at)
        return found

    return rows


trajectories = listing(
    "trajectories",
    "trajectory",
    "Sealed runs: the highest revision of each.",
    _catalog("trajectories"),
    _catalog("whole_trajectories"),
    ("id", "revision", "status", "reason", "events", "task_id", "attempt", "policy_version"),
)
grades = listing(
    "grades",
    "grade",
    "Every grade with its kind and reason, its epoch, and whether it is the one that counts.",
    _catalog("grade_rows"),
    _catalog("whole_grades"),
    ("trajectory_id", "grader", "status", "score", "reason", "epoch", "counts"),
    valid=True,
)
rollouts = listing(
    "rollouts",
    "rollout",
    "What the buffer decided of each rollout, and why.",
    _catalog("rollout_rows"),
    _catalog("rollout_rows"),
    ("trajectory_id", "decision", "reason", "detail", "reward", "advantage", "group", "epochs"),
)
trainings = listing(
    "trainings",
    "training",
    "Fine-tunes, from request to result.",
    _catalog("training_rows"),
    _catalog("training_rows"),
    ("id", "lineage", "parent", "state", "rollouts", "version", "reason"),
)
policies = listing(
    "policies",
    "policy",
    "Policy versions; one of each lineage is the champion.",
    _catalog("policy_rows"),
    _catalog("policy_rows"),
    ("lineage", "version", "stage", "parent", "verdict", "training_id"),
)


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Topics, stages and how far they have read, the buffer, trainings and champions."""
    from millstream.console import status as console

    found = runtime_of(ctx).status()
    emit("status", _plain(found)) if as_json else click.echo(console.render(found))


@click.command()
@click.option("--grader", metavar="NAME", default="", help="Only this grader.")
@json_option
@as_of_option
@valid_at_option
@click.pass_context
def baseline(ctx: click.Context, grader: str, as_json: bool, as_of: str | None, valid_at: str | None) -> None:
    """How well the recorded runs did: by policy version and grader, then by task family of the current policy.

    A family that the policy always fails or always solves teaches it nothing and is left out of trainings.
    """
    from millstream.console import baseline as console
    from millstream.console import families

    runtime = runtime_of(ctx)
    times = as_of_ms(as_of), as_of_ms(valid_at, "--valid-at")
    rows = console.baseline(runtime.log, grader, *times)
    asked = [families.Asked(plan.lineage, plan.reward, plan.trigger.learnable_runs) for plan in runtime.plans]
    found = families.families(runtime.log, asked, *times)
    if as_json:
        emit("baseline", {"items": rows, "total": len(rows), "families": found})
        return
    click.echo(console.render(rows))
    if found:
        click.echo(f"\n{families.render(found)}")


@click.command()
@click.argument("version", type=int)
@click.option("--lineage", metavar="NAME", default="", help="The lineage (default: [policy] lineage).")
@json_option
@click.pass_context
def why(ctx: click.Context, version: int, lineage: str, as_json: bool) -> None:
    """Everything that made VERSION what it is: runs, grades, buffer decisions, training, gate, service."""
    from millstream.console import why as console
    from millstream.console import why_text

    runtime = runtime_of(ctx)
    found = console.why(runtime.log, version, lineage or runtime.plans[0].lineage)
    emit("why", _plain(found)) if as_json else click.echo(why_text.render(found))


@click.command(name="who-was-live")
@click.option("--at", "at", required=True, metavar="TIME", help="An ISO time.")
@json_option
@click.pass_context
def who_was_live(ctx: click.Context, at: str, as_json: bool) -> None:
    """Which version of each lineage served at a time, since when, and by whose decision."""
    from millstream.console import live as console

    lines = console.who_was_live(runtime_of(ctx).log, as_of_ms(at, "--at") or 0)
    emit_items("who-was-live", lines, None) if as_json else click.echo(console.render(lines))


@click.command()
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=float,
    default=0.0,
    help="Wait so many seconds for the stages to catch up.",
)
@json_option
@click.pass_context
def audit(ctx: click.Context, wait_s: float, as_json: bool) -> int:
    """Do the books: each event, trajectory, grade and rollout onward to where it ended; exit 1 when they differ."""
    from millstream.console.audit import audit as console

    runtime = runtime_of(ctx)
    found = console(runtime.log, runtime.store, runtime.loaded.settings, wait_s=wait_s)
    if as_json:
        emit("audit", _plain(found))
    else:
        for line in found.lines:
            click.echo(f"{line.section:13} {line.count:>9,} {line.name}")
        for difference in found.differences:
            click.echo(f"DIFFERENCE    {difference.kind}: {difference.id}: {difference.detail}")
        for gap in found.gaps:
            click.echo(f"accepted loss {gap.topic}:{gap.partition} {gap.first} to {gap.end - 1}")
        if not found.caught_up:
            behind = ", ".join(f"{stage} {count}" for stage, count in found.lag.items())
            click.echo(f"not caught up: {behind} records to read")
        click.echo("balanced" if found.balanced else "NOT balanced")
    return int(not found.balanced)


@click.group(name="dead-letters")
def dead_letters() -> None:
    """Events that could not be used, with where they came from and why."""


@dead_letters.command("list")
@click.option("--reason", metavar="WORD", default="", help="Only those whose reason begins so.")
@json_option
@limit_option
@click.pass_context
def dead_list(ctx: click.Context, reason: str, as_json: bool, limit: int | None) -> None:
    """One line each, oldest first."""
    from millstream.console import dead_letters as console
    from millstream.console.times import iso

    rows = [_plain(row) for row in console.rows(runtime_of(ctx).log, reason=reason)]
    if as_json:
        emit_items("dead-letters", rows, limit)
    elif rows:
        told = ({**row, "log_ms": iso(row["log_ms"])} for row in rows[:limit])
        table((tuple(row.values()) for row in told), ["at" if name == "log_ms" else name for name in rows[0]])
    click.echo(f"{len(rows)} dead letter{'' if len(rows) == 1 else 's'}", err=True)


@dead_letters.command("show")
@click.argument("identity", metavar="ID")
@json_option
@click.pass_context
def dead_show(ctx: click.Context, identity: str, as_json: bool) -> None:
    """One of them whole, its original included."""
    import json

    from millstream.console import dead_letters as console

    found = _plain(console.show(runtime_of(ctx).log, identity))
    emit("dead-letter", found) if as_json else click.echo(json.dumps(found, indent=2, ensure_ascii=False))


@dead_letters.command("replay")
@click.argument("identities", metavar="[ID]...", nargs=-1)
@click.option("--reason", metavar="WORD", default="", help="All of those whose reason begins so.")
@click.option("--dry-run", is_flag=True, help="Say what would be replayed; write nothing.")
@json_option
@click.pass_context
def dead_replay(ctx: click.Context, identities: tuple[str, ...], reason: str, dry_run: bool, as_json: bool) -> int:
    """Put originals back into telemetry: after an upgrade that reads them, or because they were only late.

    What was replayed before is left out. Those that can't be are told (exit 4).
    """
    from millstream.console import dead_letters as console
    from millstream.streams.replaying import replay

    if bool(identities) == bool(reason):
        raise SettingsError("name dead letters by their ids, or all of a kind by --reason")
    log = runtime_of(ctx).log
    found = replay(log, console.chosen(log, identities, reason), dry_run=dry_run)
    for identity, why in found.problems:
        click.echo(f"{identity}: {why}", err=True)
    if as_json:
        emit("dead-letters-replay", {**_plain(found), "dry_run": dry_run})
    else:
        told = "would replay" if dry_run else "replayed"
        click.echo(f"{told} {found.replayed}; {found.already} were replayed before; {len(found.problems)} can't be")
    return PARTLY if found.problems else 0
