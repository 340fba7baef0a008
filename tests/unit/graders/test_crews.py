"""Several grading processes side by side: answers in the order of the questions, and each waits for its own."""

from __future__ import annotations

import msgspec

from millstream.grade import Failed, Scored
from millstream.graders.running import effective

MEET = """
import pathlib, time
import millstream as ms

@ms.grader
def meets(t):
    here = pathlib.Path(__file__).parent
    (here / f"came-{t.id}").touch()
    if t.final_answer == "hang":
        time.sleep(60)
    deadline = time.monotonic() + 20
    while len(list(here.glob("came-*"))) < 2:
        if time.monotonic() > deadline:
            return 0.0
        time.sleep(0.01)
    return float(t.final_answer)
"""


def asked(loaded, *runs):
    rows = loaded.foresee([msgspec.json.encode(run) for run in runs])
    return [effective(row[0]).grade for row in rows]


def test_two_work_at_a_time_and_answers_keep_their_order(load_graders, make):
    """Neither of two graders ends before the other has begun, so one child alone would never give a 1."""
    loaded = load_graders(MEET, workers=2)
    assert loaded.ahead == 2 * loaded.crew._crews[0].ahead
    runs = [make(id=f"t{n}", answer=str(n / 4)) for n in range(4)]
    assert asked(loaded, *runs) == [Scored(score=n / 4) for n in range(4)]


def test_one_that_hangs_costs_its_own_time_only(load_graders, make):
    """It is Failed(timeout), its neighbours are graded, and the order stays."""
    loaded = load_graders(MEET, workers=2, timeout_s=2)
    first, hung, last = asked(loaded, make(id="a", answer="1"), make(id="b", answer="hang"), make(id="c", answer="0.5"))
    assert (first, last) == (Scored(score=1.0), Scored(score=0.5))
    assert isinstance(hung, Failed)
    assert hung.kind == "timeout"


def test_the_children_end_with_the_set(load_graders, make, spawned):
    """Nothing is left behind."""
    loaded = load_graders(MEET, workers=3)
    assert len(spawned) == 3
    loaded.close()
    assert [child.pid for child in spawned] == [None] * 3
