"""Dead letters put back into telemetry: what they become, and that the books still add up."""

from __future__ import annotations

import json

import pytest

from millstream.cli import main
from millstream.console import dead_letters as console
from millstream.console.audit import audit
from millstream.streams.replaying import replay

DAY_MS = 86_400_000


def days_old(mill, days):
    """A UUIDv7 that was born so many days before the log's now."""
    born = f"{mill.clock.now_ms() - days * DAY_MS:012x}"
    return f"{born[:8]}-{born[8:]}-7000-8000-000000000001"


def letters(mill):
    return list(console.chosen(mill.log, (), ""))


def books(mill):
    found = audit(mill.log, mill.store, mill.settings)
    assert found.differences == ()
    return {line.name: line.count for line in found.lines if line.section == "events"}


def test_events_that_came_too_late_are_sealed_after_a_replay(mill):
    """Refused for its age, a run is whole after its letters were replayed; the originals count as replayed."""
    name = days_old(mill, 3)
    mill.send(*mill.events(name))
    mill.run()
    assert books(mill) == {"late": 4}
    assert replay(mill.log, letters(mill)).replayed == 4
    mill.run()
    assert books(mill) == {"replayed": 4, "in a trajectory": 4}


def test_a_second_replay_finds_nothing_to_do(mill):
    """What is in telemetry already is left out, without a mark in the letters."""
    mill.send(*mill.events(days_old(mill, 3)))
    mill.run()
    replay(mill.log, letters(mill))
    again = replay(mill.log, letters(mill))
    assert (again.replayed, again.already) == (0, 4)


def test_a_dry_run_writes_nothing(mill):
    """It counts, and telemetry stays as it was."""
    mill.raw(b"{not json}")
    mill.run()
    before = mill.log.bounds("telemetry")
    assert replay(mill.log, letters(mill), dry_run=True).replayed == 1
    assert mill.log.bounds("telemetry") == before


def test_what_still_can_t_be_read_is_a_letter_again_that_names_the_first(mill):
    """The second letter tells whose replay it was, and neither is counted twice."""
    mill.raw(b"{not json}\n")
    mill.run()
    ((_, first),) = letters(mill)
    replay(mill.log, letters(mill))
    mill.run()
    _, (_, second) = letters(mill)
    assert second.replay_of == str(first.origin)
    assert books(mill) == {"dead letter": 1, "replayed": 1}


def test_an_original_that_was_cut_is_taken_from_telemetry(mill):
    """Letters keep 64 KiB; the line itself is still in the log."""
    line = b'{"broken": "' + b"x" * 100_000
    mill.raw(b"{}\n" + line + b"\n")
    mill.run()
    chosen = [(identity, letter) for identity, letter in letters(mill) if letter.index == 1]
    assert replay(mill.log, chosen).replayed == 1
    (record,) = mill.log.read("telemetry", 0, 1)
    assert record.value == line


def test_an_original_that_is_nowhere_is_told(mill):
    """Cut in the letter and dropped from telemetry: a problem, and the others go on."""
    mill.raw(b'{"broken": "' + b"x" * 100_000)
    mill.raw(b"{short}")
    mill.run()
    mill.log.trim("telemetry", 0, 2)
    found = replay(mill.log, letters(mill))
    assert found.replayed == 1
    assert [why for _, why in found.problems] == ["its original was cut, and telemetry does not keep it any more"]


def test_the_command_replays_by_id_and_by_reason(mill, tmp_path, monkeypatch, capsys):
    """An id, then all of a reason; both at once or none is a matter of usage."""
    mill.raw(b"{not json}\n{neither}\n")
    mill.run()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_STORAGE__LOG", f"sqlite:///{mill.path}")
    monkeypatch.setenv("MILLSTREAM_STORAGE__STATE", f"sqlite:///{mill.path}")

    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(["dead-letters", "replay", *args])
        return ended.value.code, capsys.readouterr()

    code, out = run("0:0", "--json")
    assert (code, json.loads(out.out)["replayed"]) == (0, 1)
    code, out = run("--reason", "undecodable")
    assert (code, out.out) == (0, "replayed 1; 1 were replayed before; 0 can't be\n")
    assert run()[0] == 2
    assert run("0:99")[0] == 2
