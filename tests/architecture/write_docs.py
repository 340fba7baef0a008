"""Writes the parts of docs/ that are copies of code: `python tests/architecture/write_docs.py`.

docs/settings.md is made from the tree of settings, the commands of docs/cli.md from the parser, the list of
metrics in docs/operations.md from `millstream.metrics`.
`test_docs.py` holds both equal to what this makes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import click

from millstream.cli.app import COMMANDS, root
from millstream.loading import known_keys
from millstream.metrics import ALL as METRICS
from millstream.settings import Settings

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
BEGIN, END = "<!-- commands: written by tests/architecture/write_docs.py -->", "<!-- end of commands -->"

METRICS_BEGIN = "<!-- metrics: written by tests/architecture/write_docs.py -->"
METRICS_END = "<!-- end of metrics -->"

SETTINGS_HEAD = """\
# Settings

One file, `millstream.toml` in the current folder or `--settings FILE`; `millstream init` writes one with every key. \
`MILLSTREAM_SECTION__KEY` in the environment wins over the file: `MILLSTREAM_BUFFER__MAX_BYTES=1000` sets \
`[buffer] max_bytes`. Relative paths are relative to the settings file. Without a file everything lives in \
`./.millstream`. An unknown key fails and names the nearest known one. `millstream settings show` prints each value \
and where it comes from, secrets masked.

This page is made from the code (`python tests/architecture/write_docs.py`).
"""


def settings_page() -> str:
    """docs/settings.md: a table for each section, its docstring above it."""
    parts = [SETTINGS_HEAD]
    keys = known_keys()
    defaults = Settings()
    for section in Settings.__struct_fields__:
        kind = type(getattr(defaults, section))
        text = (inspect.getdoc(kind) or "").replace("``", "`")
        parts.append(f"## [{section}]\n\n{' '.join(text.split())}\n\n| key | type | default |\n|---|---|---|")
        types = {name: _type(hint) for name, hint in get_type_hints(kind).items()}
        parts += [
            f"| `{key}` | {types[key.split('.')[1]]} | `{json.dumps(value)}` |"
            for key, value in keys.items()
            if key.split(".")[0] == section
        ]
        parts.append("")
    return "\n".join(parts)


def _type(kind: object) -> str:
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return " or ".join(_type(part) for part in get_args(kind))
    text = kind.__name__ if isinstance(kind, type) and "[" not in str(kind) else str(kind)
    if "Literal" in text:
        return " or ".join(f"`{word}`" for word in kind.__args__)  # type: ignore[attr-defined]
    return {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}.get(
        text, "table" if text.startswith("dict") else "list of numbers" if "float" in text else "list of texts"
    )


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its path, in the order of the help."""
    context = click.Context(root, info_name="millstream")
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", command.commands[sub]) for sub in command.commands)
        else:
            yield name, command


def usage(path: str, command: click.Command) -> str:
    """`millstream import PATHS…`: the command and what it needs."""
    words = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            name = parameter.make_metavar(click.Context(command)).rstrip(".").strip("[]")
            words.append(f"{name}…" if parameter.nargs == -1 else f"[{name}]" if not parameter.required else name)
        elif parameter.required:
            words.append(f"{parameter.opts[0]} {parameter.make_metavar(click.Context(command))}")
    return " ".join(["millstream", path, *words])


def _options(command: click.Command) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option) and option.opts != ["--json"]:
            value = "" if option.is_flag else f" {option.make_metavar(click.Context(command))}"
            default = f" Default: `{option.default}`." if option.show_default else ""
            yield f"- `{option.opts[0]}{value}`: {option.help}{default}"


def commands_part() -> str:
    """The commands of docs/cli.md; those with the same words (the lists, say) stand together."""
    same: dict[str, list[str]] = {}
    for path, command in commands():
        text = " ".join((command.help or "").split())
        same.setdefault("\n\n".join(filter(None, (text, "\n".join(_options(command))))), []).append(
            f"### `{usage(path, command)}`"
        )
    return "\n\n".join("\n".join([*heads, "", body]) for body, heads in same.items()) + "\n"


def cli_page(page: str) -> str:
    """docs/cli.md with its commands as they are now."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{commands_part()}\n{END}{rest.split(END)[1]}"


def metrics_page(page: str) -> str:
    """docs/operations.md with its list of metrics as it is now."""
    head, rest = page.split(METRICS_BEGIN)
    rows = [
        f"| `{one.name}` | {' '.join(f'`{label}`' for label in one.labels)} | {one.means} ({one.kind}) |"
        for one in METRICS
    ]
    return "\n".join(
        [
            head + METRICS_BEGIN,
            "",
            "| metric | labels | means |",
            "|---|---|---|",
            *rows,
            "",
            METRICS_END + rest.split(METRICS_END)[1],
        ]
    )


if __name__ == "__main__":
    operations = DOCS / "operations.md"
    operations.write_text(metrics_page(operations.read_text(encoding="utf-8")), encoding="utf-8")
    (DOCS / "settings.md").write_text(settings_page(), encoding="utf-8")
    cli = DOCS / "cli.md"
    cli.write_text(cli_page(cli.read_text(encoding="utf-8")), encoding="utf-8")
