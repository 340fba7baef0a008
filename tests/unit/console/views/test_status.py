"""What is going on, in figures and notes."""

from millstream.console.status import render, status
from millstream.ports import BufferStats, Message, StagePosition
from millstream.topics import DEAD_LETTERS, TELEMETRY


def place(stage: str, topic: str, offset: int) -> StagePosition:
    """A stage's position."""
    return StagePosition(stage=stage, stage_partition=0, topic=topic, partition=0, topic_id="i", offset=offset)


def test_lags_champions_and_trainings(looped) -> None:
    """How far behind a stage is, what serves and what the trainings came to."""
    found = status(
        looped, [place("buffer", "grades", 5)], {"default": BufferStats(rollouts=6, groups=3)}, policy_base="b"
    )
    assert [(s.stage, s.position, s.lag) for s in found.stages] == [("buffer", 5, 3)]
    assert found.trainings == {"finished": 1}
    lineage = found.lineages[0]
    assert (lineage.champion, lineage.previous, lineage.versions, lineage.waiting) == (2, 1, 2, ())
    assert lineage.last_verdict == "version 2: promote"
    assert found.notes == ("3 records are waiting: run `millstream up`, unless it is running",)
    text = render(found)
    assert "champion is version 2 of 2 versions; last verdict: version 2: promote" in text
    assert "buffer 'default': 6 rollouts in 3 groups" in text


def test_training_is_off_without_a_base(log) -> None:
    """Without [policy] base the status says so; an empty log is no trouble."""
    found = status(log, [], {})
    assert found.notes == ("training is off: [policy] base names no model directory",)
    assert {t.topic for t in found.topics} >= {"telemetry", "policy-events", "dead-letters"}
    assert "note: training is off" in render(found)


def test_notes_say_what_to_do(log) -> None:
    """Dead letters, unprocessed telemetry and unreadable rollouts each name their command."""
    log.append(TELEMETRY.name, [Message("t", b"{}")])
    log.append(DEAD_LETTERS.name, [Message("t", b"{}"), Message("t", b"{}")])
    found = status(log, [], {"default": BufferStats(unreadable=3)}, policy_base="b")
    assert any(n.startswith("2 dead letters: `millstream dead-letters list`") for n in found.notes)
    assert any("nothing has been processed yet" in n for n in found.notes)
    assert any("3 rollouts cannot be read; `millstream buffer rebuild`" in n for n in found.notes)
