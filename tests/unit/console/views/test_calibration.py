"""Calibration from a log: which words count, labels of classes, feedback as gold, files with faults."""

from __future__ import annotations

import json

import msgspec
import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.console.calibration import Wanted, calibrate, render
from millstream.errors import SettingsError
from millstream.grade import GradeGiven, abstain, fail, score
from millstream.ports import Message
from millstream.topics import GRADES


@pytest.fixture
def log(tmp_path):
    found = open_sqlite(tmp_path / "log.db", clock=ManualClock())
    yield found.log
    found.close()


def say(log, run, grader, *grades):
    """What a grader said of a run, attempt by attempt."""
    given = [
        GradeGiven(id=f"{run}-{grader}-{n}", trajectory_id=run, revision=1, grader=grader, epoch=f"{grader}@1",
                   attempt=n, grade=grade, known_ms=1)
        for n, grade in enumerate(grades, 1)
    ]  # fmt: skip
    log.append(GRADES.name, [Message(run, b"\n".join(map(msgspec.json.encode, given)), {"kind": "grades"})])


def test_runs_without_a_score_are_counted_apart(log):
    """A failed judge is no "no": it is counted; a later attempt that did not fail stands."""
    say(log, "a", "judge", score(0.9))
    say(log, "b", "judge", fail("down", "infrastructure"), score(0.2))
    say(log, "c", "judge", fail("no verdict", "unparsable"))
    say(log, "d", "judge", abstain("not mine"))
    for run, value in (("a", 1.0), ("b", 0.0), ("c", 1.0), ("d", 1.0), ("e", 1.0)):
        say(log, run, "feedback", score(value))
    found = calibrate(log, Wanted(graders=("judge",), gold="feedback"))
    assert (found.agreement.n, found.unscored, found.agreement.agreement) == (2, 2, 1.0)
    assert found.epoch == "judge@1"
    assert "2 runs with both, 2 on which it gave no score" in render(found)
    assert found.abstain is None
    assert "29 without an error are needed" in found.abstain_note


def test_classes_are_compared_by_their_labels(log):
    """Three classes, one confusion: recall and precision of each."""
    told = [("cat", "cat")] * 5 + [("dog", "cat")] * 2 + [("dog", "dog")] * 3 + [("cow", "cow")] * 2
    for n, (gold, given) in enumerate(told):
        say(log, f"r{n}", "judge", score(1.0, label=given))
        say(log, f"r{n}", "human", score(1.0, label=gold))
    found = calibrate(log, Wanted(graders=("judge",), gold="human", labels=True))
    assert found.agreement.confusion["dog"] == {"cat": 2, "cow": 0, "dog": 3}
    (dog,) = [c for c in found.agreement.classes if c.label == "dog"]
    assert (dog.recall, dog.precision) == (0.6, 1.0)
    assert found.agreement.agreement == pytest.approx(10 / 12)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "line 2"),
        ('{"trajectory_id": "a"}', "line 2"),
        ('{"label": "pass"}', "line 2"),
        ('{"id": "a", "value": 1e999}', "line 2"),
        ('{"id": "a", "value": "high"}', "line 2"),
    ],
)
def test_a_bad_row_of_labels_is_named(log, row, told):
    """File and line, and what a row is."""
    say(log, "a", "judge", score(1.0))
    labels = f'{{"id": "a", "label": "pass"}}\n{row}\n'.encode()
    with pytest.raises(SettingsError, match=told):
        calibrate(log, Wanted(graders=("judge",), gold="x"), labels)


def test_labels_of_a_file_stand_for_gold(log):
    """Words or numbers; runs that nobody labelled are left out."""
    for n in range(4):
        say(log, f"r{n}", "judge", score(1.0))
    rows = [{"id": "r0", "label": "good"}, {"trajectory_id": "r1", "label": "bad"}, {"id": "r2", "value": 0.7}]
    found = calibrate(log, Wanted(graders=("judge",), gold="x"), "\n".join(map(json.dumps, rows)).encode())
    assert (found.agreement.n, found.agreement.agreement) == (3, pytest.approx(2 / 3))
