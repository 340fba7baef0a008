"""Everything that made a version, found again from the log."""

import msgspec
import pytest
from msgspec.structs import replace

from millstream.console.catalog import decisions
from millstream.console.why import why
from millstream.console.why_text import render
from millstream.errors import SettingsError
from millstream.ports import Message
from millstream.rollout import RolloutAdmitted, RolloutRefused


def test_a_trained_version_is_explained(looped) -> None:
    """Its six rollouts with grades and decisions, the training, the gate and when it served."""
    found = why(looped, 2, "policy")
    assert [r.rollout_id for r in found.rollouts] == [f"r{i}" for i in range(6)]
    first = found.rollouts[0]
    assert (first.trajectory_id, first.reward, first.formula) == ("run-0", 1.0, "correct")
    assert [g.id for g in first.grades] == ["g0", "f0"]
    assert [d.kind for d in first.decisions] == ["RolloutAdmitted", "RolloutsLeased", "RolloutsAcknowledged"]
    assert found.training is not None
    assert (found.training.seed, found.training.manifest) == (7, "m2")
    assert found.epochs == {"correct@e1": 6, "format@e2": 6}
    assert (found.tally.scored, found.tally.failed) == (12, 0)
    assert found.refused == {"no_reward": 2}
    assert [g.verdict for g in found.gates] == ["promote"]
    assert [(s.version, s.until_ms) for s in found.served] == [(2, None)]


def test_a_base_has_no_training(looped) -> None:
    """Version 1 has no parent, no rollouts, no gate; it served until the promotion."""
    found = why(looped, 1, "policy")
    assert found.training is None
    assert found.rollouts == ()
    assert "no parent: a base" in render(found)
    assert "(bootstrap)" in render(found)


def test_the_text_reads_in_order(looped) -> None:
    """The head, the training, the rollouts (cut, with a count), the gate's table and the service."""
    text = render(why(looped, 2, "policy"), shown=2)
    order = [
        "version 2 of policy",
        "training t2",
        "learned from 6 rollouts of 3 tasks, mean reward 0.500",
        "run-1",
        "… and 4 more",
        "gate 2026-01-01T00:02:00.000Z against version 1: promote",
        "60 won, 10 lost",
        "served",
    ]
    places = [text.index(piece) for piece in order]
    assert places == sorted(places)
    assert "12 scored, 0 failed, 0 abstained, 0 censored" in text
    assert "admitted → leased → acknowledged" in text
    assert "run-2" not in text


def test_where_the_files_lie_is_told_as_the_log_has_it(looped) -> None:
    """Relative to the data directory; an absolute place, as older logs have it, is left as it is."""
    found = why(looped, 2, "policy")
    assert "files: v2 in the data directory" in render(found)
    found.version.uri = "/data/mlflow/v2"
    assert "files: /data/mlflow/v2" in render(found)
    assert "/data/mlflow/v2 in the data" not in render(found)


def test_what_is_not_there_names_what_is(looped) -> None:
    """An unknown version or lineage lists the known ones."""
    with pytest.raises(SettingsError, match="no version 9; known: 1, 2"):
        why(looped, 9, "policy")
    with pytest.raises(SettingsError, match="no lineage 'polisy'; known: policy"):
        why(looped, 1, "polisy")


def test_the_answer_is_json(looped) -> None:
    """All of it is plain data without a NaN."""
    tree = msgspec.json.decode(msgspec.json.encode(why(looped, 2, "policy")))
    assert tree["rollouts"][5]["trajectory_id"] == "run-5"


def test_what_became_of_its_runs_since_is_told(looped, clock) -> None:
    """Late feedback changed a reward, a revision another, a third run is refused now, and a fourth is as it was."""
    used = {r.trajectory_id: r for r in why(looped, 2, "policy").rollouts}
    assert {r.since for r in used.values()} == {""}
    clock.advance(86_400)
    now = clock.now_ms()
    told = [one for one in decisions(looped) if isinstance(one, RolloutAdmitted)][:4]
    again = [replace(one, id=f"again-{one.id}", rollout_id=f"new-{one.id}", log_ms=now) for one in told]
    again[0] = replace(again[0], reward=0.25)
    again[1] = replace(again[1], trajectory_revision=2)
    refusal = RolloutRefused(
        id="x",
        namespace="default",
        log_ms=now + 1,
        trajectory_id="run-2",
        trajectory_revision=1,
        group="g",
        reason="no_reward",
    )
    value = b"\n".join(map(msgspec.json.encode, [*again, refusal]))
    looped.append("buffer-events", [Message("k", value)])
    found = {r.trajectory_id: r.since for r in why(looped, 2, "policy").rollouts if r.since}
    assert found == {
        "run-0": "reward 0.25",
        "run-1": f"reward {used['run-1'].reward:g}, revision 2",
        "run-2": "refused: no_reward",
    }
    text = render(why(looped, 2, "policy"))
    assert "3 of them would be another rollout now (run-0, reward 0.25; --json has all)" in text
