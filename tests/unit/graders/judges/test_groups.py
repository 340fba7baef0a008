"""Rollouts of one task put in order, and preferred two by two."""

import json
import re

import pytest

from millstream.graders.judges.constitution import Constitution
from millstream.graders.judges.judge import JudgeFault
from millstream.graders.judges.ranking import Ranking
from millstream.graders.judges.sitting import Sitting

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
