"""The books over records of spans: each line is somewhere, once, as assembly counts it."""

from __future__ import annotations

import random

from spans import a_run, agent, call, chat, line, said, span

from millstream.console.audit import audit
from millstream.events import CLOSE_OPEN, Tick


def tell(mill, *told, dialect="otlp/spans"):
    """A record of spans."""
    mill.raw(b"".join(one + b"\n" if isinstance(one, bytes) else line(one) + b"\n" for one in told), dialect=dialect)


def close(mill):
    """Seal all that is open, and run the stages."""
    mill.send(Tick(id=f"tick-{random.random()}", trajectory_id="-", flags=(CLOSE_OPEN,)))
    mill.run()


def counts(mill):
    """The books of events; they must be balanced."""
    report = audit(mill.log, mill.store, mill.settings)
    assert report.differences == ()
    return {one.name: one.count for one in report.lines if one.section == "events" and one.name != "tick"}


def test_lines_of_spans_are_each_somewhere(mill):
    """Read, told again, repeated, unmapped, unreadable, of no known dialect, late."""
    run = a_run()
    tell(mill, *run)
    tell(mill, run[1], b"no span", span(7, 1, name="SELECT"))
    mill.raw(b"songs", dialect="songs")
    close(mill)
    assert counts(mill) == {
        "in a trajectory": 6,
        "superseded": 6,
        "duplicate": 1,
        "unmapped": 1 + 1 + 1,
        "dead letter": 1,
    }
    tell(mill, chat(9, 1, [said("user", "more")], [said("assistant", "late")]))
    mill.run()
    assert counts(mill)["late"] == 1


def test_an_open_run_of_spans_is_open(mill):
    """Nothing of it is downstream yet, and nothing is lost."""
    tell(mill, *a_run()[1:4])
    mill.run()
    assert counts(mill) == {"open": 5, "unmapped": 1}


def test_a_loose_result_that_is_told_again_is_superseded(mill):
    """A tool's span without a call id, whose result the next prompt tells."""
    run = a_run()
    loose = span(3, 1, attributes={"openinference.span.kind": "TOOL", "tool.name": "calc", "output.value": "30"})
    tell(mill, *run[:2], loose, *run[4:])
    close(mill)
    assert counts(mill)["superseded"] == 6


def test_runs_of_two_agents_in_any_order(mill):
    """Shuffled spans of several traces, some of them twice: balanced."""
    told = []
    for number in range(1, 6):
        trace = f"{number:032x}"
        asked = said("assistant", call("f", f"c{number}"))
        told += [one | {"traceId": trace} for one in a_run()]
        told += [agent(20, 3, name="B", trace=trace), chat(21, 20, [said("user", "sub")], [asked], at=2, trace=trace)]
    random.Random(7).shuffle(told)
    tell(mill, *told, *told[:5])
    close(mill)
    assert counts(mill)["duplicate"] >= 4
