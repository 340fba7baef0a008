"""The linked mode: identity, versions, completeness and order from links."""

from itertools import permutations

import msgspec
import pytest

from millstream.events import (
    Link,
    MessageReceived,
    ModelResponded,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
)


def span(key, parent="", *, kind=MessageReceived, run="t", finality=1, time_ns=0, after="", root=False, **fields):
    link = Link(key=key, parent=parent, after=after, finality=finality, root=root)
    return kind(id=key, trajectory_id=run, time_ns=time_ns, link=link, **fields)


def root(finality=1, run="t", **fields):
    return span("root", kind=TrajectoryStarted, finality=finality, root=True, run=run, **fields)


def test_whole_a_grace_after_the_root_ended(mill):
    """Nothing dangles when the grace is over: complete, sealed at the timer's time."""
    mill.put(span("a", "root"), root(), at=10)
    mill.tick(14)
    assert mill.sealed == []
    mill.tick(20)
    assert mill.sealed == [(1, "complete", ["root", "a"])]
    assert mill.trajectories[0].evidence.sealed_ms == 15


def test_t05_any_order_of_arrival(mill):
    """T05: child before root, result before call: every permutation gives the same trajectory."""
    events = [
        root(),
        span("chat", "root", kind=ModelResponded, tool_calls=(ToolCall(id="c1", name="f"),)),
        span("tool", "chat", kind=ToolReturned, call_id="c1"),
    ]
    hashes = set()
    for order in permutations(events):
        mill.__init__()
        mill.each(order)
        mill.tick(100)
        assert [ids for _, _, ids in mill.sealed] == [["root", "chat", "tool"]]
        hashes.add(mill.trajectories[0].content_hash)
    assert len(hashes) == 1


def test_t01_copies_of_a_span_are_one(mill):
    """T01: byte-identical rows are one event and two duplicates."""
    tool = span("s7", "root", kind=ToolReturned, call_id="c")
    mill.put(tool, root(), tool, tool)
    mill.tick(100)
    assert mill.counts() == {"accepted": 2, "duplicate": 2, "tick": 1}
    assert len(mill.trajectories[0].events) == 2


def test_t03_the_same_key_in_two_trajectories(mill):
    """T03: span 01 of trace A and of trace B are two things."""
    for run in ("A", "B"):
        mill.put(root(run=run), span("01", "root", run=run))
    mill.tick(100)
    assert [(t.id, len(t.events)) for t in mill.trajectories] == [("A", 2), ("B", 2)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_highest_version_wins(mill, order):
    """Of several versions of a key the highest finality wins, in whatever order they come."""
    versions = [span("a", "root", finality=0, content="so far"), span("a", "root", finality=1, content="all of it")]
    mill.put(root(), *(versions[index] for index in order))
    mill.tick(100)
    assert [event.content for event in mill.trajectories[0].events[1:]] == ["all of it"]
    assert mill.counts() == {"accepted": 2, "superseded": 1, "tick": 1}


def test_versions_of_equal_finality_are_ordered_by_content(mill):
    """Two versions of equal rank: the same one wins in either order."""
    versions = [span("a", "root", content=text) for text in ("one", "other")]
    kept = set()
    for order in permutations(versions):
        mill.__init__()
        mill.put(root(), *order)
        mill.tick(100)
        kept.add(mill.trajectories[0].content_hash)
    assert len(kept) == 1


def test_an_unended_root_waits(mill):
    """A root that was only announced has not ended; silence seals the run."""
    mill.put(root(finality=0), span("a", "root"), at=0)
    mill.tick(99)
    assert mill.sealed == []
    mill.tick(100)
    assert [reason for _, reason, _ in mill.sealed] == ["idle_timeout"]


def test_t06_inside_the_grace_it_belongs(mill):
    """T06: a span that ends after the root but inside the grace is in the first revision."""
    mill.put(root(), at=10)
    mill.put(span("late", "root"), at=12)
    mill.tick(15)
    assert mill.sealed == [(1, "complete", ["root", "late"])]


def test_t06_after_closing_it_is_late(mill):
    """T06: a span that comes an hour after the sealing is kept as a dead letter with its reason."""
    mill.put(root(), at=10)
    mill.put(span("late", "root"), at=3_600_000)
    assert mill.sealed == [(1, "complete", ["root"])]
    assert mill.reasons == ["late:sealed"]


def test_t07_a_parent_that_never_comes(mill):
    """T07: after the timeout the span hangs under the root, the parent is named, the run is incomplete."""
    mill.put(root(), span("s5", "zz"), span("a", "root"), at=10)
    mill.tick(34)
    assert mill.sealed == []
    mill.tick(35)
    (trajectory,) = mill.trajectories
    assert (trajectory.reason, trajectory.status, trajectory.missing) == ("dangling_link", "interrupted", ("zz",))
    assert trajectory.censored
    moved = next(event for event in trajectory.events if event.id == "s5")
    assert (moved.link.parent, moved.flags) == ("root", ("reparented",))


def test_a_parent_that_comes_after_the_grace_completes(mill):
    """While a link dangles the run waits gap_s more; the missing parent seals it at once."""
    mill.put(root(), span("s5", "zz"), at=10)
    mill.tick(20)
    mill.put(span("zz", "root"), at=25)
    assert [(revision, reason) for revision, reason, _ in mill.sealed] == [(1, "complete")]


def test_a_parent_that_comes_later_makes_the_next_revision(mill):
    """A dangling link is amended within retain_s; the event that was moved is itself again."""
    mill.put(root(), span("s5", "zz"), at=10)
    mill.tick(100)
    mill.put(span("zz", "root"), at=200)
    mill.tick(205)
    assert [(revision, reason) for revision, reason, _ in mill.sealed] == [(1, "dangling_link"), (2, "complete")]
    assert {event.id: event.link.parent for event in mill.trajectories[1].events} == {
        "root": "",
        "zz": "root",
        "s5": "zz",
    }


def test_t08_circles_end(mill):
    """T08: spans that are their own ancestors end under one implicit root, incomplete, nothing lost."""
    mill.put(span("s1", "s2"), span("s2", "s1"), span("s3", "s3"))
    mill.tick(100)
    (trajectory,) = mill.trajectories
    assert trajectory.status == "timed_out"
    assert trajectory.missing == ("s1", "s3")
    assert {event.id: event.link.parent for event in trajectory.events} == {"s1": "", "s2": "s1", "s3": ""}
    assert [event.id for event in trajectory.events] == ["s1", "s2", "s3"]


def test_a_circle_under_a_root_is_a_dangling_link(mill):
    """A circle can't be complete, whatever the root says."""
    mill.put(root(), span("s1", "s2"), span("s2", "s1"))
    mill.tick(100)
    assert [t.reason for t in mill.trajectories] == ["dangling_link"]
    assert [event.id for event in mill.trajectories[0].events] == ["root", "s1", "s2"]


def test_a_circle_of_predecessors_ends(mill):
    """Two events that each follow the other are ordered by time and reported."""
    mill.put(root(), span("a", "root", after="b", time_ns=2), span("b", "root", after="a", time_ns=1))
    mill.tick(100)
    assert mill.sealed == [(1, "dangling_link", ["root", "a", "b"])]


def test_a_root_inside_another_service(mill):
    """A root's own parent may lie outside; it does not dangle."""
    event = root()
    mill.put(msgspec.structs.replace(event, link=msgspec.structs.replace(event.link, parent="caller")))
    mill.tick(100)
    assert mill.sealed == [(1, "complete", ["root"])]


@pytest.mark.parametrize("skew_s", [-90, 0, 3600])
def test_t10_the_tools_clock_does_not_matter(mill, skew_s):
    """T10: a result follows its call and precedes the next chat, however wrong its host's clock is."""
    second = 1_000_000_000
    noon = 43_200 * second
    mill.put(
        span("chat2", "root", kind=ModelResponded, time_ns=noon + 5 * second, text="so"),
        span("tool", "root", kind=ToolReturned, call_id="c1", time_ns=noon + skew_s * second),
        span("chat1", "root", kind=ModelResponded, time_ns=noon, tool_calls=(ToolCall(id="c1", name="f"),)),
        root(time_ns=noon - second),
    )
    mill.tick(100)
    assert mill.sealed == [(1, "complete", ["root", "chat1", "tool", "chat2"])]


@pytest.mark.parametrize("skew_s", [-90, 0, 3600])
def test_t10_across_producers(mill, skew_s):
    """T10: the same between two producers of sequenced events."""
    second = 1_000_000_000
    common = {"trajectory_id": "t", "producer": "agent"}
    mill.put(
        ToolReturned(id="tool", trajectory_id="t", producer="host", seq=0, call_id="c1", time_ns=skew_s * second),
        ModelResponded(id="chat2", seq=2, time_ns=5 * second, text="so", **common),
        TrajectoryEnded(id="end", seq=3, time_ns=6 * second, last_seq={"host": 0}, **common),
        ModelResponded(id="chat1", seq=1, time_ns=0, tool_calls=(ToolCall(id="c1", name="f"),), **common),
        TrajectoryStarted(id="start", seq=0, time_ns=-second, **common),
    )
    assert mill.sealed == [(1, "complete", ["start", "chat1", "tool", "chat2", "end"])]


def test_calls_that_share_an_id_are_answered_in_turn(mill):
    """An id that is used again belongs to the next call, not to the first."""
    common = {"trajectory_id": "t", "producer": "agent"}
    host = {"trajectory_id": "t", "producer": "host", "call_id": "c"}
    call = (ToolCall(id="c", name="f"),)
    mill.put(
        ModelResponded(id="chat1", seq=0, time_ns=1, tool_calls=call, **common),
        ModelResponded(id="chat2", seq=1, time_ns=5, tool_calls=call, **common),
        ToolReturned(id="one", seq=0, time_ns=2, **host),
        ToolReturned(id="two", seq=1, time_ns=6, **host),
        TrajectoryEnded(id="end", seq=2, time_ns=9, last_seq={"host": 1}, **common),
    )
    assert mill.sealed == [(1, "complete", ["chat1", "one", "chat2", "two", "end"])]


def test_after_decides_between_siblings(mill):
    """``after`` outranks the clocks."""
    mill.put(root(), span("b", "root", time_ns=1, after="a"), span("a", "root", time_ns=9))
    mill.tick(100)
    assert mill.sealed == [(1, "complete", ["root", "a", "b"])]


def test_the_end_event_is_last(mill):
    """An end with a link ends the run as a root does, and is ordered last."""
    mill.put(
        span("end", kind=TrajectoryEnded, reason="limit", time_ns=1),
        span("chat", kind=ModelResponded, time_ns=5, tool_calls=(ToolCall(id="c", name="f"),)),
    )
    mill.tick(100)
    assert mill.sealed == [(1, "complete", ["chat", "end"])]
    assert mill.trajectories[0].hit_limit


def test_an_answer_after_the_grace_makes_the_next_revision(mill):
    """In the linked mode a call's result may still come after an unanswered sealing."""
    mill.put(root(), span("chat", "root", kind=ModelResponded, tool_calls=(ToolCall(id="c", name="f"),)), at=0)
    mill.put(span("tool", "chat", kind=ToolReturned, call_id="c"), at=50)
    mill.tick(100)
    assert [reason for _, reason, _ in mill.sealed] == ["unanswered_call", "complete"]


def test_mixed_modes_are_linked(mill):
    """One event with a link makes the run linked; sequenced ones among them keep their order and gaps."""
    common = {"trajectory_id": "t", "producer": "p"}
    mill.put(MessageReceived(id="m1", seq=1, **common), span("a", "root"), root(), at=0)
    mill.tick(10)
    assert mill.sealed == []
    mill.put(MessageReceived(id="m0", seq=0, **common), at=12)
    ((_, reason, ids),) = mill.sealed
    assert (reason, ids.index("m0") < ids.index("m1"), len(ids)) == ("complete", True, 4)


def test_a_link_after_the_end_has_no_second_grace(mill):
    """Regression: the first link of an ended run moved its deadline into the past."""
    mill.put(TrajectoryEnded(id="p1", trajectory_id="t", producer="p", seq=1), at=0)
    mill.put(span("a"), at=10)
    assert mill.assembler.deadline_ms() == 25
    mill.put(MessageReceived(id="p0", trajectory_id="t", producer="p", seq=0), at=12)
    assert [reason for _, reason, _ in mill.sealed] == ["complete"]


def test_a_linked_state_survives_a_restart(mill):
    """Links, versions and the grace are all in the snapshot."""
    mill.put(root(), span("s5", "zz"), span("a", "root", finality=0), at=10)
    mill.tick(16)
    again = type(mill)()
    again.assembler.restore(mill.assembler.snapshot())
    again.records = list(mill.records)
    for one in (mill, again):
        one.put(span("a", "root", finality=1, content="x"), span("zz", "root"), at=20)
    assert again.trajectories == mill.trajectories
    assert again.assembler.snapshot() == mill.assembler.snapshot()


def test_reparented_lines_are_canonical(mill):
    """A moved event is written anew by the codec; the raw one in the state stays as it came."""
    mill.put(span("s5", "zz"))
    mill.tick(100)
    assert mill.trajectories[0].events[0].link.parent == ""
    assert b'"parent":"zz"' in mill.assembler.snapshot()
