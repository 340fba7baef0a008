"""Tasks of the example: questions about a world, drawn by split so that no world serves two purposes.

A task is a pure function of its world and its index, so any process can make it again from its id.
"""

import hashlib
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from millstream.examples.finqa.expressions import evaluate
from millstream.examples.finqa.templates import TEMPLATES, Template
from millstream.examples.finqa.worlds import World, world

Split: TypeAlias = Literal["train", "held_out", "report"]

WORLDS: Final = range(1_000_000)
"""The worlds that tasks are drawn from; the warm start of the base uses worlds above them."""
TASKS_PER_WORLD: Final = 1000
_TRAIN_SHARE: Final = 0.6
_HELD_OUT_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class FinqaTask:
    """One question. `expression` answers it once `reports` are loaded; `mistakes` are plausible wrong ones.

    `reference` is the executed right answer; `minimal_tools` counts the tool calls of the shortest right run,
    the answer itself not included.
    """

    task_id: str
    world: int
    split_key: str
    template: str
    question: str
    reference: float
    reports: tuple[tuple[str, int], ...]
    expression: str
    mistakes: tuple[str, ...]
    minimal_tools: int


def split_key(number: int) -> str:
    """The key that decides the split of every task of world `number`."""
    return f"finqa-world-{number}"


def split_of(key: str) -> Split:
    """The split of a key, by the first 8 bytes of its SHA-256: 60 % train, 20 % held out, 20 % report."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    if place < _TRAIN_SHARE:
        return "train"
    return "held_out" if place < _TRAIN_SHARE + _HELD_OUT_SHARE else "report"


def make_task(number: int, index: int) -> FinqaTask:
    """Task `index` of world `number`; indexes that are equal modulo 10 share their template."""
    template = TEMPLATES[index % len(TEMPLATES)]
    draw = random.Random(f"finqa-task-{number}-{index}")
    while True:
        task = _draw(world(number), template, draw, f"finqa-{number}-{index}")
        if task is not None:
            return task


def task_from_id(task_id: str) -> FinqaTask:
    """The task that `task_id` names; ValueError where it is no id of this example."""
    match task_id.split("-"):
        case ["finqa", number, index] if number.isdecimal() and index.isdecimal():
            return make_task(int(number), int(index))
    raise ValueError(f"not a task of the example: {task_id!r}")


def draw_tasks(
    split: Split, n_worlds: int, n_tasks: int, seed: str | int, exclude: Collection[int] = ()
) -> list[FinqaTask]:
    """`n_tasks` tasks from `n_worlds` worlds of `split` in equal parts, templates in turn; the same for one seed.

    Worlds in `exclude` are never drawn. Raises ValueError for fewer tasks than worlds, or no world at all.
    """
    if not 0 < n_worlds <= n_tasks:
        raise ValueError(f"cannot spread {n_tasks} tasks over {n_worlds} worlds")
    draw = random.Random(f"finqa-{split}-{seed}")
    numbers: list[int] = []
    while len(numbers) < n_worlds:
        number = draw.choice(WORLDS)
        if number not in exclude and number not in numbers and split_of(split_key(number)) == split:
            numbers.append(number)
    tasks = []
    for place in range(n_tasks):
        turn, column = divmod(place, n_worlds)
        block = draw.randrange(TASKS_PER_WORLD // len(TEMPLATES))
        tasks.append(make_task(numbers[column], block * len(TEMPLATES) + (turn + column) % len(TEMPLATES)))
    return tasks


def _draw(world: World, template: Template, draw: random.Random, task_id: str) -> FinqaTask | None:
    company = draw.choice(world.companies)
    year = draw.choice(world.years[company])
    row, other = draw.sample(list(world.report(company, year).table), 2)
    names: dict[str, str | int] = {"c": company, "y": year, "p": year - 1, "a": row, "b": other}
    reports: list[tuple[str, int]] = [(company, year)]
    if template.companies > 1:
        second = draw.choice([name for name in world.companies if name != company])
        reports.append((second, draw.choice(world.years[second])))
        names |= {"d": second, "z": reports[1][1]}
        if row not in world.report(*reports[1]).table:
            return None
    expression = template.expression.format_map(names)
    mistakes = tuple(mistake.format_map(names) for mistake in template.mistakes)
    loaded: dict[str, float] = {}
    for report in reports:
        loaded |= world.values(world.document_ids[report])
    reference = evaluate(expression, loaded, ())
    if any(abs(evaluate(mistake, loaded, ()) - reference) <= 0.01 * abs(reference) for mistake in mistakes):
        return None  # a lucky mistake would be paid, so the figures are drawn again
    return FinqaTask(
        task_id=task_id,
        world=world.number,
        split_key=split_key(world.number),
        template=template.name,
        question=template.question.format_map(names),
        reference=reference,
        reports=tuple(reports),
        expression=expression,
        mistakes=mistakes,
        minimal_tools=2 * len(reports) + (template.name != "lookup"),
    )
