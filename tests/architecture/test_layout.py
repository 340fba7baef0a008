"""The shape of the house: links, imports, command line and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOMS = ("capture", "streams", "graders", "trainer", "deploy", "console", "examples")
HEAVY = ("torch", "transformers", "mlflow", "faust", "kafka", "redis", "numpy", "click")
FRAMEWORKS = ("openai", "httpx", "httpx2", "langchain_core", "langgraph", "agents")


def test_rooms_are_relative_links(root: Path) -> None:
    """Each room lies at the root and is linked, relatively, into the package."""
    for room in ROOMS:
        link = root / "millstream" / room
        assert link.is_symlink()
        assert link.readlink() == Path("..") / room


def test_kernel_loads_nothing_heavy(root: Path) -> None:
    """Importing the kernel and the SDK loads no library of the trainer, the broker, the tracker or an agent."""
    code = (
        "import sys, millstream.events, millstream.trajectory, millstream.grade, millstream.rollout, millstream.policy,"
        " millstream.codec, millstream.ports, millstream.settings, millstream.topics, millstream.capture.sdk;"
        "import millstream; millstream.wrap, millstream.agent(len), millstream.tool(len);"
        f"print([m for m in {HEAVY + FRAMEWORKS!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_no_pickle_and_no_eval(root: Path) -> None:
    """Nothing unpickles or evaluates data, but for the program that runs code inside of the sandbox."""
    inside = root / "millstream" / "adapters" / "sandbox_inside.py"
    bad = []
    for room in (*ROOMS, "millstream"):
        for file in (root / room).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            bad += [
                f"{file}: {word}"
                for word in ("import pickle", "pickle.load", " eval(", "=eval(", " exec(")
                if word in text and file != inside
            ]
    assert not bad


def test_every_command_has_its_home() -> None:
    """Every command of the table can be imported and has help of its own."""
    import click

    from millstream.cli.app import COMMANDS, Commands, root

    assert isinstance(root, Commands)
    for name in COMMANDS:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        assert command.help, name
