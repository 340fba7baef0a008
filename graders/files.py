"""Grading answers in files: rows ``{"id", "answer"}`` against tasks, or whole trajectories, line by line.

Tasks are FinQA items in their original form (a JSON list) or JSONL rows ``{"id", "reference"}`` with,
optionally, ``question`` and ``metadata``. A bad row is reported with its line and the rest goes on.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from millstream.errors import SettingsError
from millstream.events import EventId, Task, TaskId, TrajectoryEnded, TrajectoryId, TrajectoryStarted
from millstream.grade import Abstained, Censored, Failed, Grade, Scored
from millstream.graders.finqa import execute
from millstream.graders.numeric import counts_percents
from millstream.trajectory import Trajectory


class Row(Struct, frozen=True, kw_only=True):
    """One line of the output. ``score`` is null unless ``status`` is ``scored``."""

    id: str
    status: str
    score: float | None
    reason: str


class Problem(Struct, frozen=True, kw_only=True):
    """A line that could not be graded, and why."""

    line: int
    reason: str


class _Answer(Struct, frozen=True):
    id: str | int
    answer: str | float | None


_decode_trajectory = msgspec.json.Decoder(Trajectory).decode


def grade_lines(
    lines: Iterable[bytes], grade: Callable[[Trajectory], Grade], tasks: Mapping[str, Task]
) -> Iterator[Row | Problem]:
    """Grade each line: a row with ``answer`` against the task of its id, any other row as a trajectory
    (whose own task counts, or that of ``tasks`` when it has no reference). Blank lines are skipped.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            trajectory = _trajectory_of(line, tasks)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            yield Problem(line=number, reason=str(error))
            continue
        yield row_of(trajectory.id, Censored(reason=trajectory.reason) if trajectory.censored else grade(trajectory))


def row_of(identity: str, grade: Grade) -> Row:
    """A grade as a line of output."""
    match grade:
        case Scored(score=value, label=label, reason=reason):
            return Row(id=identity, status="scored", score=value, reason=reason or label)
        case Abstained(reason=reason):
            return Row(id=identity, status="abstained", score=None, reason=reason)
        case Failed(kind=kind, reason=reason):
            return Row(id=identity, status="failed", score=None, reason=f"{kind}: {reason}")
        case Censored(reason=reason):
            return Row(id=identity, status="censored", score=None, reason=reason)


def _trajectory_of(line: bytes, tasks: Mapping[str, Task]) -> Trajectory:
    row = msgspec.json.decode(line)
    if not isinstance(row, dict):
        raise ValueError(f"a row is an object, not {type(row).__name__}")  # noqa: TRY004 — bad data, not a bad type
    if "answer" not in row:
        return _with_task(_decode_trajectory(line), tasks)
    answer = msgspec.convert(row, _Answer)
    text = answer.answer if isinstance(answer.answer, str) or answer.answer is None else _number(answer.answer)
    task = tasks.get(str(answer.id))
    if task is None:
        raise ValueError(_no_task(str(answer.id), tasks))
    return answered(str(answer.id), text, task)


def _no_task(identity: str, tasks: Mapping[str, Task]) -> str:
    if not tasks:
        return f"no task {identity!r}: name the tasks with --tasks"
    close = difflib.get_close_matches(identity, islice(tasks, 1000), n=1, cutoff=0.7)
    return f"no task {identity!r} among {len(tasks)}" + (f"; did you mean {close[0]!r}?" if close else "")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(value)


def answered(identity: str, answer: str | None, task: Task) -> Trajectory:
    """The smallest trajectory of an answer to a task."""
    run = TrajectoryId(identity)
    start = TrajectoryStarted(id=EventId("start"), trajectory_id=run, task=task)
    return Trajectory(
        id=run, events=(start, TrajectoryEnded(id=EventId("end"), trajectory_id=run, final_answer=answer))
    )


def _with_task(t: Trajectory, tasks: Mapping[str, Task]) -> Trajectory:
    task = tasks.get(t.task.id)
    if task is None or t.task.reference is not None or t.started is None:
        return t
    start = msgspec.structs.replace(t.started, task=task)
    events = tuple(start if event is t.started else event for event in t.events)
    return msgspec.structs.replace(t, events=events)


def read_tasks(content: bytes, name: str = "tasks") -> dict[str, Task]:
    """Tasks by id from a file's content. Raises `SettingsError` naming the place."""
    try:
        if content.lstrip().startswith(b"["):
            items = msgspec.json.decode(content, type=list[dict[str, Any]])
            made = [_task(item, f"{name}: item {i}") for i, item in enumerate(items)]
        else:
            rows = [(i, line) for i, line in enumerate(content.splitlines(), 1) if line.strip()]
            made = [_task(msgspec.json.decode(line, type=dict[str, Any]), f"{name}, line {i}") for i, line in rows]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{name}: {error}; tasks are FinQA items or rows {{id, reference}}") from None
    return {str(task.id): task for task in made}


def _task(item: Mapping[str, Any], where: str) -> Task:
    identity = item.get("id")
    if not isinstance(identity, str | int):
        raise SettingsError(f"{where}: no id; a task is a FinQA item or {{id, reference}}")
    if "qa" in item:
        return finqa_task(item, where)
    try:
        return msgspec.convert({**item, "id": str(identity)}, Task)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {error}") from None


def finqa_task(item: Mapping[str, Any], where: str = "FinQA item") -> Task:
    """A FinQA item as a task. The reference is ``exe_ans``, unrounded where the program gives it; the
    metadata hold the table, the program and the text that the data set shows.
    """
    qa = item["qa"]
    gold = qa.get("exe_ans") if isinstance(qa, Mapping) else None
    if isinstance(gold, bool) or not isinstance(gold, int | float | str):
        raise SettingsError(f"{where}: no exe_ans in qa")
    done = execute(str(qa.get("program", "")), item.get("table") or ())
    reference = gold if isinstance(gold, str) else done.exact if done.value == gold else float(gold)
    text = str(qa.get("answer", ""))
    metadata = {"table": item.get("table") or [], "program": qa.get("program", ""), "answer": text}
    if isinstance(reference, float) and counts_percents(text, reference):
        metadata["unit"] = "percent"
    return Task(
        id=TaskId(str(item["id"])),
        question=str(qa.get("question", "")),
        reference=reference,
        split_key=str(item.get("filename", "")),
        family="finqa",
        metadata=metadata,
    )
