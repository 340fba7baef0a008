"""Decisions: which versions wait for one, what is asked about them, and the events it is written as."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from millstream.codec import digest
from millstream.deploy.evaluation import EvaluationRequest, Selection
from millstream.deploy.gate import Judgement
from millstream.evidence import GateEvidence, to_json
from millstream.policy import BY_GATE, AnyPolicyEvent, GateDecided, PolicyLedger, PolicyPromoted, Version
from millstream.settings import GateSettings


class Candidate(Struct, frozen=True):
    """A version to judge, and the champion it is judged against."""

    lineage: str
    version: int
    champion: int


def waits(ledger: PolicyLedger, lineage: str, version: Version) -> bool:
    """Whether a version still needs a verdict: it comes from a finished training, and either no gate
    has judged it or its promotion lost against another champion.
    """
    training = ledger.trainings.get(version.training_id)
    if version.stage != "candidate" or training is None or training.state != "finished":
        return False
    decided = ledger.gates.get((lineage, version.version), [])
    if not decided:
        return True
    lost = decided[-1].verdict == "promote" and decided[-1].expected_champion != ledger.lineage(lineage).champion
    return lost and all(number != version.version for _, number in ledger.lineage(lineage).history)


def seed_of(candidate: Candidate) -> int:
    """Unseen tasks for each gate: another version or champion draws others."""
    return int(digest("gate", candidate.lineage, candidate.version, candidate.champion)[:12], 16)


def request_for(candidate: Candidate, settings: GateSettings, version: int, folder: str) -> EvaluationRequest:
    """What is asked of the evaluator about one side; the same tasks for both."""
    return EvaluationRequest(
        lineage=candidate.lineage,
        version=version,
        policy_dir=folder,
        selection=Selection(split="held_out", seed=seed_of(candidate), tasks=settings.tasks, worlds=settings.worlds),
        temperature=settings.temperature,
    )


def decision_events(candidate: Candidate, judgement: Judgement) -> list[AnyPolicyEvent]:
    """The decision and, on promote, the promotion; its id is a hash of what it was decided from."""
    evidence = to_json(judgement.evidence)
    decision = digest("gate", candidate.lineage, candidate.version, candidate.champion, msgspec.json.encode(evidence))
    events: list[AnyPolicyEvent] = [
        GateDecided(
            id=decision,
            lineage=candidate.lineage,
            version=candidate.version,
            expected_champion=candidate.champion,
            verdict=judgement.verdict,
            reasons=judgement.reasons,
            evidence=evidence,
        )
    ]
    if judgement.verdict == "promote":
        events.append(
            PolicyPromoted(
                id=digest("promote", decision),
                lineage=candidate.lineage,
                version=candidate.version,
                expected_champion=candidate.champion,
                reason=judgement.reasons[0],
                by=BY_GATE,
            )
        )
    return events


def could_not_run(candidate: Candidate, tries: int, error: Exception) -> Judgement:
    """No evidence is no ground to promote and none to refuse."""
    return Judgement(
        verdict="inconclusive",
        reasons=(f"the evaluation could not run, tried {tries} times: {type(error).__name__}: {error}",),
        evidence=GateEvidence(
            lineage=candidate.lineage,
            version=candidate.version,
            champion=candidate.champion,
            seed=seed_of(candidate),
        ),
    )
