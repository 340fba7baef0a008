"""Health and readiness: what the probes say, by a clock that is moved by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.prometheus import PrometheusMeter
from millstream.adapters.sqlite import open_sqlite
from millstream.bootstrap.monitor import Health, Monitor, token_of
from millstream.errors import SettingsError
from millstream.settings import load


class Seconds:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def health(seconds):
    return Health(60.0, seconds)


def test_ready_only_after_the_first_turn(health):
    """A process that has done nothing yet is alive and not ready."""
    assert (health.alive(), health.ready()) == ([], ["starting"])
    health.beat()
    assert health.ready() == []


def test_a_loop_that_hangs_is_unhealthy(health, seconds):
    """After `stalled_s` without a turn a restart is due; one more turn and it is not."""
    health.beat()
    seconds.now += 61
    assert health.alive() == ["the loop has not turned for 61 s"]
    assert health.ready() == health.alive()
    health.beat()
    assert health.alive() == []


def test_waiting_is_alive_and_not_ready(health, seconds):
    """Something outside that is away is no reason to restart, as long as it is tried again."""
    health.beat()
    for _ in range(5):
        seconds.now += 50
        health.wait("grade", "broker away")
    assert (health.alive(), health.ready()) == ([], ["grade waits: broker away"])
    health.wait("grade", "")
    assert health.ready() == []


def test_waits_are_shown_and_counted_once_each(health, seconds, tmp_path):
    """A worker that says at every turn that it waits is one wait; a stage tells each try."""
    opened = open_sqlite(tmp_path / "log.db", clock=ManualClock())
    meter = PrometheusMeter()
    monitor = Monitor(meter, health, opened.log, 5.0)
    monitor.look_at(list)
    for _ in range(3):
        monitor.turn({"buffer default": "full"})
    monitor.waiting("grade", "away")
    monitor.waiting("grade", "away")
    value = meter.registry.get_sample_value
    assert value("millstream_waits_total", {"part": "buffer default"}) == 1
    assert value("millstream_waits_total", {"part": "grade"}) == 2
    assert value("millstream_waiting", {"part": "grade"}) == 1
    monitor.waiting("grade", "")
    assert value("millstream_waiting", {"part": "grade"}) is None
    opened.close()


def test_the_token_comes_from_its_file_first(tmp_path, monkeypatch):
    """A named file wins over the environment; an empty or missing one is refused."""
    monkeypatch.setenv("MILLSTREAM_TOKEN", "from the environment")
    file = tmp_path / "millstream.toml"
    file.write_text("", encoding="utf-8")
    assert token_of(load(file)) == "from the environment"
    file.write_text('[metrics]\ntoken_file = "token"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match="can't be read"):
        token_of(load(file))
    Path(tmp_path / "token").write_text(" \n", encoding="utf-8")
    with pytest.raises(SettingsError, match="is empty"):
        token_of(load(file))
    Path(tmp_path / "token").write_text("s3cret\n", encoding="utf-8")
    assert token_of(load(file)) == "s3cret"
