"""``init``, ``doctor`` and ``settings show``."""

from __future__ import annotations

from pathlib import Path

import click

from millstream.cli.common import emit, emit_items, json_option, settings_of, table
from millstream.errors import SettingsError

GRADER = '''"""Your first grader: 1 for the right answer, 0 for another.

Try it by `millstream graders test graders.py`. To have `millstream up` ask it of every run, name this file in
millstream.toml, `[graders] files = ["graders.py"]`, and to be paid by it, `[reward] formula = "same_text"`.
"""

import millstream as ms

EXAMPLES = [
    ms.example(answer="30", reference="30", score=1.0),
    ms.example(answer="31", reference="30", score=0.0),
    ms.example(answer="30", status="abstained"),
]


@ms.grader(examples=EXAMPLES)
def same_text(t: ms.Trajectory) -> ms.Grade:
    """1 when the final answer is the reference, letter by letter."""
    if t.task.reference is None:
        return ms.abstain("no reference")
    return ms.score(float(t.final_answer == t.task.reference), reason="exact")
'''


@click.command()
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=".")
@json_option
def init(directory: Path, as_json: bool) -> None:
    """Write millstream.toml, every setting with its default and what it means, and graders.py."""
    from millstream.cli.template import render

    directory.mkdir(parents=True, exist_ok=True)
    files = {directory / "millstream.toml": render(), directory / "graders.py": GRADER}
    for path in files:
        if path.exists():
            raise SettingsError(f"{path} is there already; move it away to have a new one written")
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        if not as_json:
            click.echo(f"wrote {path}")
    if as_json:
        emit("init", {"wrote": [str(path) for path in files]})


@click.group(name="settings")
def settings_group() -> None:
    """Each setting, its value and where it comes from."""


@settings_group.command("show")
@json_option
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Print every setting with its source; secrets in URLs are masked."""
    import msgspec

    from millstream.logs import mask

    loaded = settings_of(ctx)
    tree = msgspec.to_builtins(loaded.settings)
    rows = [
        {"key": key, "value": mask(tree[key.split(".")[0]][key.split(".")[1]], key), "source": source}
        for key, source in loaded.sources.items()
    ]
    if as_json:
        emit_items("settings", rows, None)
    else:
        table(((r["key"], r["value"], r["source"]) for r in rows), ("setting", "value", "from"))


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> int:
    """Check this machine, the data directory and the services; exit 1 when something is wrong."""
    from millstream.bootstrap import diagnose

    checks = diagnose(settings_of(ctx))
    if as_json:
        emit("doctor", {"checks": checks, "ok": all(c.level != "fail" for c in checks)})
    else:
        for check in checks:
            mend = f"  → {check.mend}" if check.mend and check.level != "ok" else ""
            click.echo(f"{check.level:5} {check.name}: {check.detail}{mend}")
    return int(any(c.level == "fail" for c in checks))
