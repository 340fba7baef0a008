"""Evaluators: named functions, children side by side, and the retry of what failed."""

import math
from pathlib import Path

import msgspec
import pytest

from millstream.adapters.children import Child
from millstream.deploy import remote
from millstream.deploy.evaluation import (
    EvaluationRequest,
    Evaluator,
    FunctionEvaluator,
    Selection,
    TaskOutcome,
    named_function,
    with_retries,
)
from millstream.errors import GraderError, SettingsError
from millstream.grade import Scored, fail, score

OPERATOR = """
from millstream.deploy.evaluation import TaskOutcome
from millstream.grade import fail, score

def evaluate(request):
    if request.version == 9:
        raise RuntimeError("the weights are gone")
    right = score(float(request.version))
    ids = request.selection.task_ids or [f"t{i}" for i in range(request.selection.tasks)]
    return [
        TaskOutcome(task_id=i, world="w", gold=fail("down") if i == "t1" else right, cost=float("nan"))
        for i in ids
    ]
"""


def request(version: int = 1, **selection) -> EvaluationRequest:
    """A request for a few tasks."""
    return EvaluationRequest(lineage="p", version=version, policy_dir="/m", selection=Selection(tasks=3, **selection))


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an operator's module in it, on the path."""
    (tmp_path / "operators_own.py").write_text(OPERATOR)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_named_function_is_found(operator) -> None:
    """``module:function`` gives an evaluator."""
    evaluator = FunctionEvaluator(named_function("operators_own:evaluate"))
    assert isinstance(evaluator, Evaluator)
    assert [o.task_id for o in evaluator.evaluate_many([request()])[0]] == ["t0", "t1", "t2"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "write it as module:function"),
        ("json", "write it as module:function"),
        ("no_such_module_here:f", "cannot import no_such_module_here"),
        ("json:nothing", "has no function 'nothing'"),
        ("math:pi", "has no function 'pi'"),
    ],
)
def test_a_name_that_is_no_function_says_what_to_write(name: str, message: str) -> None:
    """The message names the setting and the mend."""
    with pytest.raises(SettingsError, match=message):
        named_function(name)


def test_children_work_side_by_side(operator) -> None:
    """Three requests over two children come back in order; a NaN stays one, for the gate to refuse."""
    children = [Child(remote.MODULE, env={"PYTHONPATH": str(operator)}) for _ in range(2)]
    try:
        evaluator = remote.ChildEvaluator(children, "operators_own:evaluate", timeout_s=60)
        found = evaluator.evaluate_many([request(1), request(2), request(3)])
        assert [sheet[0].gold for sheet in found] == [score(1.0), score(2.0), score(3.0)]
        assert math.isnan(found[0][0].cost)
        assert [child.starts for child in children] == [1, 1]
        with pytest.raises(GraderError, match="the weights are gone"):
            evaluator.evaluate_many([request(9)])
    finally:
        for child in children:
            child.close()


def test_no_children_no_evaluator() -> None:
    """An evaluator without a child is a mistake of the settings."""
    with pytest.raises(SettingsError, match="at least one child"):
        remote.ChildEvaluator([], "a:b")


def test_a_child_answers_one_method() -> None:
    """Anything else is refused by name."""
    with pytest.raises(SettingsError, match="not 'train'"):
        remote.handle("train", b"")


def test_a_retry_never_trades_a_score_away(sheet) -> None:
    """Only what was unscored is asked for again, and only a score replaces it."""
    calls: list[EvaluationRequest] = []

    def evaluate(asked: EvaluationRequest) -> list[TaskOutcome]:
        calls.append(asked)
        again = bool(asked.selection.task_ids)
        return [
            TaskOutcome(task_id="a", world="w", gold=score(0.0 if again else 1.0)),
            TaskOutcome(task_id="b", world="w", gold=score(1.0) if again else fail("down")),
            TaskOutcome(task_id="c", world="w", gold=fail("still down" if again else "down")),
        ]

    found = with_retries(FunctionEvaluator(evaluate), [request()], retries=1)[0]
    assert [type(o.gold).__name__ for o in found] == ["Scored", "Scored", "Failed"]
    assert isinstance(found[0].gold, Scored)
    assert found[0].gold.score == 1.0
    assert found[2].gold == fail("down")
    assert [c.selection.task_ids for c in calls] == [(), ("b", "c")]


def test_nothing_failed_nothing_is_asked_again(sheet) -> None:
    """A clean sheet is one call."""
    calls: list[EvaluationRequest] = []

    def evaluate(asked: EvaluationRequest) -> list[TaskOutcome]:
        calls.append(asked)
        return sheet(3, n=3)

    with_retries(FunctionEvaluator(evaluate), [request()], retries=3)
    assert len(calls) == 1
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(calls[0]), type=EvaluationRequest) == calls[0]
