"""People's own graders run in a child process: hangs, deaths and exceptions cost one grade each."""

from __future__ import annotations

import sys
import time

import pytest

import millstream
from millstream.adapters.children import Child
from millstream.errors import SettingsError
from millstream.grade import Abstained, Failed, Scored
from millstream.graders.loading import load, load_one
from millstream.graders.running import effective
from millstream.settings import Graders

README = """
import millstream as ms

@ms.grader
def correct(t: ms.Trajectory) -> ms.Grade:
    if t.task.reference is None:
        return ms.abstain("no reference")
    return ms.score(float(t.final_answer == t.task.reference), reason="exact")
"""

MIXED = """
import os, time
import millstream as ms

@ms.grader
def good(t):
    return 1.0

@ms.grader
def hangs(t):
    if t.final_answer == "hang":
        time.sleep(60)
    return 0.5

@ms.grader
def dies(t):
    if t.final_answer == "die":
        os._exit(7)
    return 0.25

@ms.grader
def raises(t):
    raise RuntimeError("broken on purpose")
"""


def grades(graders, trajectory):
    return {a[0].grader.name: effective(a).grade for a in graders.grade(trajectory)}


def test_the_readme_block_works_from_a_file(load_graders, make):
    """The grader of the README, loaded as settings load it."""
    loaded = load_graders(README)
    assert loaded.names == ("correct",)
    assert grades(loaded, make(answer="7", reference="7")) == {"correct": Scored(score=1.0, reason="exact")}
    assert grades(loaded, make(answer="7")) == {"correct": Abstained(reason="no reference")}


def test_a_file_is_not_imported_by_the_process_that_streams(load_graders, tmp_path, make):
    """Only the child runs a user's module."""
    source = README + "\nimport os, pathlib\npathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
    load_graders(source)
    import os

    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_a_grader_that_hangs_is_a_timeout_and_its_neighbours_are_graded(load_graders, make, spawned):
    """G21: the outcome comes soon after the deadline, the child is replaced, the others get grades."""
    loaded = load_graders(MIXED, timeout_s=1.0)
    begun = time.monotonic()
    first = grades(loaded, make(answer="hang"))
    took = time.monotonic() - begun
    assert first["hangs"].kind == "timeout"
    assert first["good"] == Scored(score=1.0)
    assert first["dies"] == Scored(score=0.25)
    assert took < 20
    assert spawned[0].starts == 3
    begun = time.monotonic()
    again = grades(loaded, make(answer="hang"))
    assert again["hangs"].kind == "timeout"
    assert grades(loaded, make(answer="fine"))["hangs"] == Scored(score=0.5)
    assert spawned[0].starts == 4


@pytest.mark.parametrize(
    "body",
    ["time.sleep(60)", "3 ** (10 ** 9)", "re.match('(a+)+$', 'a' * 40 + 'b')", "sum(iter(int, 1))"],
)
def test_machine_code_that_never_returns_is_a_timeout_too(load_graders, make, body):
    """G21, the kind: nothing inside of the process could interrupt it; the outcome comes within twice the deadline."""
    source = f"import re, time\nimport millstream as ms\n\n@ms.grader\ndef hangs(t):\n    {body}\n    return 1.0\n"
    loaded = load_graders(source, timeout_s=0.5, attempts=1)
    begun = time.monotonic()
    assert grades(loaded, make())["hangs"].kind == "timeout"
    assert time.monotonic() - begun < 5


def test_a_grader_that_kills_its_process_is_infrastructure_and_tried_again(load_graders, make):
    """Each attempt is recorded; the neighbours get grades; the next trajectory is graded as ever."""
    loaded = load_graders(MIXED, attempts=3)
    attempts = {a[0].grader.name: a for a in loaded.grade(make(answer="die"))}
    assert [given.attempt for given in attempts["dies"]] == [1, 2, 3]
    assert {given.grade.kind for given in attempts["dies"]} == {"infrastructure"}
    assert effective(attempts["good"]).grade == Scored(score=1.0)
    assert grades(loaded, make(answer="fine"))["dies"] == Scored(score=0.25)


def test_an_exception_is_an_error_and_not_tried_again(load_graders, make):
    """G24: never 0, and once; with where in the grader's own file it came from."""
    attempts = {a[0].grader.name: a for a in load_graders(MIXED).grade(make())}["raises"]
    assert len(attempts) == 1
    line = '  graders.py, line 23, in raises: raise RuntimeError("broken on purpose")'
    assert attempts[0].grade == Failed(kind="error", reason=f"RuntimeError: broken on purpose\n{line}")


def test_options_reach_keyword_parameters_and_change_the_epoch(load_graders, make):
    """`[graders.options.NAME]` binds keyword-only parameters."""
    source = "import millstream as ms\n@ms.grader\ndef near(t, *, share=0.1):\n    return share\n"
    plain = load_graders(source)
    bound = load_graders(source, options={"near": {"share": 0.3}})
    assert grades(plain, make()) == {"near": Scored(score=0.1)}
    assert grades(bound, make()) == {"near": Scored(score=0.3)}
    assert plain.graders[0].epoch != bound.graders[0].epoch


def test_a_file_may_import_what_lies_beside_it(load_graders, make):
    """The grader's folder is importable in the child."""
    loaded = load_graders(
        "import millstream as ms\nfrom helper import value\n@ms.grader\ndef h(t):\n    return value\n",
        {"helper.py": "value = 0.75\n"},
    )
    assert grades(loaded, make()) == {"h": Scored(score=0.75)}


@pytest.mark.parametrize(
    ("source", "settings", "told"),
    [
        ("def f(:\n", {}, "graders.py"),
        ("import nothing_of_this_name\n", {}, "ModuleNotFoundError"),
        ("x = 1\n", {}, "defines no grader"),
        (README, {"options": {"correct": {"strict": True}}}, "unknown option 'strict'"),
        (README, {"options": {"corect": {}}}, "did you mean 'correct'"),
        (README, {"enabled": ("numerc",)}, "did you mean 'numeric'"),
        (README, {"timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_what_cannot_be_loaded_says_where_and_why(load_graders, source, settings, told):
    """`SettingsError` before anything starts."""
    with pytest.raises(SettingsError, match=told):
        load_graders(source, **settings)


def test_enabled_builtins_and_own_graders_come_in_one_set(load_graders, make):
    """Files are all enabled; built-ins by name; feedback is no function of a trajectory; one's own wins."""
    loaded = load_graders(README, enabled=("feedback", "format", "correct"))
    assert loaded.names == ("format", "correct")
    assert [g.source for g in loaded.graders] == ["builtin", "file"]


def test_graders_answer_the_same_off_the_main_thread(make):
    """G20: four known answers graded in a pool of threads."""
    from concurrent.futures import ThreadPoolExecutor

    from millstream.graders.builtin import builtin

    numeric = builtin("numeric")
    runs = [make(answer=text, reference=48250.0) for text in ("$48,250", "48250", "48.25 thousand", "about 48,250.")]
    with ThreadPoolExecutor(2) as pool:
        assert [grade.score for grade in pool.map(numeric, runs)] == [1.0] * 4


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """An installed package that offers two graders and something that is none."""
    package, info = tmp_path / "site" / "acme_graders.py", tmp_path / "site" / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    package.write_text("import millstream as ms\n@ms.grader\ndef polite(t):\n    return 0.5\nnone = 7\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[millstream.graders]\npolite = acme_graders:polite\nbad = acme_graders:none\ngone = acme_graders:gone\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def load_packaged(site, spawned, **settings):
    def spawn(module):
        spawned.append(Child(module, env={"PYTHONPATH": str(site)}))
        return spawned[-1]

    return load(Graders(**{"enabled": (), **settings}), site, spawn)


def test_an_installed_package_may_offer_graders(packaged, spawned, make):
    """By the entry-point group `millstream.graders`; it runs in the child, when it is enabled."""
    loaded = load_packaged(packaged, spawned, enabled=("polite",))
    assert grades(loaded, make()) == {"polite": Scored(score=0.5)}
    (polite,) = loaded.graders
    assert polite.source == "entry_point"
    assert polite.epoch.startswith("polite@")
    assert "acme_graders" not in sys.modules


@pytest.mark.parametrize(("name", "told"), [("bad", "is no grader"), ("gone", "can't be loaded")])
def test_an_entry_point_that_is_none_is_refused(packaged, spawned, name, told):
    """`SettingsError` names it."""
    with pytest.raises(SettingsError, match=told):
        load_packaged(packaged, spawned, enabled=(name,))


def test_one_grader_may_be_asked_for_by_name(tmp_path, spawned, make):
    """For `millstream grade`: a built-in without a child, or one of one's own; else the nearest name."""
    (tmp_path / "graders.py").write_text(MIXED)

    def spawn(module):
        spawned.append(Child(module))
        return spawned[-1]

    assert load_one("exact", Graders(), tmp_path, spawn).names == ("exact",)
    assert spawned == []
    settings = Graders(files=("graders.py",))
    good = load_one("good", settings, tmp_path, spawn)
    assert grades(good, make()) == {"good": Scored(score=1.0)}
    with pytest.raises(SettingsError, match="did you mean 'hangs'"):
        load_one("hang", settings, tmp_path, spawn)


def test_the_public_decorator_is_the_registrys():
    """`millstream.grader` is loaded from its home."""
    from millstream.graders.registry import grader

    assert millstream.grader is grader
