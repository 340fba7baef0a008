"""The docs are held to the code: commands, settings, words, links, and blocks that run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest
from services.openai_api import answering, completion, response

from millstream.adapters.sqlite import open_sqlite
from millstream.capture.importers.base import FORMATS
from millstream.cli import app
from millstream.events import EVENT_KINDS
from millstream.graders.builtin import BUILTINS
from millstream.ledger import append_policy_events
from millstream.loading import known_keys
from millstream.policy import PolicyPromoted, PolicyRegistered, Verdict
from millstream.rollout import RefusedReason
from millstream.topics import ALL
from millstream.trainer.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
STREAMS = {"assemble", "grade", "worker", "blobs show"}
SKIPPED = ("make", "pip", "git", "mlflow", "rm", "redis-cli", "sqlite3", "millstream demo")
"""What a block's line may begin with and is not run here: installing, removing, other tools, the long demo."""


def load_writer():
    spec = importlib.util.spec_from_file_location("write_docs", Path(__file__).with_name("write_docs.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


writer = load_writer()


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def table_of(page, title):
    """The words in code marks of a table's first column; ``title`` begins its head."""
    lines = text_of(page).split(title, 1)[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    found = []
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        found += re.findall(r"`([^`]+)`", line.split("|")[1])
    return found


def test_the_command_line_page_is_the_parser():
    """Every command and option of docs/cli.md is the parser's, and the other way round (mend: write_docs.py)."""
    page = text_of("docs/cli.md")
    assert page == writer.cli_page(page), "run: python tests/architecture/write_docs.py"
    paths = {path for path, _ in writer.commands()}
    heads = set(re.findall(r"^### `millstream ([a-z -]+?)(?: [A-Z\[-].*)?`$", page, re.MULTILINE))
    assert heads == paths


def test_every_command_speaks_json_or_streams():
    """`--json` everywhere, but on the commands that stream NDJSON or bytes and on the one that runs on and on."""
    without = {path for path, c in writer.commands() if not any("--json" in p.opts for p in c.params)}
    assert without == STREAMS


def test_every_option_says_what_it_does():
    """No command and no option without a word of help."""
    for path, command in writer.commands():
        assert command.help, path
        assert [p.opts for p in command.params if isinstance(p, click.Option) and not p.help] == [], path


def test_the_settings_page_is_the_tree():
    """docs/settings.md has every key with its default, and no other (mend: write_docs.py)."""
    page = text_of("docs/settings.md")
    assert page == writer.settings_page(), "run: python tests/architecture/write_docs.py"
    assert set(re.findall(r"^\| `([a-z_.]+)`", page, re.MULTILINE)) == set(known_keys())


def test_the_list_of_metrics_is_the_code():
    """docs/operations.md has every metric with its labels and meaning (mend: write_docs.py)."""
    page = text_of("docs/operations.md")
    assert page == writer.metrics_page(page), "run: python tests/architecture/write_docs.py"


@pytest.mark.parametrize("page", NAMES)
def test_settings_and_commands_that_pages_name_exist(page):
    """`[section] key` is a setting, `millstream word` a command; nothing is told that is not there."""
    text = text_of(page)
    known = known_keys()
    sections = {key.split(".")[0] for key in known}
    for section, key in re.findall(r"`\[([a-z_]+)\] ([a-z_]+)\b", text):
        assert f"{section}.{key}" in known, f"{page}: [{section}] {key}"
    for section in re.findall(r"`\[([a-z_]+)\]`", text):
        assert section in sections, f"{page}: [{section}]"
    paths = {path for path, _ in writer.commands()} | set(app.COMMANDS)
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    spans = [
        *re.findall(r"`millstream ([a-z][^`\n]*)`", text),
        *re.findall(r"^millstream ([a-z].*)$", blocks, re.MULTILINE),
    ]
    for words in spans:
        command, *rest = words.split()
        assert command in app.COMMANDS, f"{page}: millstream {words}"
        group = {path.split()[1] for path in paths if path.startswith(f"{command} ")}
        if group and rest:
            assert rest[0] in group, f"{page}: millstream {words}"
        options = {o for path, c in writer.commands() if path.split()[0] == command for p in c.params for o in p.opts}
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", words):
            assert option in options | {"--settings", "--debug", "--help"}, f"{page}: millstream {words}"


def test_lists_of_words_are_whole():
    """Event kinds, refusals, graders, formats, algorithms, verdicts, topics: the docs have them all."""
    kinds = text_of("docs/events.md").split("| kind | says |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", kinds, re.MULTILINE)) == set(EVENT_KINDS)
    assert set(table_of("docs/training.md", "| refused because |")) == set(get_args(RefusedReason))
    named = set(table_of("docs/graders.md", "| name | score |"))
    assert named == {*BUILTINS, "feedback", "feedback.NAME"}
    assert {*table_of("docs/events.md", "| format | recognised by |"), "auto"} == set(FORMATS)
    algorithms = table_of("docs/training.md", "| `[trainer] algorithm` |")
    assert set(algorithms) == set(ALGORITHMS)
    verdicts = re.findall(r"^\| (\w+) \|", text_of("docs/promotion.md").split("| verdict |")[1], re.MULTILINE)
    assert set(verdicts) == set(get_args(Verdict))
    flow = text_of("docs/architecture.md").split("Six topics hold everything:")[1].split(".")[0]
    assert set(re.findall(r"`([a-z-]+)`", flow)) == {topic.name for topic in ALL}


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page):
    """Every relative link of a page is a file or folder of the repository."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(page)):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def blocks(name):
    """(language, code) of the fenced blocks that run."""
    return re.findall(r"```(python|bash)\n(.*?)```", text_of(name), re.DOTALL)


@pytest.fixture
def place(tmp_path, chat):
    """A folder with the examples, a `millstream` on PATH, a made-up lineage and an OpenAI API; and its environment."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "millstream"
    program.write_text(f"#!{sys.executable}\nfrom millstream.cli import main\nmain()\n", encoding="utf-8")
    program.chmod(0o755)
    opened = open_sqlite(tmp_path / ".millstream" / "log.db")
    versions = [PolicyRegistered(id=f"v{n}", lineage="policy", version=n, uri="made up") for n in (1, 2, 3)]
    first = PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap")
    append_policy_events(opened.log, [*versions, first])
    opened.close()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    chat.script(lambda body: answering(response("30") if "input" in body else completion("30"))(body))
    clean |= {"OPENAI_BASE_URL": chat.url, "OPENAI_API_KEY": "nobody's"}
    return tmp_path, {**clean, "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if blocks(name)])
def test_blocks_of_pages_run(name, place):
    """The python and bash blocks of a page run as they stand, in order, in one folder."""
    folder, env = place
    ran = 0
    for language, text in blocks(name):
        code = "\n".join(line for line in text.splitlines() if language == "python" or not line.startswith(SKIPPED))
        command = ["bash", "-e", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        if code.strip():
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
            )
            assert done.returncode == 0, f"{name}:\n{code}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr
            ran += 1
    assert ran or all(code.startswith(SKIPPED) for _, code in blocks(name))


@pytest.mark.slow
def test_every_agent_of_the_capture_page_is_recorded(place):
    """Each python block of docs/capture.md that uses the SDK makes one run, complete when the script has ended."""
    folder, env = place
    made = [code for language, code in blocks("docs/capture.md") if language == "python" and "millstream" in code]
    for code in made:
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, check=True, capture_output=True, timeout=60)
    command = "millstream up --until-idle --json >/dev/null && millstream trajectories list --json"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, check=True, capture_output=True, timeout=60)
    rows = json.loads(done.stdout)["items"]
    assert [row["status"] for row in rows] == ["complete"] * len(made)
    assert {row["final_answer"] for row in rows} == {"30", "30.0"}


@pytest.mark.slow
def test_the_first_lines_of_the_readme_capture_a_run_in_under_a_minute(place):
    """From the first python block to the run in the list."""
    folder, env = place
    (_, install), (_, script), (_, look) = blocks("README.md")[:3]
    assert install.startswith("pip install")
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, check=True, capture_output=True)
    done = subprocess.run(["bash", "-ec", look], cwd=folder, env=env, check=True, capture_output=True, text=True)
    assert "complete" in done.stdout
    assert time.monotonic() - began < 60


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/graders.md"])
def test_the_grader_of_the_docs_grades(name, place):
    """The block, saved as it stands and named in the settings, grades runs in the stream and answers in a file."""
    folder, env = place
    code = next(code for language, code in blocks(name) if language == "python" and "@ms.grader" in code)
    (folder / "graders.py").write_text(code, encoding="utf-8")
    (folder / "millstream.toml").write_text(
        '[graders]\nfiles = ["graders.py"]\n[reward]\nformula = "correct"\n', encoding="utf-8"
    )

    def run(*words):
        done = subprocess.run(
            ["millstream", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("import", "examples/data/runs.ndjson")
    run("up", "--until-idle")
    rows = [row for row in json.loads(run("grades", "list", "--json"))["items"] if row["grader"] == "correct"]
    assert len(rows) == 6
    assert {row["status"] for row in rows} == {"scored"}
    assert {row["epoch"] for row in rows} != {f"correct@{BUILTINS['correct'].version}"}, (
        "the built-in graded, not the block"
    )
    assert json.loads(run("rollouts", "list", "--json"))["total"] == 6
    answers = [{"id": "a", "answer": "x"}, {"id": "b", "answer": "x"}, {"id": "c", "answer": "x"}]
    tasks = [{"id": "a", "reference": "x"}, {"id": "b", "reference": "y"}, {"id": "c"}]
    for file, items in (("answers.jsonl", answers), ("tasks.jsonl", tasks)):
        (folder / file).write_bytes(b"\n".join(msgspec.json.encode(item) for item in items))
    graded = [
        json.loads(line)
        for line in run("grade", "answers.jsonl", "--grader", "correct", "--tasks", "tasks.jsonl").splitlines()
    ]
    assert [(row["status"], row["score"]) for row in graded] == [("scored", 1.0), ("scored", 0.0), ("abstained", None)]
