"""A budget that thins: known probabilities, a draw that is the same on every try, and never more than the budget."""

import pytest

from millstream.adapters.sqlite_memory import PRUNE_EVERY, SqliteMemory
from millstream.grade import Abstained, Scored, score
from millstream.graders.judges.budget import NOT_DRAWN, Budget, drawn, sampled
from millstream.graders.registry import Told

NOON = 1_700_000_000.0


@pytest.fixture
def memory(tmp_path):
    made = SqliteMemory(tmp_path / "judges.db", entries=10)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("spent", "propensity"),
    [(0.0, 1.0), (5.0, 1.0), (6.0, 0.8), (7.5, 0.5), (9.9, 0.02), (9.96, 0.0), (10.0, 0.0), (12.0, 0.0)],
)
def test_the_probability_falls_with_the_money(memory, spent, propensity):
    """1 until half is spent, then 2·(1 − spent/budget); below 1 % nothing."""
    budget = Budget(memory, 10.0, now=lambda: NOON)
    budget.spend(spent)
    assert budget.propensity() == pytest.approx(propensity)
    assert budget.exhausted == (spent >= 10.0)


def test_a_day_begins_with_all_of_it(memory):
    """At midnight, UTC."""
    now = [NOON]
    budget = Budget(memory, 1.0, now=lambda: now[0])
    budget.spend(1.0)
    assert budget.exhausted
    now[0] += 86_400
    assert (budget.exhausted, budget.propensity()) == (False, 1.0)


def test_no_budget_thins_nothing(memory):
    """0 is no bound."""
    budget = Budget(memory, 0.0)
    budget.spend(1e9)
    assert (budget.propensity(), budget.exhausted) == (1.0, False)


def test_all_processes_share_a_day(memory, tmp_path):
    """What one spends, the other sees."""
    other = SqliteMemory(tmp_path / "judges.db")
    Budget(memory, 1.0, now=lambda: NOON).spend(0.75)
    assert Budget(other, 1.0, now=lambda: NOON).propensity() == 0.5
    other.close()


def test_the_draw_has_its_probability_and_is_the_same_each_time():
    """10,000 runs: within four standard errors of 0.3, and drawn at 0.2 only if drawn at 0.3."""
    keys = [f"judge run-{n}" for n in range(10_000)]
    hits = {key for key in keys if drawn(key, 0.3)}
    assert abs(len(hits) - 3000) < 4 * (10_000 * 0.3 * 0.7) ** 0.5
    assert hits == {key for key in keys if drawn(key, 0.3)}
    assert {key for key in keys if drawn(key, 0.2)} < hits
    assert (drawn("x", 0.0), drawn("x", 1.0)) == (False, True)


def test_weighted_by_the_probability_the_mean_is_unbiased(memory, make):
    """A day of 2,000 runs at 0.01 each and a budget of 5: the weighted mean of what was judged is that of all,
    though only some were judged, and the budget is not passed.
    """
    budget = Budget(memory, 5.0, now=lambda: NOON)
    truth, weighted, judged = 0.0, 0.0, 0
    for n in range(2000):
        value = float(n % 3 == 0) if n < 1000 else float(n % 3 != 0)  # what the runs are worth drifts
        truth += value / 2000

        def grade(_, value=value):
            budget.spend(0.01)
            return Told(grade=score(value))

        told = sampled("judge", make(id=f"run-{n}"), budget.propensity(), grade)
        if isinstance(told.grade, Scored):
            judged += 1
            weighted += told.grade.score / told.propensity / 2000
        else:
            assert isinstance(told.grade, Abstained)
            assert told.flags == (NOT_DRAWN,)
    assert 250 < judged <= 500
    assert memory.spent(budget.day) <= 5.0
    assert budget.propensity() < 0.1
    assert weighted == pytest.approx(truth, abs=0.25)


def test_memory_keeps_the_newest(memory):
    """The oldest leave when there are too many, and 0 entries keep nothing."""
    for n in range(PRUNE_EVERY):
        memory.keep(f"k{n}", b"v")
    assert [memory.recall(f"k{n}") for n in (0, PRUNE_EVERY - 11, PRUNE_EVERY - 10, PRUNE_EVERY - 1)] == [
        None,
        None,
        b"v",
        b"v",
    ]


def test_a_memory_of_none(tmp_path):
    """Spending is counted all the same."""
    none = SqliteMemory(tmp_path / "none.db", entries=0)
    none.keep("k", b"v")
    none.spend("2026-01-01", 1.5)
    assert (none.recall("k"), none.spent("2026-01-01")) == (None, 1.5)
    none.close()
