"""``demo``: the whole loop on the example."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from millstream.cli.common import emit, json_option
from millstream.errors import SettingsError

FOLDER = "millstream-demo"


@click.command()
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="The same seed, the same decisions.")
@click.option(
    "--dir", "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Where to put everything."
)
@json_option
def demo(seed: int, folder: Path | None, as_json: bool) -> None:
    """Watch an agent learn from its own runs, on generated (synthetic) finance questions, in about 3 minutes.

    It needs no service and no GPU. Everything it makes lies in one folder, with an HTML report.
    """
    from millstream.bootstrap.parts import require

    require("the demo", "embedded", "train", "mlflow")
    from millstream.examples.finqa.main import run

    chosen = folder or Path(FOLDER) / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    if (chosen / "log.db").exists():
        raise SettingsError(f"{chosen} holds an earlier run; choose another --dir or remove it")
    facts = run(chosen, seed, lambda line: click.echo(line, err=as_json))
    if as_json:
        emit("demo", facts)
