"""Trajectories that come next are graded together in the child; what is fed, and what fails, is as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from millstream.adapters.children import Child
from millstream.events import EventId, Task, TrajectoryEnded, TrajectoryId, TrajectoryStarted
from millstream.grade import GradeGiven
from millstream.graders.loading import load
from millstream.graders.running import GraderSet
from millstream.ports import Record
from millstream.rollout import GradeEvent
from millstream.settings import Graders
from millstream.streams.grading import GradingStage
from millstream.trajectory import Trajectory

decode = msgspec.json.Decoder(GradeEvent).decode_lines
SOURCE = """
import os, time
import millstream as ms

@ms.grader
def exact(t):
    if t.final_answer == "die":
        os._exit(3)
    if t.final_answer == "hang":
        time.sleep(60)
    return float(t.final_answer == t.task.reference)

@ms.grader
def good(t):
    return 1.0
"""


class Counted(Child):
    """A child whose calls are counted."""

    calls = 0

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        self.calls += method == "grade"
        return super().call(method, payload, timeout_s)


@pytest.fixture
def made(tmp_path) -> Iterator[Callable[..., tuple[GradingStage, Counted, GraderSet]]]:
    """A stage with two graders of one's own, and the child that runs them."""
    children: list[Counted] = []

    def make(**settings) -> tuple[GradingStage, Counted, GraderSet]:
        (tmp_path / "graders.py").write_text(SOURCE)

        def spawn(module: str) -> Counted:
            children.append(Counted(module))
            return children[-1]

        graders = load(Graders(**{"enabled": ("exact",), "files": ("graders.py",), **settings}), tmp_path, spawn)
        return GradingStage(graders, topic_id="T"), children[-1], graders

    yield make
    for child in children:
        child.close()


def record(offset: int, answer: str, **fields) -> Record:
    run = TrajectoryId(f"t{offset}")
    start = TrajectoryStarted(id=EventId("a"), trajectory_id=run, task=Task(id="k", reference=f"a{offset}"))
    end = TrajectoryEnded(id=EventId("b"), trajectory_id=run, final_answer=answer)
    t = Trajectory(id=run, events=(start, end), content_hash=f"h{offset}", **fields)
    return Record("trajectories", 0, offset, 1000 + offset, run, msgspec.json.encode(t), {"kind": "trajectory"})


def grades(outputs) -> list[tuple[str, str, object]]:
    """(trajectory, grader, score or kind) of every grade."""
    lines = [one for output in outputs if output.topic == "grades" for one in decode(output.value)]
    given = [one for one in lines if isinstance(one, GradeGiven)]
    return [(g.trajectory_id, g.grader, getattr(g.grade, "score", getattr(g.grade, "kind", None))) for g in given]


def fed(stage, records, *, told=True):
    if told:
        stage.expect(records)
    return [output for one in records for output in stage.feed(one)]


def test_what_comes_next_is_graded_in_few_calls_with_the_same_outcome(made):
    """A hundred trajectories, a bad record and a censored run among them: one order, one result."""
    stage, child, _ = made()
    records = [record(n, f"a{n}" if n % 3 else "no") for n in range(100)]
    records[20] = Record("trajectories", 0, 20, 1020, "x", b"{broken", {"kind": "trajectory"})
    records[30] = record(30, "a30", status="interrupted", reason="gap")
    together = fed(stage, records)
    few = child.calls
    alone = fed(made()[0], records, told=False)
    assert few < 30
    assert grades(together) == grades(alone)
    assert [o.topic for o in together] == [o.topic for o in alone]
    assert together[20].topic == "dead-letters"


def test_a_deadly_one_among_them_costs_its_own_grade(made):
    """Its neighbours have theirs; trajectories go alone for a while, and together again after that."""
    stage, _, graders = made(attempts=1)
    fed(stage, [record(n, f"a{n}") for n in range(40)])
    assert graders.ahead > 1
    outputs = fed(stage, [record(n, "die" if n == 50 else f"a{n}") for n in range(40, 80)])
    found = {(t, g): value for t, g, value in grades(outputs)}
    assert found[("t50", "exact")] == "infrastructure"
    assert found[("t50", "good")] == 1.0
    assert all(found[(f"t{n}", "exact")] == 1.0 for n in range(40, 80) if n != 50)
    assert graders.ahead == 1
    fed(stage, [record(n, f"a{n}") for n in range(80, 160)])
    assert graders.ahead > 1


def test_a_hang_among_them_costs_one_deadline_more(made):
    """G21: the call of all together ends at the deadline, then each has its own."""
    stage, _, _ = made(timeout_s=0.7, attempts=1)
    fed(stage, [record(n, f"a{n}") for n in range(40)])
    found = {
        (t, g): v for t, g, v in grades(fed(stage, [record(n, "hang" if n == 45 else "x") for n in range(40, 50)]))
    }
    assert found[("t45", "exact")] == "timeout"
    assert found[("t45", "good")] == 1.0
    assert found[("t46", "exact")] == 0.0


def test_a_hint_that_is_wrong_changes_nothing(made):
    """Records told twice, out of order, or never fed: what is fed is graded."""
    stage, _, _ = made()
    records = [record(n, f"a{n}") for n in range(30)]
    stage.expect(records[10:20])
    stage.expect(records)
    found = grades(fed(stage, [records[n] for n in (3, 4, 9, 2, 28, 29, 0)], told=False))
    assert [t for t, g, _ in found if g == "good"] == ["t3", "t4", "t9", "t2", "t28", "t29", "t0"]
    assert {value for _, _, value in found} == {1.0}
