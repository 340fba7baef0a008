"""The wheel and the source archive, built and used from somewhere else, without the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

ROOMS = ("capture", "streams", "graders", "trainer", "deploy", "console", "examples")
SHIPPED = (
    "py.typed",
    "console/report.css",
    "examples/data/answers.jsonl",
    "examples/data/chats.jsonl",
    "examples/data/inspect.json",
    "examples/data/langfuse.json",
    "examples/data/responses.jsonl",
    "examples/data/runs.ndjson",
    "examples/data/swe_agent.traj",
    "examples/data/tasks.jsonl",
    "examples/data/who_and_when.json",
    "examples/finqa/base/config.json",
    "examples/finqa/base/model.safetensors",
    "examples/finqa/base/tokenizer.json",
    "examples/finqa/base/tokenizer_config.json",
)
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
NEEDED = ("msgspec", "click", "blake3")


def built(kind, source, target):
    """One archive of ``source``, made by the build backend that pyproject.toml names."""
    target.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(target)],
        check=False,
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """The wheel of this tree."""
    return built("wheel", root, tmp_path_factory.mktemp("wheel") / "dist")


def installed(folder, wheel, libraries):
    """A bare environment with the wheel in it and the libraries of ``libraries`` beside it; its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    site = Path(
        subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    # The folder goes on the path as it is: .pth files inside it (the editable install) are not read.
    (site / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
    )
    return folder / "bin"


@pytest.fixture(scope="module")
def whole(wheel, tmp_path_factory):
    """The wheel with every library that is installed here, but not this tree."""
    return installed(tmp_path_factory.mktemp("whole") / "env", wheel, Path(msgspec.__file__).parent.parent)


@pytest.fixture(scope="module")
def lean(wheel, tmp_path_factory):
    """The wheel with nothing but what ``dependencies`` in pyproject.toml names."""
    folder = tmp_path_factory.mktemp("lean")
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in NEEDED:
        source = Path(__import__(name).__file__).parent
        (libraries / name).symlink_to(source)
        for info in source.parent.glob(f"{name}-*.dist-info"):
            (libraries / info.name).symlink_to(info)
    return installed(folder / "env", wheel, libraries)


def run(bin_folder, folder, *words, program="millstream"):
    """One command of an environment, in a folder, with nothing of this test's environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MILLSTREAM", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(bin_folder / program), *words],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )


def documents(bin_folder, folder, *words):
    """The JSON document of a command that must succeed."""
    done = run(bin_folder, folder, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_wheel_has_one_top_level_name_and_everything_it_needs(root, wheel):
    """Nothing but `millstream` and its dist-info: `trainer` or `examples` would overwrite other packages."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"millstream"}
    assert all(f"millstream/{room}/__init__.py" in names for room in ROOMS)
    assert [name for name in SHIPPED if f"millstream/{name}" not in names] == []
    assert [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".db"))] == []
    tracked = subprocess.run(["git", "ls-files", "*.py"], check=False, cwd=root, capture_output=True, text=True)
    if tracked.returncode == 0:
        code = {f for f in tracked.stdout.split() if f.split("/")[0] in {*ROOMS, "millstream"}}
        wanted = {f if f.startswith("millstream/") else f"millstream/{f}" for f in code if (root / f).exists()}
        assert wanted - set(names) == set()


def test_source_archive_holds_files_and_gives_the_same_wheel(root, wheel, tmp_path):
    """The archive has no links (they need not survive unpacking), and its wheel has the same files."""
    archive = built("sdist", root, tmp_path / "dist")
    with tarfile.open(archive) as packed:
        assert [m.name for m in packed.getmembers() if not m.isfile()] == []
        packed.extractall(tmp_path / "source", filter="data")
    source = next((tmp_path / "source").iterdir())
    again = built("wheel", source, tmp_path / "again")
    assert _contents(again) == _contents(wheel)


def _contents(wheel):
    with zipfile.ZipFile(wheel) as packed:
        return {i.filename: i.CRC for i in packed.infolist() if not i.filename.endswith("RECORD")}


def test_installed_wheel_is_used_from_another_folder(whole, tmp_path):
    """init, import, up and a listing work with the installed files alone."""
    where = run(whole, tmp_path, "-c", "import millstream, sys; print(millstream.__file__)", program="python")
    assert Path(where.stdout.strip()).is_relative_to(whole.parent)
    told = run(whole, tmp_path, "--version")
    assert told.stdout.startswith("millstream, version ")
    assert run(whole, tmp_path, "init").returncode == 0
    examples = Path(where.stdout.strip()).parent / "examples" / "data"
    assert documents(whole, tmp_path, "import", str(examples / "runs.ndjson"), "--json")["trajectories"] == 6
    assert documents(whole, tmp_path, "up", "--until-idle", "--json")["records"]["assemble"] >= 1
    runs = documents(whole, tmp_path, "trajectories", "list", "--json")["items"]
    assert [row["status"] for row in runs] == ["complete"] * 6
    assert documents(whole, tmp_path, "buffer", "stats", "--json")["buffer"]["rollouts"] == 6
    assert documents(whole, tmp_path, "audit", "--json")["balanced"] is True


def test_only_the_declared_dependencies_are_enough_to_record(lean, tmp_path):
    """With msgspec and click alone: the package, the SDK, help, importing, assembling, grading, reading."""
    code = (
        "import millstream\n"
        "with millstream.record(task='q', trajectory_id='lean') as run:\n"
        "    run.message('user', 'q')\n"
        "    run.model(text='a')\n"
        "    run.end(final_answer='a')\n"
        "@millstream.tool\n"
        "def look(what):\n"
        "    return what\n"
        "@millstream.agent\n"
        "def agent(question):\n"
        "    millstream.current_run().model(tool_calls=[{'id': 'c', 'name': 'look', 'arguments': {'what': 'a'}}])\n"
        "    return look('a')\n"
        "assert agent('q') == 'a'\n"
        "for make in (millstream.langchain_handler, millstream.agents_processor):\n"
        "    try:\n"
        "        make()\n"
        "    except ImportError:\n"
        "        continue\n"
        "    raise SystemExit('it is not installed here')\n"
    )
    done = run(lean, tmp_path, "-c", code, program="python")
    assert (done.returncode, done.stderr) == (0, "")
    where = run(lean, tmp_path, "-c", "import millstream; print(millstream.__file__)", program="python").stdout
    data = Path(where.strip()).parent / "examples" / "data"
    assert run(lean, tmp_path, "--help").returncode == 0
    assert documents(lean, tmp_path, "import", str(data / "chats.jsonl"), "--json")["trajectories"] > 0
    topics = {t["topic"]: t["end"] for t in documents(lean, tmp_path, "status", "--json")["topics"]}
    assert topics["telemetry"] >= 2
    assembled = run(lean, tmp_path, "assemble", str(data / "runs.ndjson"))
    assert len(assembled.stdout.splitlines()) == 6
    graded = run(
        lean, tmp_path, "grade", str(data / "answers.jsonl"), "--grader", "numeric", "--tasks",
        str(data / "tasks.jsonl"),
    )  # fmt: skip
    assert graded.returncode == 0
    assert json.loads(graded.stdout.splitlines()[0])["score"] == 1.0


def test_a_missing_part_is_named_with_its_mend(lean, tmp_path):
    """Every command that needs an extra says which, with exit 2, and never a traceback."""
    assert run(lean, tmp_path, "init").returncode == 0
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    training = tmp_path / "training.toml"
    training.write_text('[policy]\nbase = "base"\n[storage]\ndata = "other"\n', encoding="utf-8")
    schema = tmp_path / "schema.toml"
    schema.write_text(
        '[graders]\nenabled = ["schema"]\n[graders.options.schema]\nschema = {type = "object"}\n', encoding="utf-8"
    )
    wanted = {
        ("up", "--until-idle"): "embedded",
        ("buffer", "stats"): "embedded",
        ("--settings", str(training), "up", "--until-idle"): "train,mlflow",
        ("--settings", str(schema), "graders", "list"): "graders",
        ("demo", "--dir", "demo"): "embedded,train,mlflow",
    }
    for words, extra in wanted.items():
        done = run(lean, tmp_path, *words)
        assert f"pip install 'millstream[{extra}]'" in done.stderr, (words, done.stderr)
        assert done.returncode == 2, words
        assert "Traceback" not in done.stderr
    doctor = run(lean, tmp_path, "doctor")
    assert doctor.returncode == 1
    assert "pip install 'millstream[embedded]'" in doctor.stdout
