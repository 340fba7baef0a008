"""The root command: which commands there are, and how errors become exit codes.

Exit: 0 done · 1 the verdict is no · 2 usage or settings · 3 something outside is unavailable ·
4 partly done · 70 internal error · 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import click

from millstream import __version__
from millstream.errors import MillstreamError, Unavailable

INTERNAL, INTERRUPTED = 70, 130
STANDARD = 2
"""The highest descriptor of a standard stream."""


class Entry(NamedTuple):
    """Where a command lives and what it does, so that help needs no import."""

    home: str
    short: str


COMMANDS: dict[str, Entry] = {
    "demo": Entry("demo:demo", "The whole loop on the example: agents act, the policy learns."),
    "init": Entry("setup:init", "Write a commented settings file and a first grader."),
    "doctor": Entry("setup:doctor", "Say what is wrong here, and the mend."),
    "status": Entry("look:status", "What is going on."),
    "settings": Entry("setup:settings_group", "Each setting, its value and where it comes from."),
    "up": Entry("run:up", "All stages in one process, on the embedded log."),
    "serve": Entry(
        "serve:serve", "Answer over HTTP: the telemetry gateway, the recording proxy, the hosted grading service."
    ),
    "topics": Entry("topics:topics", "The topics of a Kafka cluster: made, compared."),
    "format": Entry("format:format_", "The format that the stages write in: shown, raised after an upgrade."),
    "worker": Entry("run:worker", "One stage on Kafka: assemble, grade, buffer, trigger, train or gate."),
    "import": Entry("run:import_", "Bring runs in from files."),
    "feedback": Entry("feedback:feedback", "Say how good a run was, at any time."),
    "assemble": Entry("files:assemble", "Events in a file to trajectories, NDJSON out."),
    "grade": Entry("files:grade", "Answers or trajectories in a file to grades, NDJSON out."),
    "trajectories": Entry("look:trajectories", "Sealed runs."),
    "grades": Entry("look:grades", "Grades and their reasons."),
    "rollouts": Entry("look:rollouts", "What the buffer decided, rollout by rollout."),
    "trainings": Entry("look:trainings", "Fine-tunes, from request to result."),
    "policies": Entry("look:policies", "Policy versions and which one serves."),
    "buffer": Entry("buffer:buffer", "The replay buffer: figures, and rebuilding it from the log."),
    "graders": Entry("graders:graders", "The graders that are set up; hosted grader files checked and tried."),
    "regrade": Entry("evidence:regrade", "Grade recorded runs again, beside the grades they have."),
    "recall": Entry("evidence:recall", "Take back what a bad grader or run put into training."),
    "replay": Entry("evidence:replay", "Read history again, by the mapping of this version."),
    "alarms": Entry("alarms:alarms", "Signs that a reward is being fooled: looked at and cleared."),
    "baseline": Entry("look:baseline", "How well the recorded runs did, by policy version."),
    "train": Entry("policy:train", "Ask for a training by hand."),
    "gate": Entry("policy:gate", "Judge a candidate against the champion."),
    "rebuild": Entry("policy:rebuild", "Make a version again from its manifest."),
    "promote": Entry("policy:promote", "Make a version the champion, by hand."),
    "rollback": Entry("policy:rollback", "Serve an earlier version again."),
    "retire": Entry("policy:retire", "Mark a version as never to serve again."),
    "why": Entry("look:why", "Everything that made a version what it is."),
    "who-was-live": Entry("look:who_was_live", "Which version served at a time."),
    "metrics": Entry("figures:metrics", "Figures of the recorded runs, with intervals and denominators."),
    "audit": Entry("look:audit", "Show that nothing was lost, doubled or turned into a reward."),
    "blobs": Entry("blobs:blobs", "What was too large for an event, kept whole by its hash."),
    "dead-letters": Entry("look:dead_letters", "Events that could not be used, and why."),
}


class Commands(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.home.partition(":")
        command: click.Command = getattr(import_module(f"millstream.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table alone."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short) for name, entry in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest known name in the message."""
        from millstream.errors import nearest

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{nearest(args[0], list(COMMANDS))}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--settings",
    "settings_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings file (default: millstream.toml in the current folder, if there).",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, prog_name="millstream")
@click.pass_context
def root(ctx: click.Context, settings_file: Path | None, debug: bool) -> None:
    """Millstream: production agent runs become evidence, evidence becomes a better policy."""
    ctx.obj = settings_file
    if debug:
        os.environ["MILLSTREAM_DEBUG"] = "1"


def hoist(args: list[str]) -> list[str]:
    """Move ``--settings FILE`` and ``--debug`` to the front: they may stand anywhere."""
    front, rest, index = [], [], 0
    while index < len(args):
        arg = args[index]
        if arg == "--":
            rest += args[index:]
            break
        if arg == "--settings" and index + 1 < len(args):
            front += args[index : index + 2]
            index += 1
        elif arg == "--debug" or arg.startswith("--settings="):
            front.append(arg)
        else:
            rest.append(arg)
        index += 1
    return front + rest


def main(argv: list[str] | None = None) -> None:
    """Run a command line and exit with its code."""
    _prepare_streams()
    sys.exit(_run(hoist(sys.argv[1:] if argv is None else argv)))


def _run(args: list[str]) -> int:
    try:
        code = root.main(args=args, prog_name="millstream", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit:  # click leaves so when the reader of a pipe is gone
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 — the last door
        return _fail(error)
    except KeyboardInterrupt:
        return _fail(click.Abort())
    return code if isinstance(code, int) else 0


def _fail(error: Exception) -> int:
    """Say what went wrong, never with a traceback by default; the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    if os.environ.get("MILLSTREAM_DEBUG") == "1":
        raise error
    if isinstance(error, MillstreamError):
        click.echo(f"millstream: {error}", err=True)
        return error.exit_code
    if isinstance(error, OSError):
        click.echo(f"millstream: {error.filename or 'reading or writing'}: {error.strerror}", err=True)
        return Unavailable.exit_code
    click.echo(f"millstream: internal error: {type(error).__name__}: {error} (--debug shows where)", err=True)
    return INTERNAL


def _prepare_streams() -> None:
    """What can't be encoded is escaped, and closed streams swallow what is written. Closed descriptors are
    held, so that no file or pipe that is opened later gets the number of a standard stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= STANDARD:
        pass
    os.close(number)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 — for as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
