"""A gold grader that pays for attacks decides nothing."""

from __future__ import annotations

from pathlib import Path

from millstream.deploy.evaluation import FunctionEvaluator
from millstream.deploy.integrity import ManifestFacts
from millstream.deploy.worker import GateDoors, GateWorker
from millstream.graders.attacks.examination import examine, examined
from millstream.graders.builtin import builtin
from millstream.ledger import append_policy_events
from millstream.settings import GateSettings


def worker(log, sheet, asked, gold):
    def evaluate(request):
        asked.append(request.version)
        return sheet({1: 120, 2: 200}[request.version])

    return GateWorker(
        log,
        GateDoors(
            evaluator=FunctionEvaluator(evaluate),
            gates=lambda *_: GateSettings(gold=gold),
            files=lambda _, v: Path(f"/models/v{v}"),
            manifests=lambda _: ManifestFacts(),
        ),
    )


def test_a_weak_gold_is_refused_with_the_reason(log, base, candidate, sheet):
    """However good the figures look: no task is run, and the reason names the attack and the mend."""
    base(log), candidate(log, 2)
    append_policy_events(log, [examined("contains", "contains@1", examine(builtin("contains")))])
    asked = []
    judged = worker(log, sheet, asked, "contains").judge("policy", 2)
    assert judged.verdict == "refuse"
    assert "contains@1 is weak: it pays for" in judged.reasons[0]
    assert "graders attack contains" in judged.reasons[0]
    assert asked == []


def test_a_sound_gold_and_one_never_examined_may_decide(log, base, candidate, sheet):
    """Only what is known to be unfit is refused."""
    base(log), candidate(log, 2)
    append_policy_events(log, [examined("contains", "contains@1", examine(builtin("contains")))])
    append_policy_events(log, [examined("correct", "correct@2", examine(builtin("correct")))])
    asked = []
    for gold in ("correct", "my_own"):
        assert worker(log, sheet, asked, gold).judge("policy", 2, dry_run=True).verdict == "promote"
    assert asked == [1, 2, 1, 2]
