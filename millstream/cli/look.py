"""Commands that read: lists, single items, explanations, the books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from millstream.cli.common import emit, emit_items, json_option, limit_option, runtime_of, table
from millstream.errors import SettingsError

as_of_option = click.option("--as-of", "as_of", metavar="TIME", help="As the log stood at an ISO time.")

Rows = Callable[[Any, int | None], Sequence[Any]]


def as_of_ms(text: str | None) -> int | None:
    """Milliseconds of an ISO time (local where no zone is given), or None."""
    from datetime import datetime

    if text is None:
        return None
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise SettingsError(
            f"--as-of {text!r} is no ISO time; write 2026-01-31T12:00 or 2026-01-31T12:00:00Z"
        ) from None


def listing(name: str, summary: str, rows: Rows, find: Rows, columns: Sequence[str]) -> click.Group:
    """A group with ``list`` and ``show ID``, both with ``--json`` and ``--as-of``."""

    @click.group(name=name, help=summary)
    def group() -> None: ...

    @group.command("list", help="One line each.")
    @json_option
    @limit_option
    @as_of_option
    @click.pass_context
    def show_all(ctx: click.Context, as_json: bool, limit: int | None, as_of: str | None) -> None:
        found = [_plain(row) for row in rows(runtime_of(ctx), as_of_ms(as_of))]
        if as_json:
            emit_items(name, found, limit)
        else:
            table(([row.get(c, "") for c in columns] for row in found[:limit]), columns)
            click.echo(f"{len(found)} {name}", err=True)

    @group.command("show", help="One item, whole.")
    @click.argument("item_id", metavar="ID")
    @json_option
    @as_of_option
    @click.pass_context
    def show_one(ctx: click.Context, item_id: str, as_json: bool, as_of: str | None) -> None:
        import json

        wanted = [row for row in find(runtime_of(ctx), as_of_ms(as_of)) if item_id in _ids(row)]
        if not wanted:
            raise SettingsError(f"no {name} with id {item_id!r}; `millstream {name} list` shows what is there")
        for row in wanted[-1:] if as_json else wanted:
            emit(name, _plain(row)) if as_json else click.echo(json.dumps(_plain(row), indent=2, ensure_ascii=False))

    return group


def _plain(row: Any) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(row)
    return plain


def _ids(row: Any) -> set[str]:
    names = ("id", "trajectory_id", "rollout_id", "training_id", "version", "name")
    return {str(value) for n in names if (value := getattr(row, n, None)) is not None}


def _catalog(function: str) -> Rows:
    def rows(runtime: Any, at: int | None) -> Sequence[Any]:
        from millstream.console import catalog

        found: Sequence[Any] = getattr(catalog, function)(runtime.log, at)
        return found

    return rows


trajectories = listing(
    "trajectories",
    "Sealed runs: the highest revision of each.",
    _catalog("trajectories"),
    _catalog("whole_trajectories"),
    ("id", "revision", "status", "reason", "events", "task_id", "attempt", "policy_version"),
)
grades = listing(
    "grades",
    "Every grade with its kind and reason.",
    _catalog("grade_rows"),
    _catalog("grades"),
    ("trajectory_id", "grader", "status", "score", "reason", "epoch"),
)
rollouts = listing(
    "rollouts",
    "What the buffer decided of each rollout, and why.",
    _catalog("rollout_rows"),
    _catalog("rollout_rows"),
    ("trajectory_id", "decision", "reason", "reward", "advantage", "group"),
)
trainings = listing(
    "trainings",
    "Fine-tunes, from request to result.",
    _catalog("training_rows"),
    _catalog("training_rows"),
    ("id", "lineage", "parent", "state", "rollouts", "version", "reason"),
)
policies = listing(
    "policies",
    "Policy versions; one of each lineage is the champion.",
    _catalog("policy_rows"),
    _catalog("policy_rows"),
    ("lineage", "version", "stage", "parent", "verdict", "training_id"),
)
