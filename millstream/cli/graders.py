"""``graders list | test | validate | run``: the graders of the stream, grader files checked and tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.common import emit, json_option, limit_option, runtime_of, settings_of, table
from millstream.cli.examining import attack, calibrate
from millstream.cli.ranking import rank
from millstream.errors import SettingsError

if TYPE_CHECKING:
    from millstream.graders.hosted.definitions import Definition
    from millstream.graders.hosted.means import Means

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))


@click.group(name="graders")
def graders() -> None:
    """The graders that are set up; hosted grader files checked and tried."""


graders.add_command(attack)
graders.add_command(calibrate)
graders.add_command(rank)


@graders.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """The graders that run on every trajectory: ranges, epochs, what the attack battery found; the reward formula."""
    from millstream.bootstrap.examining import verdicts

    runtime = runtime_of(ctx)
    formula = runtime.plans[0].reward.formula
    found = verdicts(runtime)
    rows = [
        {"name": g.name, "epoch": g.epoch, "low": g.low, "high": g.high, "source": g.source,
         "examined": found.get(g.name, "not yet")}
        for g in runtime.graders.graders
    ]  # fmt: skip
    if as_json:
        emit("graders", {"items": rows, "total": len(rows), "formula": formula})
    else:
        table((tuple(row.values()) for row in rows), ("name", "epoch", "low", "high", "source", "examined"))
        click.echo(f"reward = {formula}")


@graders.command("test")
@file_argument
@json_option
@click.pass_context
def test(ctx: click.Context, file: Path, as_json: bool) -> int:
    """Try the examples that the graders of a Python FILE declare; exit 1 when one does not hold.

    They run as in the stream: in a child process, with the options and the deadline of the settings.
    """
    from millstream.bootstrap.grader_children import try_file

    found = try_file(settings_of(ctx), file)
    failed = [one for one in found if one.fault]
    if as_json:
        emit("graders-test", {"items": found, "total": len(found), "failed": len(failed)})
        return int(bool(failed))
    rows = [(one.grader, one.number, one.expected, one.given, f"{one.milliseconds:.2f} ms") for one in found]
    table(rows, ("grader", "example", "expected", "given", "took"))
    for one in failed:
        click.echo(f"{one.grader}, example {one.number}: {one.fault}")
    click.echo(f"{len(found) - len(failed)} of {len(found)} examples hold")
    return int(bool(failed))


@graders.command()
@file_argument
@json_option
@click.pass_context
def validate(ctx: click.Context, file: Path, as_json: bool) -> int:
    """Check a hosted grader's JSON, every field of it; exit 1 when it is not valid."""
    from millstream.graders.hosted.running import KIND, missing_parts

    try:
        definition = _read(ctx, file)
    except SettingsError as error:
        found = {"valid": False, "name": "", "type": "", "runs": False, "missing": [], "error": str(error)}
    else:
        name, kind, lacking = definition.name, KIND[type(definition)], missing_parts(definition, runtime_of(ctx).means)
        found = {"valid": True, "name": name, "type": kind, "runs": not lacking, "missing": lacking, "error": ""}
    emit("grader-validation", found) if as_json else click.echo(_verdict(file, found))
    return int(not found["valid"])


def _verdict(file: Path, found: dict[str, Any]) -> str:
    if not found["valid"]:
        return str(found["error"])
    lines = [f"{file}: {found['name']!r} ({found['type']}) is valid"]
    return "\n".join([*lines, *(f"not run here: {line}" for line in found["missing"])])


@graders.command("run")
@file_argument
@click.option("--item", metavar="JSON", default="{}", show_default=True, help="The row of the data set, a JSON object.")
@click.option("--sample", metavar="TEXT", help="What the model said.")
@click.option(
    "--rows",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Instead: a JSONL file of rows, each graded with its samples and with probes; prints a table.",
)
@click.option("--reference", metavar="NAME", default="", help="The field of a row's item that holds the right answer.")
@limit_option
@json_option
@click.pass_context
def run(ctx: click.Context, /, file: Path, **options: Any) -> int:
    """Grade one sample with a hosted grader's JSON, or try it on rows; exit 1 when it gives no grade.

    The JSON is the hosted service's answer: reward, sub_rewards, metadata with the error flags. Without a
    grade the reward is null, never 0.
    """
    if (options["rows"] is None) == (options["sample"] is None):
        raise click.UsageError("give --sample TEXT, or --rows FILE", ctx)
    definition, means = _read(ctx, file), runtime_of(ctx).means
    if options["rows"] is not None:
        from millstream.cli.trying import try_rows

        return try_rows(definition, means, options["rows"], options)
    return _run_one(definition, means, options)


def _run_one(definition: Definition, means: Means, options: dict[str, Any]) -> int:
    from millstream.graders.hosted.running import timed
    from millstream.graders.hosted.samples import sample_of

    outcome, found = timed(definition, _item(options["item"]), sample_of(options["sample"]), means)
    if options["as_json"]:
        emit("grader-run", found)
    else:
        for name, reward in found["sub_rewards"].items():
            click.echo(f"{name} = {_number(reward)}")
        click.echo(f"reward = {_number(found['reward'])}")
        for flag, told in outcome.flags.items():
            click.echo(f"{flag}: {told}")
    return int(found["reward"] is None)


def _number(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"


def _read(ctx: click.Context, file: Path) -> Definition:
    from millstream.graders.hosted.parsing import limits_of, parse

    return parse(file.read_bytes(), limits_of(runtime_of(ctx).loaded.settings.hosted), file.name)


def _item(text: str) -> dict[str, Any]:
    try:
        item = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"--item is no JSON: {error}") from None
    if not isinstance(item, dict):
        raise SettingsError(f"--item must be a JSON object, not {type(item).__name__}")
    return item
