"""The gate's exam: a policy plays held-out tasks, and its runs are assembled and graded as in the stream.

The runs of an exam are told to the same recorder and folded by the same assembly as those of production;
they only never enter the log, so no training can see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from millstream.capture.memory import MemoryRecorder
from millstream.codec import encode_lines
from millstream.deploy.evaluation import EvaluationRequest, Outcomes, Selection, TaskOutcome
from millstream.examples.finqa.playing import Play, PlayedRun, play
from millstream.examples.finqa.recording import Served, record_run
from millstream.examples.finqa.tasks import FinqaTask, draw_tasks
from millstream.grade import Scored, score_of
from millstream.graders.builtin import builtin
from millstream.graders.metrics import reasoning_depth, tool_errors
from millstream.graders.registry import Grader
from millstream.graders.usage import uses_of
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.topics import TELEMETRY
from millstream.trajectory import Trajectory

EVALUATION = "millstream.examples.finqa.evaluation:evaluate"
"""What ``[gate] evaluation`` says for the example."""
PROXIES = {"finqa-hack": "groundedness"}
"""Lineages whose reward is one grader that is not gold: it is measured beside gold."""

_decode = msgspec.json.Decoder(Trajectory).decode


def evaluate(request: EvaluationRequest) -> Outcomes:
    """Every attempt at every task of the selection, graded."""
    tasks = selected(request.selection)
    attempts = range(request.attempts)
    plays = Play(
        policy_dir=request.policy_dir,
        task_ids=tuple(task.task_id for task in tasks),
        attempts=len(attempts),
        temperature=request.temperature,
        seed=f"exam-{request.selection.seed}",
    )
    gold, form = builtin("correct"), builtin("format")
    proxy = builtin(PROXIES[request.lineage]) if request.lineage in PROXIES else None
    runs = trajectories(play(plays), request.lineage, request.version, request.temperature)
    return [outcome(t, gold, form, proxy) for t in runs]


def selected(selection: Selection) -> list[FinqaTask]:
    """The tasks of a selection; those of a retry only, where it names them."""
    drawn = draw_tasks(selection.split, selection.worlds, selection.tasks, selection.seed)
    wanted = set(selection.task_ids)
    return [task for task in drawn if not wanted or task.task_id in wanted]


def trajectories(runs: Iterable[PlayedRun], lineage: str, version: int, temperature: float) -> Iterator[Trajectory]:
    """The runs as the stream would assemble them."""
    served = Served(lineage=lineage, version=version, temperature=temperature)
    recorder = MemoryRecorder()
    assembler = Assembler(Assembly())
    for number, played in enumerate(runs):
        record_run(recorder.start_run, played, served, f"exam-{played.task_id}-{played.attempt}")
        record = Record(TELEMETRY.name, 0, number, number, "", encode_lines(recorder.take()))
        for output in assembler.feed(record):
            yield _decode(output.value)


def outcome(t: Trajectory, gold: Grader, form: Grader, proxy: Grader | None) -> TaskOutcome:
    """What the gate needs of one run; its cost is counted in sampled tokens."""
    errors, calls = tool_errors(t)
    return TaskOutcome(
        task_id=t.task.id,
        world=t.task.split_key,
        gold=gold(t),
        proxy=proxy(t) if proxy else None,
        attempt=t.started.attempt if t.started else 0,
        trajectory_id=t.id,
        format_ok=float((score_of(form(t)) or 0.0) == 1.0),
        tool_errors=errors,
        calls=calls,
        useful_calls=sum(use.useful for use in uses_of(t)),
        steps=len(t.steps),
        depth=reasoning_depth(t),
        cost=float(sum(len(r.token_ids or ()) for r in t.responses)),
        gold_epoch=gold.epoch,
        run=msgspec.json.encode(t),
    )


def succeeded(found: TaskOutcome) -> bool:
    """Scored right by gold."""
    return isinstance(found.gold, Scored) and found.success
