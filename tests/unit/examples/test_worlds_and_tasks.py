"""Worlds and tasks: the same everywhere, answerable, and never shared between splits."""

from collections import Counter

import pytest

from millstream.examples.finqa.expressions import evaluate
from millstream.examples.finqa.tasks import FinqaTask, draw_tasks, make_task, split_of, task_from_id
from millstream.examples.finqa.templates import TEMPLATES
from millstream.examples.finqa.worlds import World

PINNED = ("apex/23/p7", "apex FY22 FY23; cash 603 480; assets 105 342; capex 245 773; revenue 101 789")


def test_a_world_is_made_from_its_number() -> None:
    """Two copies of one world agree; another number gives another world."""
    assert World(7).reports == World(7).reports
    assert World(7).reports != World(8).reports


def test_the_figures_of_a_world_stay_what_they_are() -> None:
    """A change here changes every task, the base model and all published figures."""
    world = World(1)
    document = world.search(f"{world.companies[0]} FY{world.years[world.companies[0]][1]}").split("; ")[0]
    assert (document, world.render(document)) == PINNED


def test_search_finds_the_report_that_is_named() -> None:
    """Company and year together put the one report first; nothing known finds nothing."""
    world = World(3)
    for (company, year), document in world.document_ids.items():
        assert world.search(f"{company} FY{year}").split("; ")[0] == document
    assert world.search("nobody") == "no results"


@pytest.mark.parametrize("index", range(len(TEMPLATES)))
def test_a_task_is_answered_by_its_expression_and_not_by_its_mistakes(index: int) -> None:
    """The reference is the executed expression, and each mistake is off by more than a percent."""
    for number in range(20):
        task = make_task(number, index)
        loaded = _loaded(task)
        assert task.template == TEMPLATES[index].name
        assert evaluate(task.expression, loaded, ()) == task.reference
        for mistake in task.mistakes:
            assert abs(evaluate(mistake, loaded, ()) - task.reference) > 0.01 * abs(task.reference)


def _loaded(task: FinqaTask) -> dict[str, float]:
    world = World(task.world)
    loaded: dict[str, float] = {}
    for report in task.reports:
        loaded |= world.values(world.document_ids[report])
    return loaded


def test_a_task_is_made_again_from_its_id() -> None:
    """Any process can rebuild a task that an event names."""
    task = make_task(12, 34)
    assert task_from_id(task.task_id) == task
    for text in ("finqa-1", "other-1-2", "finqa-x-2", "finqa--1-2"):
        with pytest.raises(ValueError, match="not a task"):
            task_from_id(text)


def test_splits_share_no_world() -> None:
    """Each drawn world is of its split, and the splits have about their shares."""
    for split in ("train", "held_out", "report"):
        tasks = draw_tasks(split, 30, 300, "seed")
        assert {split_of(task.split_key) for task in tasks} == {split}
        assert len({task.world for task in tasks}) == 30
        assert len({task.task_id for task in tasks}) == 300
        assert set(Counter(task.template for task in tasks).values()) == {30}
    shares = Counter(split_of(f"finqa-world-{number}") for number in range(2000))
    assert 0.55 < shares["train"] / 2000 < 0.65
    assert 0.15 < shares["report"] / 2000 < 0.25


def test_draws_repeat_and_exclude() -> None:
    """The same seed draws the same tasks; excluded worlds are drawn by none."""
    first = draw_tasks("held_out", 10, 40, 1)
    assert draw_tasks("held_out", 10, 40, 1) == first
    worlds = {task.world for task in first}
    assert not worlds & {task.world for task in draw_tasks("held_out", 10, 40, 1, exclude=worlds)}
    with pytest.raises(ValueError, match="spread"):
        draw_tasks("train", 4, 3, 0)
