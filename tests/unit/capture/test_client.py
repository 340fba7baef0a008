"""Runs told through the client, as the log then holds them."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading

import pytest

from millstream.capture.client import Client
from millstream.capture.importers.base import import_into
from millstream.capture.recorder import Run
from millstream.events import (
    FeedbackGiven,
    MessageReceived,
    ModelResponded,
    Task,
    TaskId,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
)
from millstream.settings import Capture


def by_seq(events):
    return sorted((e for e in events if e.seq is not None), key=lambda e: e.seq)


def test_a_run_is_told_in_order_and_says_how_many_events_it_had(make, told):
    """A whole run arrives with numbers without a gap and an end that names the last one."""
    client = make()
    with client.start_run(Task(id=TaskId("t"), question="2+2?"), policy_version=3, group="g", group_size=8) as run:
        run.message("system", "Answer.")
        run.message("user", "2+2?")
        run.model(tool_calls=[{"id": "c", "function": {"name": "calc", "arguments": '{"e": "2+2"}'}}])
        run.tool(call_id="c", name="calc", output="4", duration_ns=7)
        run.model(text="4", finish_reason="stop", usage={"prompt_tokens": 5, "completion_tokens": 1})
        run.end("4")
    assert client.flush()
    events = by_seq(told())
    assert [e.seq for e in events] == list(range(7))
    assert [type(e) for e in events] == [
        TrajectoryStarted,
        MessageReceived,
        MessageReceived,
        ModelResponded,
        ToolReturned,
        ModelResponded,
        TrajectoryEnded,
    ]
    assert events[0].policy_version == 3
    assert (events[0].group, events[0].group_size) == ("g", 8)
    assert events[3].tool_calls[0].arguments == {"e": "2+2"}
    assert events[5].usage.input_tokens == 5
    assert events[6].last_seq == {client.producer: 6}
    assert events[6].final_answer == "4"
    assert len({e.id for e in events}) == 7


def test_an_unnamed_task_is_named_by_its_first_messages(make, told):
    """The same question with other white space is the same task; another question is another task."""
    client = make()
    for question in ("What  is 2+2?", "What is\n2+2?", "What is 2+3?"):
        with client.start_run() as run:
            run.message("user", question)
            run.model(text="?")
    assert client.flush()
    ids = [e.task.id for e in told() if isinstance(e, TrajectoryStarted)]
    assert len(ids) == 3
    assert len(set(ids)) == 2
    assert all(ids)


def test_the_split_follows_the_world_and_a_given_split_wins(make, told):
    """Tasks of one split key fall on one side, whatever their ids; the caller may decide."""
    client = make()
    for number in range(6):
        client.start_run(Task(id=TaskId(f"q{number}"), split_key="report-7")).close()
    client.start_run(Task(id=TaskId("x"), split_key="report-7"), split="report").close()
    assert client.flush()
    starts = {e.task.id: e.split for e in told() if isinstance(e, TrajectoryStarted)}
    assert len({starts[f"q{n}"] for n in range(6)}) == 1
    assert starts["x"] == "report"


def test_an_exception_ends_the_run_as_a_crash_and_is_raised_again(make, told):
    """The agent's own error passes through and is told as the reason of the end."""
    client = make()
    with pytest.raises(ZeroDivisionError), client.start_run({"id": "t"}):
        _ = 1 / 0
    assert client.flush()
    ended = next(e for e in told() if isinstance(e, TrajectoryEnded))
    assert ended.reason == "crash"
    assert ended.error == "ZeroDivisionError: division by zero"


def test_an_interrupt_cancels_the_run(make, told):
    """Ctrl-C and a cancelled task are no crash of the agent."""
    client = make()
    with pytest.raises(KeyboardInterrupt), client.start_run({"id": "t"}):
        raise KeyboardInterrupt
    assert client.flush()
    assert next(e for e in told() if isinstance(e, TrajectoryEnded)).reason == "cancelled"


def test_coroutines_record_side_by_side(make, told):
    """Runs of several coroutines do not mix."""
    client = make()

    async def one(number):
        async with client.start_run({"id": f"t{number}"}) as run:
            run.message("user", f"q{number}")
            await asyncio.sleep(0)
            run.model(text=f"a{number}")
        return run.id

    async def both():
        return await asyncio.gather(*(one(number) for number in range(5)))

    ids = asyncio.run(both())
    assert client.flush()
    events = told()
    for number, run_id in enumerate(ids):
        texts = [e.text for e in events if e.trajectory_id == run_id and isinstance(e, ModelResponded)]
        assert texts == [f"a{number}"]


def test_threads_share_one_run_without_a_gap(make, told):
    """Eight threads tell one run; every number is used once and all events arrive."""
    client = make()
    run = client.start_run({"id": "t"})
    threads = [
        threading.Thread(target=lambda: [run.tool(call_id="c", output="x") for _ in range(50)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.end()
    assert client.flush()
    assert [e.seq for e in by_seq(told())] == list(range(402))


def test_feedback_needs_no_run_and_drops_numbers_that_are_none(make, told):
    """Feedback is told at any time; NaN becomes no value with a flag, True is 1.0."""
    client = make()
    client.feedback("some-run", value=True, source="human", name="style", comment="good")
    client.feedback("some-run", value=math.nan)
    assert client.flush()
    first, second = (e for e in told() if isinstance(e, FeedbackGiven))
    assert (first.value, first.source, first.name, first.seq) == (1.0, "human", "style", None)
    assert (second.value, second.flags) == (None, ("non_finite",))


def test_log_probs_that_no_ratio_can_be_made_of_are_dropped_and_flagged(make, told):
    """Infinite log-probs, or another number of them than of ids, go; the ids stay."""
    client = make()
    with client.start_run({"id": "t"}) as run:
        run.model(token_ids=[1, 2], logprobs=[-0.5, -0.25], logprob_kind="processed", temperature=0.7)
        run.model(token_ids=[1, 2], logprobs=[-0.5, -math.inf], logprob_kind="processed", temperature=math.nan)
        run.model(token_ids=[1, 2], logprobs=[-0.5], logprob_kind="raw")
    assert client.flush()
    good, infinite, short = (e for e in by_seq(told()) if isinstance(e, ModelResponded))
    assert (good.logprobs, good.logprob_kind, good.flags) == ((-0.5, -0.25), "processed", ())
    assert (infinite.logprobs, infinite.logprob_kind, infinite.temperature) == (None, None, None)
    assert infinite.flags == ("non_finite_logprobs",)
    assert (short.token_ids, short.logprobs, short.flags) == ((1, 2), None, ("logprobs_mismatch",))


def test_what_the_agent_changes_afterwards_was_recorded_as_it_was(make, told):
    """Lists and dicts handed over are copied at once."""
    client = make()
    arguments, ids = {"e": ["2+2"]}, [1, 2]
    with client.start_run({"id": "t"}) as run:
        run.model(tool_calls=[{"id": "c", "name": "calc", "arguments": arguments}], token_ids=ids)
        arguments["e"].append("changed")
        ids.append(3)
    assert client.flush()
    response = next(e for e in told() if isinstance(e, ModelResponded))
    assert response.tool_calls[0].arguments == {"e": ["2+2"]}
    assert response.token_ids == (1, 2)


def test_nothing_the_agent_hands_over_raises(make, told):
    """Objects, cycles, wrong types, calls after the end: what can't be read is left out and flagged, the step stays."""
    client = make()
    cycle = []
    cycle.append(cycle)
    with client.start_run(task=object(), tools=[1], interface=3) as run:
        run.message("user", object())
        run.message("user", cycle)
        run.model(text=["a", {"type": "image_url"}], tool_calls=[object(), None, 3], token_ids=["x"], usage=object())
        run.model(text="still here")
        run.tool(output={"a": math.nan, "b": {1, 2}})
        run.tool(duration_ns="long")
        run.end(reason="done", final_answer=object())
        run.model(text="too late")
    client.feedback(None, value="bad", source="nobody")
    assert client.flush()
    steps = [e for e in told() if isinstance(e, ModelResponded)]
    assert [e.text for e in steps] == ["a\n[image_url]", "still here"]
    assert "token_ids_unreadable" in steps[0].flags
    assert [e.flags for e in told() if isinstance(e, ToolReturned)][1] == ("duration_ns_unreadable",)


class Refuses:
    def __str__(self):
        raise ValueError("no")

    __repr__ = __str__


class Markup(str):
    __slots__ = ()

    def __str__(self):
        return self


CYCLE: list[object] = []
CYCLE.append(CYCLE)
DEEP: list[object] = []
for _ in range(5000):
    DEEP = [DEEP]
ODD = (
    *(2**63, -(2**63) - 1, 10**400, math.nan, math.inf, 1e308, True, "", "9" * 30, b"\xff", None, [], {}, "\ud800"),
    *(
        Refuses(),
        Markup("x"),
        [Markup("x")],
        {"a": Markup("x")},
        CYCLE,
        {"a": CYCLE},
        DEEP,
        {1: 2},
        {(1, 2): Refuses()},
    ),
    *(complex(1, 2), object, {"a": {1, 2}}, [10**30], {"a": 10**30}, bytearray(b"a"), range(3), [None], [[]], -1),
)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (method, name)
        for method in ("model", "tool", "message", "end")
        for name in inspect.signature(getattr(Run, method)).parameters
        if name not in ("self", "reason")
    ],
)
def test_one_odd_value_costs_no_step(make, told, method, name):
    """Whatever stands in one argument: the call is told, readable, with the rest of what it said."""
    client = make()
    right = {"message": {"role": "user", "content": "kept"}, "tool": {"output": "kept"}, "model": {"text": "kept"}}
    for value in ODD:
        run = client.start_run("q")
        getattr(run, method)(**{**right.get(method, {}), name: value})
        run.end()
    assert client.flush()
    events = told()
    assert sum(isinstance(e, TrajectoryEnded) for e in events) == len(ODD)
    kept = {"model": ModelResponded, "tool": ToolReturned, "message": MessageReceived | ModelResponded | ToolReturned}
    if method in kept:
        steps = [e for e in events if isinstance(e, kept[method])]
        assert len(steps) == len(ODD)
        if name not in ("text", "output", "content", "role"):
            assert [getattr(e, "text", "") or getattr(e, "output", "") or getattr(e, "content", "") for e in steps] == [
                "kept"
            ] * len(ODD)


@pytest.mark.parametrize("name", ["lineage", "policy_version", "group", "attempt", "group_size", "propensity", "agent"])
def test_one_odd_label_costs_no_run(make, told, name):
    """Whatever a run is labelled with, it is told."""
    client = make()
    for value in ODD:
        with client.start_run("q", **{name: value}) as run:
            run.model(text="kept")
    assert client.flush()
    assert sum(isinstance(e, TrajectoryStarted) for e in told()) == len(ODD)


def test_two_clients_and_an_import_write_one_log(make, told, log, root):
    """Several producers beside an import lose nothing of one another."""
    first, second = make(), make()
    for client in (first, second):
        with client.start_run({"id": "t"}) as run:
            run.model(text="x")
    imported = import_into(log, [root / "examples/data/chats.jsonl"])
    assert first.flush()
    assert second.flush()
    events = told()
    assert len({e.id for e in events}) == len(events) == 6 + imported.events


def test_with_a_producer_and_a_clock_of_its_own_a_run_is_the_same_events(log, told):
    """What reproduces a run reproduces its events, ids and times included, and telling it again changes nothing."""
    for _ in range(2):
        client = Client(log, Capture(flush_ms=5), producer="player", now_ns=lambda: 7)
        with client.start_run({"id": "t"}, trajectory_id="run") as run:
            run.message("user", "2+2?")
            run.model(text="4")
        assert client.close()
    events = told()
    assert len(events) == 8
    assert events[:4] == events[4:]
    assert {(e.producer, e.time_ns) for e in events} == {("player", 7)}


def test_a_wrong_word_costs_what_it_would_decide_and_no_more(make, told):
    """An unknown end reason is refused and the block ends the run; unknown kinds drop the log-probs; odd tasks stay."""
    client = make()
    with client.start_run(Task(id=TaskId("t"), metadata={(1, 2): object()}), agent=3) as run:
        run.model(token_ids=[1], logprobs=[-0.5], logprob_kind="cooked", reasoning=5, top_k="7", finish_reason=None)
        run.end(reason="bored")
    assert client.flush()
    started, response, ended = by_seq(told())
    assert started.task.id == "t"
    assert started.agent == "3"
    assert (response.logprobs, response.token_ids, response.flags) == (None, (1,), ("logprob_kind_unknown",))
    assert (response.reasoning, response.top_k) == ("5", 7)
    assert ended.reason == "done"
