"""Spans in, trajectories out: the fold of records that others' telemetry fills."""

from __future__ import annotations

from itertools import permutations

import pytest
from spans import HEADERS, TRACE, a_run, agent, call, chat, line, said, span, tool

from millstream.events import MessageReceived, ModelResponded, ToolReturned


def tell(mill, *told, at=0, holds="span", headers=HEADERS):
    """One record of these spans."""
    dialect = {**headers, "dialect": "otlp/logs"} if holds == "log" else headers
    mill.raw(b"\n".join(one if isinstance(one, bytes) else line(one, holds) for one in told), at=at, headers=dialect)


def sealed(mill, at=1000):
    """The last trajectory after time has passed."""
    mill.tick(at)
    assert mill.counts()
    return mill.trajectories[-1]


def shown(trajectory):
    """Its events, short."""
    names = {MessageReceived: "content", ModelResponded: "text", ToolReturned: "output"}
    return [(type(e).__name__, getattr(e, names[type(e)])) for e in trajectory.events if type(e) in names]


RUN = [
    ("MessageReceived", "What is 12 % of 250?"),
    ("ModelResponded", ""),
    ("ToolReturned", "30"),
    ("ModelResponded", "30"),
]


def test_spans_become_a_trajectory(mill):
    """T10: one step a call, in the order of the links, though the tool's clock is 90 s behind."""
    tell(mill, *a_run())
    found = sealed(mill)
    assert (found.id, found.status, shown(found), found.final_answer) == (TRACE, "complete", RUN, "30")
    assert {event.agent for event in found.events[1:-1]} == {"shopper"}
    assert (found.task.question, found.task.family, found.responses[0].usage.output_tokens) == (RUN[0][1], "shop", 7)
    assert mill.counts() == {"accepted": 6, "superseded": 6, "unmapped": 1, "tick": 1}


def test_every_order_of_arrival_gives_the_same(mill_of):
    """T05: children before their parents, results before their calls: the trajectory is the same to the byte."""
    hashes = set()
    for order in permutations(a_run()):
        mill = mill_of()
        for told in order:
            tell(mill, told)
        found = sealed(mill)
        hashes.add((found.content_hash, len(mill.trajectories)))
    assert len(hashes) == 1


def test_a_span_that_comes_again_changes_nothing(mill):
    """T01: three copies of a tool's span are one step and two duplicates."""
    run = a_run()
    tell(mill, *run, run[2], run[2])
    found = sealed(mill)
    assert (shown(found), found.evidence.duplicates) == (RUN, 2)
    tell(mill, *run, at=1000)
    assert len(mill.trajectories) == 1
    assert mill.counts()["duplicate"] == 2 + 4


def test_the_same_span_id_in_two_traces(mill):
    """T03: identity is trace and span."""
    other = "a" * 32
    tell(mill, chat(1, None, [said("user", "a")], [said("assistant", "b")]))
    tell(mill, chat(1, None, [said("user", "c")], [said("assistant", "d")], trace=other))
    mill.tick(1000)
    assert {t.id: t.final_answer for t in mill.trajectories} == {TRACE: "b", other: "d"}


def test_a_span_within_the_grace_is_in_and_a_later_one_is_told(mill):
    """T06: after the root's end a span has the grace; one that is later still is a dead letter, once, as it came."""
    run = a_run()
    tell(mill, *(one for one in run if one is not run[2]))
    tell(mill, run[2], at=3)
    assert shown(sealed(mill, 6)) == RUN
    late = chat(9, 1, [said("user", "more")], [said("assistant", "late")])
    tell(mill, late, at=6)
    (letter,) = mill.letters
    assert (letter.reason, letter.original) == ("late:sealed", line(late).decode())


def test_a_parent_that_never_comes(mill):
    """T07: the span hangs under the root, the run is incomplete and says which parent is missing."""
    tell(mill, agent(1), chat(2, 99, [said("user", "q")], [said("assistant", "a")], at=1))
    found = sealed(mill)
    assert (found.status, found.reason, found.missing) == ("interrupted", "dangling_link", (f"{99:016x}",))
    assert "reparented" in found.responses[0].flags


def test_a_parent_without_events_that_comes_late_mends_the_run(mill):
    """A span that tells no event may be what others hang under: it raises the revision to a complete one."""
    tell(mill, agent(1), chat(2, 99, [said("user", "q")], [said("assistant", "a")], at=1))
    assert sealed(mill, 30).reason == "dangling_link"
    tell(mill, span(99, 1, name="POST /v1/chat"), at=40)
    found = sealed(mill, 100)
    assert (found.revision, found.status) == (2, "complete")


def test_no_root_and_cycles_end(mill):
    """T08: two spans that are each other's parent, one that is its own: nothing is lost, the run is incomplete."""
    told = [said("assistant", "a")]
    tell(mill, chat(1, 2, [said("user", "x")], told), chat(2, 1, [said("user", "y")], [said("assistant", "b")]))
    tell(mill, chat(3, 3, [said("user", "z")], [said("assistant", "c")]))
    found = sealed(mill)
    assert (found.status, found.reason) == ("timed_out", "idle_timeout")
    assert {text for _, text in shown(found)} == set("xyzabc")


def test_spans_without_content_are_shown_and_cannot_train(mill):
    """A trace without messages is a complete run whose responses say that they have no content."""
    tell(mill, agent(1), chat(2, 1, None, None, at=1), tool(3, 1, "calc", "c1", at=2), chat(4, 1, None, None, at=3))
    found = sealed(mill)
    assert (found.status, len(found.responses)) == ("complete", 2)
    assert [event.flags for event in found.events[1:-1]] == [("no_content",)] * 3


def test_a_result_in_the_next_prompt_stands_in_for_a_silent_span(mill):
    """The tool's span tells no output: what the next call was given counts."""
    run = a_run()
    tell(mill, *run[:2], tool(3, 1, "calc", "c1", at=2), run[4])
    assert shown(sealed(mill)) == RUN


def loose(number, at, output):
    """A tool's span that does not name its call."""
    told = {"openinference.span.kind": "TOOL", "tool.name": "calc", "output.value": output}
    return span(number, 1, attributes=told, at=at)


def test_results_that_name_no_call_find_theirs(mill):
    """The n-th result of a tool belongs to its n-th call that nothing answers; what is told again goes."""
    asked = said("assistant", call("calc", "c1", n=1), call("calc", "c2", n=2))
    tell(mill, agent(1), chat(2, 1, [said("user", "q")], [asked], at=1), loose(3, 4, "two"), loose(4, 3, "one"))
    found = sealed(mill)
    assert [result.output for result in found.steps[0].results] == ["one", "two"]
    assert (found.status, found.orphans) == ("complete", ())


def test_a_result_that_a_prompt_tells_too_is_one(mill):
    """The span names no call, the next prompt does."""
    run = a_run()
    tell(mill, *run[:2], loose(3, 2, "30"), *run[3:])
    found = sealed(mill)
    assert (found.status, shown(found)) == ("complete", RUN)


def test_a_trace_without_any_agent_makes_no_trajectory(mill):
    """Spans of a web server alone are counted as unmapped, and forgotten when nothing follows."""
    tell(mill, span(1, name="GET /"), span(2, 1, name="SELECT"))
    mill.tick(1000)
    assert (mill.trajectories, mill.assembler.open, mill.counts()) == ([], 0, {"unmapped": 2, "tick": 1})


def test_a_crowd_of_silent_traces_makes_room(crowded):
    """Traces without events are held like any others, and leave without a trajectory."""
    for number in range(1, 9):
        tell(crowded, span(1, trace=f"{number:032x}"))
    tell(crowded, *a_run())
    assert (crowded.assembler.open, crowded.trajectories) == (3, [])
    assert shown(sealed(crowded)) == RUN


def test_an_agent_below_a_web_server(mill):
    """The root may be a span of no agent; the run ends with it."""
    tell(mill, agent(2, 1), chat(3, 2, [said("user", "q")], [said("assistant", "a")], at=1), span(1, name="POST /ask"))
    found = sealed(mill, 6)
    assert (found.status, found.final_answer, found.responses[0].agent) == ("complete", "a", "shopper")


def test_a_handoff_keeps_both_agents(mill):
    """T32: each step has the name of its own agent, in one trajectory."""
    asked = said("assistant", call("transfer_to_B"))
    tell(
        mill,
        agent(1, name="A"),
        chat(2, 1, [said("user", "q")], [asked], at=1),
        tool(3, 1, "transfer_to_B", "c1", "ok", at=2),
        agent(4, 3, name="B", at=3),
        chat(5, 4, [said("system", "You are B"), said("user", "q for B")], [said("assistant", "answer")], at=4),
    )
    found = sealed(mill)
    assert [(response.agent, response.text) for response in found.responses] == [("A", ""), ("B", "answer")]
    assert found.status == "complete"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"not json", "undecodable"),
        (b'{"span": 3}', "undecodable"),
        (line(span(1) | {"startTimeUnixNano": {"low": 1, "high": 2}}), "undecodable"),
        (line(span(1, trace="0" * 32)), "invalid_trace"),
        (line(span(0)), "invalid_trace"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter(mill, told, reason):
    """T11, T35: a bad line is kept with its reason; its neighbours go on."""
    tell(mill, told, *a_run())
    assert (mill.reasons, shown(sealed(mill))) == ([reason], RUN)
    assert (mill.letters[0].offset, mill.letters[0].index) == (0, 0)


def test_a_snapshot_holds_where_spans_hang(mill, mill_of):
    """A restart in the middle changes nothing."""
    run, after = a_run(), mill_of()
    tell(mill, *run[1:4])
    after.assembler.restore(mill.assembler.snapshot())
    tell(mill, run[4], run[0])
    mill.tick(1000)
    for record in mill.records[1:]:
        after.feed(record)
    assert mill.trajectories == after.trajectories
    assert mill.assembler.snapshot() == after.assembler.snapshot()


def test_numbers_of_nanoseconds_are_exact(mill):
    """T11: as a text or as a number they are the same."""
    told = chat(1, None, [said("user", "q")], [said("assistant", "a")])
    told |= {"startTimeUnixNano": 1754000000123456789, "endTimeUnixNano": "1754000000123456790"}
    tell(mill, told)
    found = sealed(mill)
    assert [event.time_ns for event in found.events[1:3]] == [1754000000123456789, 1754000000123456790]
