"""A decision made again under another epoch of its gold."""

from __future__ import annotations

import msgspec

from millstream.deploy.archive import pack, unpack
from millstream.deploy.decision import Candidate, decision_events
from millstream.deploy.gate import GateContext, judge
from millstream.deploy.rejudging import rejudge_all
from millstream.events import TrajectoryEnded, TrajectoryId
from millstream.grade import score
from millstream.ledger import LedgerReader, append_policy_events
from millstream.settings import GateSettings
from millstream.trajectory import Trajectory

SETTINGS = GateSettings(gold="correct")
CONTEXT = GateContext(lineage="policy", version=2, champion=1)


def run_of(outcome):
    """A run whose answer is its gold."""
    end = TrajectoryEnded(id="e", trajectory_id=TrajectoryId("t"), final_answer=str(outcome.gold.score))
    return msgspec.json.encode(Trajectory(id=TrajectoryId("t"), events=(end,), content_hash="h"))


def outcomes(sheet, successes, *, runs=True, epoch="correct@1"):
    made = [msgspec.structs.replace(outcome, gold_epoch=epoch) for outcome in sheet(successes)]
    return [msgspec.structs.replace(outcome, run=run_of(outcome)) for outcome in made] if runs else made


def decided(log, base, candidate, champion, challenger):
    """A ledger with the decision, and its archive."""
    base(log), candidate(log, 2)
    judged = judge(champion, challenger, SETTINGS, CONTEXT)
    packed = pack(champion, challenger, SETTINGS, CONTEXT)
    judged = msgspec.structs.replace(judged, evidence=msgspec.structs.replace(judged.evidence, archive="kept"))
    append_policy_events(log, decision_events(Candidate("policy", 2, 1), judged))
    return LedgerReader(log).refresh(), packed


def told(t):
    return score(float(t.final_answer))


def turned(t):
    return score(1.0 - float(t.final_answer))


def test_a_promotion_that_would_have_been_refused(log, base, candidate, sheet):
    """Gold was upside down: what was promoted would have been refused, and says so."""
    ledger, packed = decided(log, base, candidate, outcomes(sheet, 120), outcomes(sheet, 200))
    (found,) = rejudge_all(ledger, "correct", "correct@2", lambda _: packed, turned)
    assert (found.verdict, found.would, found.otherwise) == ("promote", "refuse", True)
    assert (found.version, found.champion, found.gold_epoch) == (2, 1, "correct@1")


def test_the_same_gold_decides_the_same(log, base, candidate, sheet):
    """A mended comment changes no verdict; the same epoch and another grader are not asked at all."""
    ledger, packed = decided(log, base, candidate, outcomes(sheet, 120), outcomes(sheet, 200))
    (found,) = rejudge_all(ledger, "correct", "correct@2", lambda _: packed, told)
    assert (found.would, found.otherwise) == ("promote", False)
    assert not list(rejudge_all(ledger, "correct", "correct@1", lambda _: packed, turned))
    assert not list(rejudge_all(ledger, "format", "format@2", lambda _: packed, turned))


def test_without_runs_nothing_is_claimed(log, base, candidate, sheet):
    """An evaluation that kept no runs, an archive that is gone or broken: it can't be told, and why."""
    ledger, packed = decided(log, base, candidate, outcomes(sheet, 120, runs=False), outcomes(sheet, 200, runs=False))
    for archive in (packed, b"", b"no archive"):
        (found,) = rejudge_all(ledger, "correct", "correct@2", lambda _, kept=archive: kept, turned)
        assert (found.would, found.otherwise) == (None, False)
        assert "no runs" in found.reason


def test_gold_of_two_epochs_is_refused(sheet):
    """A gate never mixes epochs of its gold."""
    judged = judge(outcomes(sheet, 120), outcomes(sheet, 200, epoch="correct@2"), SETTINGS, CONTEXT)
    assert judged.verdict == "refuse"
    assert judged.reasons == ("gold was measured by 2 epochs: correct@1, correct@2",)


def test_the_evidence_names_the_epoch(sheet):
    """Of the gold that decided."""
    judged = judge(outcomes(sheet, 120), outcomes(sheet, 200), SETTINGS, CONTEXT)
    assert judged.evidence.gold_epoch == "correct@1"
    assert judge(sheet(120), sheet(200), SETTINGS, CONTEXT).evidence.gold_epoch == ""


def test_an_archive_comes_back_as_it_was(sheet):
    """Outcomes, settings and context."""
    champion, challenger = outcomes(sheet, 3), outcomes(sheet, 5)
    found = unpack(pack(champion, challenger, SETTINGS, CONTEXT))
    assert (list(found.champion), list(found.candidate)) == (champion, challenger)
    assert (found.settings, found.context) == (SETTINGS, CONTEXT)
