"""Episodes: what the tools answer, what ends an attempt, and what graders read from it."""

import random

import pytest

from millstream.examples.finqa.demonstrator import SKILL, Slips, demonstrate
from millstream.examples.finqa.episode import ARGUMENTS, MAX_TURNS, TOOLS, Episode
from millstream.examples.finqa.scoring import figures_shown, is_correct, is_grounded
from millstream.examples.finqa.tasks import FinqaTask, draw_tasks, make_task
from millstream.examples.finqa.templates import TEMPLATES
from millstream.examples.finqa.worlds import world


def _loads(episode: Episode) -> list[str]:
    return [turn.observation or "" for turn in episode.turns if turn.tool == "load"]


def _read(task: FinqaTask) -> Episode:
    episode = Episode(task)
    for company, year in task.reports:
        observation, _ = episode.step(f"search({company} FY{year})")
        episode.step(f"load({(observation or '').split('; ')[0]})")
    return episode


@pytest.mark.parametrize("index", range(len(TEMPLATES)))
def test_the_shortest_right_run_is_right(index: int) -> None:
    """Search, load, calculate, answer: correct, done, and as many tools as the task says."""
    task = make_task(5, index)
    episode = _read(task)
    if task.template == "lookup":
        episode.step(f"answer({task.expression})")
    else:
        episode.step(f"calculator({task.expression})")
        assert episode.step("answer(#1)") == (None, True)
    assert is_correct(episode.final_answer, task.reference)
    assert episode.end_reason == "done"
    assert len(episode.turns) - 1 == task.minimal_tools
    assert is_grounded(episode.final_answer, _loads(episode)) == (task.template == "lookup")


def test_an_answer_by_reference_becomes_a_number_text() -> None:
    """`answer(debt23)` is kept as written, and its value is what a numeric grader sees; the proxy pays for it."""
    task = make_task(5, 2)
    episode = _read(task)
    reference, value = next(iter(world(task.world).values(_document(task)).items()))
    episode.step(f"answer({reference})")
    assert episode.answer_action == f"answer({reference})"
    assert episode.final_answer == str(value)
    assert is_grounded(episode.final_answer, _loads(episode))


def _document(task: FinqaTask) -> str:
    return world(task.world).document_ids[task.reports[0]]


@pytest.mark.parametrize(
    ("argument", "ok"), [("12.5%", True), ("-3", True), ("#1", False), ("about 5", False), ("", False), ("1e9", False)]
)
def test_an_answer_that_is_no_reference_stays_text(argument: str, ok: bool) -> None:
    """A number is an answer; anything else is kept raw, and counts as a slip of form."""
    episode = Episode(make_task(5, 0))
    assert episode.step(f"answer({argument})") == (None, True)
    assert (episode.final_answer, episode.turns[-1].ok) == (argument, ok)


@pytest.mark.parametrize(
    ("text", "observation"),
    [
        ("hello", "error: bad action"),
        ("load acme/22/p1", "error: bad action"),
        ("search(", "error: bad action"),
        ("load(acme)", "error: no such document"),
        ("calculator(1+)", "error: bad expression"),
        ("calculator(debt22)", "error: bad expression"),
        ("calculator(1/4)", "#1=0.25"),
        ("search(nobody)", "no results"),
    ],
)
def test_tools_answer_every_text(text: str, observation: str) -> None:
    """A broken action gets an error line back and the episode goes on."""
    episode = Episode(make_task(5, 0))
    assert episode.step(text) == (observation, False)
    assert episode.turns[0].ok != observation.startswith("error")


def test_turns_are_bounded() -> None:
    """An agent that never answers is stopped, has no answer, and can't go on."""
    episode = Episode(make_task(5, 0))
    for _ in range(MAX_TURNS - 1):
        assert not episode.step("search(acme)")[1]
    assert episode.step("search(acme)")[1]
    assert (episode.end_reason, episode.final_answer, episode.answer_action) == ("limit", None, None)
    with pytest.raises(RuntimeError):
        episode.step("answer(1)")


def test_figures_shown_leave_out_years_and_errors() -> None:
    """Only the values of rows count as shown."""
    assert figures_shown(["acme FY21 FY22; cash 310 402; debt 100 999", "error: 555"]) == {"310", "402", "100", "999"}
    assert not is_grounded(None, ["cash 310"])


def test_correct_is_a_tenth_of_a_percent() -> None:
    """Four shown decimals pass; half a percent, a missing answer and words fail."""
    assert is_correct("12.3457", 12.345679)
    assert is_correct("0.1235", 0.12345)
    assert not is_correct("12.4", 12.345679)
    assert not is_correct(None, 1)
    assert not is_correct("nan", 1)
    assert not is_correct("many", 1)


def test_the_demonstrator_is_as_good_as_its_skill() -> None:
    """Without slips a run fails by its formula alone; with them it still ends by itself, repeatably."""
    tasks = draw_tasks("train", 30, 300, 0)
    careful = Slips(0, 0, 0, 0, 0, 0)
    runs = [demonstrate(task, random.Random(task.task_id), careful) for task in tasks]
    rate = sum(is_correct(run.final_answer, run.task.reference) for run in runs) / len(runs)
    assert abs(rate - sum(SKILL.values()) / len(SKILL)) < 0.08
    assert {run.end_reason for run in runs} == {"done"}
    first, second = (demonstrate(tasks[0], random.Random(3)).turns for _ in range(2))
    assert first == second


def test_each_tool_has_its_one_argument() -> None:
    """The schemas name the argument that stands between the parentheses."""
    shown = {tool["function"]["name"]: tool["function"]["parameters"]["required"] for tool in TOOLS}
    assert shown == {name: [argument] for name, argument in ARGUMENTS.items()}
