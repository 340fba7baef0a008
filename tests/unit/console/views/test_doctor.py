"""Each check finds what is wrong and names the mend; none shows a secret."""

from pathlib import Path

import pytest

from millstream.console import doctor
from millstream.errors import Unavailable
from millstream.loading import Loaded, load


def loaded(root: Path, toml: str = "") -> Loaded:
    """Settings of a folder."""
    (root / "millstream.toml").write_text(toml)
    return load(root / "millstream.toml", environ={})


def by_name(checks) -> dict[str, doctor.Check]:
    """Checks by name (the last of a name)."""
    return {check.name: check for check in checks}


def test_a_fresh_folder_is_well(tmp_path: Path) -> None:
    """Nothing fails; that training is off is a warning."""
    found = doctor.examine(loaded(tmp_path))
    assert [c.name for c in found if c.level == "fail"] == []
    assert by_name(found)["policy"].level == "warn"
    assert by_name(found)["data"].detail.endswith(".millstream (not made yet)")


def test_an_old_python_is_told() -> None:
    """3.10 is too old, 3.13 is not."""
    assert doctor.python((3, 10, 4)).level == "fail"
    assert doctor.python((3, 13, 0)).level == "ok"


def test_a_missing_part_fails_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A part that these settings do not need is no failure; one that they need names the pip line."""
    monkeypatch.setattr(doctor, "EXTRAS", {"train": ("no_such_module_here",)})
    assert doctor.extras(loaded(tmp_path))[0].level == "ok"
    asked = doctor.extras(loaded(tmp_path, '[policy]\nbase = "model"\n'))[0]
    assert (asked.level, asked.mend) == ("fail", "pip install 'millstream[train]'")


def test_a_data_path_that_is_a_file(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / ".millstream").write_text("")
    found = doctor.data_directory(loaded(tmp_path))
    assert (found.level, found.mend) == ("fail", "move it away or set [storage] data")


def test_little_space_is_a_warning(tmp_path: Path) -> None:
    """Under a gigabyte free."""
    assert doctor.disk(loaded(tmp_path), lambda _: 5_000_000).level == "warn"
    assert doctor.disk(loaded(tmp_path), lambda _: 5_000_000_000).level == "ok"


@pytest.mark.parametrize(
    ("toml", "name", "piece"),
    [
        ("[gate]\ntasks = 100\n", "gate", "can never reach min_pairs = 250"),
        ("[gate]\nalpha = 0.7\n", "gate", "alpha = 0.7 is no error rate"),
        ("[reward]\nlow = 1.0\n", "reward", "low = 1 is not below high = 1"),
        ('[policy]\nbase = "nowhere"\n', "policy", "is no model directory"),
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, toml: str, name: str, piece: str) -> None:
    """Contradictions are failures with the key in them."""
    failed = [c for c in doctor.settings(loaded(tmp_path, toml)) if c.level == "fail"]
    assert [c.name for c in failed] == [name]
    assert piece in failed[0].detail


def test_a_gate_without_an_evaluation_is_a_warning(tmp_path: Path) -> None:
    """A model directory without [gate] evaluation: candidates would wait for ever."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    found = doctor.settings(loaded(tmp_path, '[policy]\nbase = "model"\n'))
    assert [(c.level, c.name) for c in found] == [("warn", "gate")]


def test_grader_files_are_read_not_run(tmp_path: Path) -> None:
    """A missing file, a syntax error with its line, and a good file whose code must not run."""
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "good.py").write_text("raise SystemExit\n")
    found = doctor.grader_files(loaded(tmp_path, '[graders]\nfiles = ["none.py", "broken.py", "good.py"]\n'))
    assert [c.level for c in found] == ["fail", "fail", "ok"]
    assert "No such file" in found[0].detail
    assert "line 2" in found[1].detail


@pytest.mark.parametrize(("policy", "level"), [("noeviction", "ok"), ("allkeys-lru", "fail"), ("volatile-ttl", "fail")])
def test_b02_a_server_that_evicts_is_refused(policy: str, level: str) -> None:
    """B02: any policy that deletes keys when memory is short would lose rollouts."""
    assert doctor.eviction({"maxmemory_policy": policy}).level == level
    assert doctor.eviction({}).level == "fail"


def test_probes_report_and_never_break_the_doctor(tmp_path: Path) -> None:
    """What a probe finds is listed; one that raises is a failed check with its mend, secrets masked."""

    def broken(_: Loaded) -> list[doctor.Check]:
        raise Unavailable("redis://user:hunter2@host does not answer; start it")

    def fine(_: Loaded) -> list[doctor.Check]:
        return [doctor.attempted("log", "opens", lambda: None), doctor.attempted("bad", "", lambda: 1 / 0)]

    found = by_name(doctor.examine(loaded(tmp_path), [broken, fine]))
    assert found["broken"].level == "fail"
    assert found["broken"].mend == "start it"
    assert "hunter2" not in doctor.render(list(found.values()))
    assert found["log"].level == "ok"
    assert "ZeroDivisionError" in found["bad"].detail


def test_a_judge_without_key_or_prices_is_told(tmp_path):
    """A missing key may be meant, a budget that counts nothing is not; the endpoint is not asked."""
    text = '[judge]\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "NO_SUCH_KEY_HERE"\nbudget_per_day = 1.0\n'
    found = [check for check in doctor.settings(loaded(tmp_path, text)) if check.name == "judge"]
    assert [check.level for check in found] == ["warn", "fail"]
    assert "NO_SUCH_KEY_HERE" in found[0].mend
