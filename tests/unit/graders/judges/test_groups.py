"""Rollouts of one task put in order, and preferred two by two."""

import json
import re

import pytest

from millstream.errors import SettingsError
from millstream.events import EventId, Task, TaskId, TrajectoryId, TrajectoryStarted
from millstream.graders.judges.constitution import Constitution
from millstream.graders.judges.groups import group_judge, grouped, judged
from millstream.graders.judges.judge import JudgeFault
from millstream.graders.judges.pairwise import Pairwise
from millstream.graders.judges.ranking import Ranking
from millstream.graders.judges.score import Score
from millstream.graders.judges.sitting import Sitting
from millstream.trajectory import Trajectory

RANKING = Ranking(criteria="the larger number", model="judge")


def answers_of(body):
    return [int(n) for n in re.findall(r"# Answer \d+\n<graded id=\"\w+\">\n(\d+)", body["messages"][-1]["content"])]


def fair(body):
    """The larger number first, wherever it stands."""
    shown = answers_of(body)
    return json.dumps({"reason": "larger", "order": sorted(range(1, len(shown) + 1), key=lambda n: -shown[n - 1])})


def lazy(body):
    """As they are shown."""
    return json.dumps({"reason": "x", "order": list(range(1, len(answers_of(body)) + 1))})


@pytest.fixture
def sitting(judge_of):
    return lambda definition: Sitting(judge_of(cache_entries=0), definition)


def test_the_best_has_1_and_the_worst_0(chat, sitting):
    """Four answers, two of them the same: those share their place."""
    chat.script(fair)
    found = RANKING.rank(sitting(RANKING), "which?", ["10", "30", "20", "30"])
    assert found.scores == (0.0, 1.0, 0.5, 1.0)
    assert (found.agreement, len(chat.asked)) == (1.0, 2)


def test_a_favour_for_a_place_cancels_out(chat, sitting):
    """A judge that keeps the order it is shown says nothing: all the same, and the orders disagree."""
    chat.script(lazy)
    found = RANKING.rank(sitting(RANKING), "which?", ["10", "30", "20"])
    assert found.scores == (0.5, 0.5, 0.5)
    assert found.agreement == -1.0


def test_answers_that_are_the_same_need_no_judge(chat, sitting):
    """Half for each."""
    assert RANKING.rank(sitting(RANKING), "which?", ["1", "1 ", "1"]).scores == (0.5, 0.5, 0.5)
    assert chat.asked == []


@pytest.mark.parametrize("order", [[1], [1, 1, 2], [0, 1, 2], [1, 2, 4], "1,2,3", [True, 2, 3], [1.0, 2, 3]])
def test_an_order_that_is_none_is_a_fault(chat, sitting, order):
    """Each answer once, by its number."""
    chat.script(json.dumps({"reason": "x", "order": order}))
    with pytest.raises(JudgeFault, match="order"):
        RANKING.rank(sitting(RANKING), "which?", ["10", "30", "20"])


def test_a_preference_knows_the_critiques(chat, sitting):
    """Each answer is criticised by the principles, then both are compared in both orders."""
    constitution = Constitution(principles=("Be honest.",), model="judge")

    def act(body):
        text = body["messages"][-1]["content"]
        if "# Answer A" not in text:
            good = "honest" in text.partition("# The answer")[2]
            return json.dumps({"critiques": [{"number": 1, "critique": "lies" if not good else "fine", "holds": good}]})
        assert "lies" in text
        assert "fine" in text
        a = text.partition("# Answer A")[2].partition("# Answer B")[0]
        return json.dumps({"reason": "by the critiques", "winner": "A" if "honest" in a else "B"})

    chat.script(act)
    found = constitution.prefer(sitting(constitution), "why?", "a fib", "the honest truth")
    assert (found.winner, found.swayed, len(chat.asked)) == ("second", False, 4)


def larger(body):
    """Prefers the larger number, wherever it stands."""
    text = body["messages"][-1]["content"]
    a, b = (int(n) for n in re.findall(r"# Answer [AB]\n<graded id=\"\w+\">\n(\d+)", text))
    return json.dumps({"reason": "larger", "winner": "A" if a > b else "B" if b > a else "tie"})


def test_every_two_of_a_group_are_compared(chat, judge_of, make):
    """The score is the share won; each preference is a pair of chosen and rejected."""
    chat.script(larger)
    group = [make(id=f"r{n}", answer=n) for n in ("10", "30", "20")]
    found = judged(judge_of(cache_entries=0, price_output=1.0), Pairwise(criteria="larger", model="judge"), group)
    assert [place.score for place in found.places] == [0.0, 1.0, 0.5]
    assert {(pair.chosen, pair.rejected) for pair in found.pairs} == {("r30", "r10"), ("r20", "r10"), ("r30", "r20")}
    assert (found.status, found.cost > 0, len(chat.asked)) == ("scored", True, 6)


def test_a_ranking_gives_pairs_too(chat, judge_of, make):
    """Of every two that do not share a place; runs beyond what one question holds are left out."""
    chat.script(fair)
    group = [make(id=f"r{n:02}", answer=str(n)) for n in range(18)]
    found = judged(judge_of(cache_entries=0), RANKING, group)
    assert (len(found.places), found.left_out, len(found.pairs)) == (16, 2, 16 * 15 // 2)
    assert found.pairs[0].chosen == "r15"


def test_a_group_that_the_judge_failed_has_no_scores(chat, judge_of, make):
    """Status and reason, and what was spent all the same."""
    chat.script("no order")
    found = judged(judge_of(tries=1), RANKING, [make(id="a", answer="1"), make(id="b", answer="2")])
    assert (found.status, found.places, found.pairs) == ("failed", (), ())
    assert found.reason.startswith("unparsable: ")


def test_groups_are_of_one_task_and_version():
    """A run alone is no group, and a run that telemetry cut short is in none."""

    def run(name, task, version=1, **fields):
        start = TrajectoryStarted(
            id=EventId("e"), trajectory_id=TrajectoryId(name), task=Task(id=TaskId(task)), policy_version=version
        )
        return Trajectory(id=TrajectoryId(name), events=(start,), **fields)

    cut = {"status": "interrupted", "reason": "gap_timeout"}
    runs = [run("b", "x"), run("a", "x"), run("c", "y"), run("d", "x", 2), run("e", "y", **cut), run("f", "")]
    assert [[t.id for t in group] for group in grouped(runs)] == [["a", "b"]]


def test_a_judge_of_one_run_is_no_judge_of_groups():
    """Said with the kinds that are."""
    with pytest.raises(SettingsError, match="ranking, pairwise or constitution"):
        group_judge(Score(criteria="x"), "helpful")
