"""The gate worker on a real log: decisions, races, retries, and evaluations that fail."""

import threading
from pathlib import Path

import msgspec
import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.deploy import promotion
from millstream.deploy.evaluation import EvaluationRequest, FunctionEvaluator
from millstream.deploy.integrity import ManifestFacts
from millstream.deploy.worker import Candidate, GateDoors, GateWorker
from millstream.errors import SettingsError, Unavailable
from millstream.events import Interface
from millstream.grade import fail
from millstream.ledger import LedgerReader
from millstream.settings import GateSettings


class Bench:
    """An operator's evaluation: a rate for each version, and what was asked."""

    def __init__(self, sheet, rates: dict[int, int]) -> None:
        self.sheet = sheet
        self.rates = rates
        self.asked: list[EvaluationRequest] = []
        self.errors: list[Exception] = []

    def __call__(self, request: EvaluationRequest):
        self.asked.append(request)
        if self.errors:
            raise self.errors.pop(0)
        return self.sheet(self.rates[request.version])


def doors(bench, gates=lambda *_: GateSettings(), manifests=lambda _: ManifestFacts()) -> GateDoors:
    """Doors to a bench."""
    return GateDoors(
        evaluator=FunctionEvaluator(bench), gates=gates, files=lambda _, v: Path(f"/models/v{v}"), manifests=manifests
    )


def run(worker: GateWorker) -> None:
    """Step until nothing is left to do now."""
    while worker.step():
        worker.wait(10)


def test_a_better_candidate_is_promoted(log, base, candidate, sheet) -> None:
    """One append holds the decision and the promotion, with the evidence and the champion expected."""
    base(log), candidate(log, 2)
    worker = GateWorker(log, doors(Bench(sheet, {1: 120, 2: 200})))
    run(worker)
    ledger = LedgerReader(log).refresh()
    assert ledger.lineages["policy"].champion == 2
    decided = ledger.gates["policy", 2][0]
    assert (decided.verdict, decided.expected_champion) == ("promote", 1)
    assert decided.evidence["test"]["wins"] == 80
    assert worker.pending() == []


def test_both_sides_run_the_same_unseen_tasks(log, base, candidate, sheet) -> None:
    """Champion and candidate get one selection, of held-out worlds, which no other gate draws again."""
    base(log), candidate(log, 2), candidate(log, 3)
    bench = Bench(sheet, {1: 120, 2: 120, 3: 120})
    run(GateWorker(log, doors(bench)))
    assert [r.version for r in bench.asked] == [1, 2, 1, 3]
    seeds = [r.selection.seed for r in bench.asked]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
    assert {r.selection.split for r in bench.asked} == {"held_out"}
    assert (bench.asked[0].selection.tasks, bench.asked[0].selection.worlds) == (300, 30)
    assert bench.asked[1].policy_dir == "/models/v2"


def test_a_worse_and_an_unproven_candidate_are_decided_too(log, base, candidate, sheet) -> None:
    """Refuse and inconclusive are events as well; the champion stays."""
    base(log), candidate(log, 2), candidate(log, 3)
    run(GateWorker(log, doors(Bench(sheet, {1: 150, 2: 80, 3: 151}))))
    ledger = LedgerReader(log).refresh()
    assert [ledger.gates["policy", v][0].verdict for v in (2, 3)] == ["refuse", "inconclusive"]
    assert ledger.lineages["policy"].champion == 1


def test_a_decided_candidate_is_not_judged_again(log, base, candidate, sheet) -> None:
    """A worker that starts anew finds nothing to do; after a rollback neither."""
    base(log), candidate(log, 2)
    bench = Bench(sheet, {1: 120, 2: 200})
    run(GateWorker(log, doors(bench)))
    promotion.rollback(log, "policy", "changed our mind")
    asked = len(bench.asked)
    run(GateWorker(log, doors(bench)))
    assert len(bench.asked) == asked
    assert LedgerReader(log).refresh().lineages["policy"].champion == 1


def test_a_lineage_without_a_gate_waits(log, base, candidate, sheet) -> None:
    """No gate, no verdict: the candidate stays one, until a gate stands before it."""
    base(log), candidate(log, 2)
    bench = Bench(sheet, {1: 120, 2: 200})
    assert not GateWorker(log, doors(bench, gates=lambda *_: None)).step()
    gates = lambda lineage, version: GateSettings() if (lineage, version) == ("policy", 2) else None  # noqa: E731
    assert GateWorker(log, doors(bench, gates=gates)).pending() == [Candidate("policy", 2, 1)]


def test_step_never_waits_for_the_evaluation(log, base, candidate, sheet) -> None:
    """While tasks run, steps return at once and say that nothing moved."""
    base(log), candidate(log, 2)
    go, bench = threading.Event(), Bench(sheet, {1: 120, 2: 200})

    def slow(request: EvaluationRequest):
        go.wait(20)
        return bench(request)

    worker = GateWorker(log, doors(slow))
    assert worker.step()
    assert worker.busy
    assert not worker.step()
    go.set()
    worker.wait(20)
    assert worker.step()
    assert not worker.busy
    assert LedgerReader(log).refresh().lineages["policy"].champion == 2


def test_m08_a_slow_gate_loses_to_a_newer_champion(log, base, candidate, sheet) -> None:
    """M08: the champion moves while version 2 is judged against version 1: that judgement is dropped
    and version 2 is judged again, against version 3, on other tasks; it does not overwrite it.
    """
    base(log), candidate(log, 2), candidate(log, 3)
    bench = Bench(sheet, {1: 100, 2: 160, 3: 220})
    only_two = lambda _, version: GateSettings() if version == 2 else None  # noqa: E731
    worker = GateWorker(log, doors(bench, gates=only_two))
    assert worker.step()
    worker.wait(10)
    promotion.promote(log, "policy", 3, "the fast promoter")
    run(worker)
    ledger = LedgerReader(log).refresh()
    assert ledger.lineages["policy"].champion == 3
    assert [(g.verdict, g.expected_champion) for g in ledger.gates["policy", 2]] == [("refuse", 3)]
    assert bench.asked[0].selection.seed != bench.asked[-1].selection.seed
    assert [v for _, v in ledger.lineages["policy"].history] == [1, 3]


def test_m08_two_workers_of_two_processes(tmp_path, base, candidate, sheet) -> None:
    """M08: two workers judge two candidates of one parent at once; the second to write sees that the
    champion moved, judges again and is held against the new champion.
    """
    one, two = open_sqlite(tmp_path / "both.db"), open_sqlite(tmp_path / "both.db")
    base(one.log), candidate(one.log, 5), candidate(one.log, 6)
    bench = Bench(sheet, {1: 100, 5: 200, 6: 200})
    slow = GateWorker(one.log, doors(bench, gates=lambda _, v: GateSettings() if v == 5 else None))
    fast = GateWorker(two.log, doors(bench, gates=lambda _, v: GateSettings() if v == 6 else None))
    slow.step()
    slow.wait(10)
    run(fast)
    run(slow)
    lineage = LedgerReader(one.log).refresh().lineages["policy"]
    assert lineage.champion == 6
    assert lineage.versions[5].verdict == "inconclusive"
    one.close(), two.close()


def test_an_evaluation_that_fails_is_tried_again_later(log, base, candidate, sheet) -> None:
    """A child that died is tried again after a wait, by the given clock; then all is as ever."""
    base(log), candidate(log, 2)
    bench, now = Bench(sheet, {1: 120, 2: 200}), [0.0]
    bench.errors = [Unavailable("the child died")]
    worker = GateWorker(log, doors(bench), clock=lambda: now[0])
    run(worker)
    assert LedgerReader(log).refresh().gates == {}
    assert not worker.step()
    now[0] = 2.5
    run(worker)
    assert LedgerReader(log).refresh().lineages["policy"].champion == 2


def test_an_evaluation_that_never_runs_is_inconclusive(log, base, candidate, sheet) -> None:
    """After three tries the verdict is that nothing was proven, with what went wrong."""
    base(log), candidate(log, 2)
    bench, now = Bench(sheet, {}), [0.0]
    worker = GateWorker(log, doors(bench), clock=lambda: now[0])
    for _ in range(3):
        run(worker)
        now[0] += 100
    decided = LedgerReader(log).refresh().gates["policy", 2]
    assert [d.verdict for d in decided] == ["inconclusive"]
    assert "tried 3 times: KeyError" in decided[0].reasons[0]


def test_failed_gold_grades_are_run_once_more(log, base, candidate, sheet) -> None:
    """Ten failed grades are asked for again, those tasks alone; what then is scored counts."""
    base(log), candidate(log, 2)
    requests: list[EvaluationRequest] = []

    def flaky(request: EvaluationRequest):
        requests.append(request)
        found = sheet({1: 120, 2: 200}[request.version])
        if request.selection.task_ids:
            return [o for o in found if o.task_id in request.selection.task_ids]
        return [msgspec.structs.replace(o, gold=fail("down")) if i < 10 else o for i, o in enumerate(found)]

    run(GateWorker(log, doors(flaky)))
    assert [len(r.selection.task_ids) for r in requests] == [0, 0, 10, 10]
    decided = LedgerReader(log).refresh().gates["policy", 2][0]
    assert decided.verdict == "promote"
    assert decided.evidence["test"].get("unscored_candidate", 0) == 0


def test_a_candidate_without_a_manifest_is_refused_without_running(log, base, candidate, sheet) -> None:
    """No manifest: refused, and no task is spent on it."""
    base(log), candidate(log, 2)
    bench = Bench(sheet, {1: 120, 2: 200})
    run(GateWorker(log, doors(bench, manifests=lambda _: None)))
    decided = LedgerReader(log).refresh().gates["policy", 2][0]
    assert decided.verdict == "refuse"
    assert "no manifest" in decided.reasons[0]
    assert bench.asked == []


def test_an_interface_other_than_the_champions_is_refused(log, base, candidate, sheet) -> None:
    """A candidate that learned with other tools than the champion serves with is refused."""
    base(log), candidate(log, 2), candidate(log, 3, parent=2)
    of = {2: Interface(tools="a"), 3: Interface(tools="b")}
    manifests = lambda t: ManifestFacts(interface=of[t.version])  # noqa: E731
    run(GateWorker(log, doors(Bench(sheet, {1: 100, 2: 200, 3: 300}), manifests=manifests)))
    ledger = LedgerReader(log).refresh()
    assert ledger.lineages["policy"].champion == 2
    assert ledger.gates["policy", 3][0].reasons == (
        "interface mismatch: tools differs from what the champion serves under",
    )


def test_judging_by_hand(log, base, candidate, sheet) -> None:
    """A dry run decides nothing; a real one does; an unknown version names the mend."""
    base(log), candidate(log, 2)
    worker = GateWorker(log, doors(Bench(sheet, {1: 120, 2: 200})))
    assert worker.judge("policy", 2, dry_run=True).verdict == "promote"
    assert LedgerReader(log).refresh().lineages["policy"].champion == 1
    worker.judge("policy", 2)
    assert LedgerReader(log).refresh().lineages["policy"].champion == 2
    with pytest.raises(SettingsError, match="no version 9"):
        worker.judge("policy", 9)
    with pytest.raises(SettingsError, match="no other champion"):
        worker.judge("policy", 2)
