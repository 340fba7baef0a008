"""Which run a call belongs to when nobody says so, and when somebody does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.proxy.conversations import Conversations
from millstream.capture.proxy.keeping import keep, take

from .conftest import Desk, calls, result, system, user


def test_a_conversation_is_one_run(desk):
    """Calls, results and answers, each once, in order; over after the idle time."""
    told = desk.chat([system("s"), user("q")], calls("c1", "c2"))
    told = desk.chat([*told, result("c1", "one"), result("c2", "two")], "half")
    desk.chat([*told, user("and?")], "whole")
    desk.wait(101)
    assert desk.told() == [
        (
            "complete",
            [
                "start",
                "system:s",
                "user:q",
                ">[c1][c2]",
                "c1=one",
                "c2=two",
                ">half",
                "user:and?",
                ">whole",
                "end:done",
            ],
        )
    ]
    (run,) = desk.runs().values()
    assert (run.final_answer, run.task.question, run.started.source) == ("whole", "q", "proxy")
    assert [step.response.usage.input_tokens for step in run.steps] == [10, 10, 10]
    assert run.unanswered == ()


def test_two_conversations_that_begin_alike_are_two(desk):
    """The same first messages are another run, whatever is answered; each goes on with its own."""
    one = desk.chat([user("hi")], "hello")
    other = desk.chat([user("hi")], "good day")
    desk.chat([*other, user("b")], "B")
    desk.chat([*one, user("a")], "A")
    assert [words for _, words in desk.told()] == [
        ["start", "user:hi", ">hello", "user:a", ">A"],
        ["start", "user:hi", ">good day", "user:b", ">B"],
    ]


def test_two_that_say_the_same_words_still_are_two(desk):
    """Even the answers are alike: each continuation takes one of them."""
    for _ in range(2):
        desk.chat([user("hi")], "hello")
    for text in ("a", "b"):
        desk.chat([user("hi"), {"role": "assistant", "content": "hello"}, user(text)], text.upper())
    assert sorted(words for _, words in desk.told()) == [
        ["start", "user:hi", ">hello", "user:a", ">A"],
        ["start", "user:hi", ">hello", "user:b", ">B"],
    ]


def test_a_second_continuation_is_a_branch(desk):
    """A run of its own, that tells what came before as told by the caller and not as actions."""
    told = desk.chat([user("q")], calls("c1"))
    desk.chat([*told, result("c1", "1"), user("x")], "X")
    desk.chat([*told, result("c1", "1"), user("y")], "Y")
    first, branch = desk.runs().values()
    assert [word for _, words in desk.told() for word in words] == [
        *("start", "user:q", ">[c1]", "c1=1", "user:x", ">X"),
        *("start", "user:q", "~>[c1]", "c1=1", "user:y", ">Y"),
    ]
    assert (first.started.flags, branch.started.flags) == ((), ("branch",))
    assert [response.text for response in branch.responses] == ["Y"]


def test_parallel_calls_of_one_prompt_are_runs_of_their_own(desk):
    """Attempts at one prompt are as many runs, of one task."""
    for n in range(3):
        desk.chat([user("q")], f"try {n}")
    runs = desk.runs().values()
    assert len(runs) == 3
    assert len({run.task.id for run in runs}) == 1


@pytest.mark.parametrize(
    ("status", "ending", "flag"),
    [
        (429, "whole", "status_429"),
        (500, "whole", "status_500"),
        (0, "unanswered", "upstream_away"),
        (0, "left", "client_left"),
        (200, "left", "client_left"),
        (200, "broken", "broken_off"),
    ],
)
def test_a_call_that_failed_is_tried_again_in_the_same_run(desk, status, ending, flag):
    """It is recorded, is no action, and does not stand between what came before and what came after."""
    told = desk.chat([user("q")], calls("c1"))
    asked = [*told, result("c1", "1")]
    cut = b"data: {" if status == 200 else {"error": {"message": "slow down"}}
    for _ in range(2):
        desk.chat(asked, status=status, ending=ending, body=cut)
    desk.chat(asked, "done")
    desk.wait(101)
    ((reason, words),) = desk.told()
    assert (reason, words) == ("complete", ["start", "user:q", ">[c1]", "c1=1", "!>", "!>", ">done", "end:done"])
    (run,) = desk.runs().values()
    assert [flag in event.flags for event in run.events if "call_failed" in event.flags] == [True, True]
    assert [response.text for response in run.responses] == ["", "done"]


def test_a_run_whose_last_call_failed_ends_so(desk):
    """Crash with the upstream's words; a caller who left has cancelled."""
    desk.chat([user("a")], status=400, body={"error": {"message": "too long for me", "code": "x"}})
    desk.chat([user("b")], status=0, ending="left")
    desk.chat([user("c")], calls("c1"))
    desk.wait(101)
    crash, cancelled, unanswered = desk.runs().values()
    assert (crash.ended.reason, crash.ended.error, crash.status) == ("crash", "too long for me", "interrupted")
    assert (cancelled.ended.reason, unanswered.ended.reason) == ("cancelled", "cancelled")
    assert unanswered.reason == "unanswered_call"


def test_a_run_that_is_named_is_one_run(desk):
    """Whatever its prompts are: agents of their own, a prompt that was cut, branches."""
    name = {"X-Millstream-Trajectory": "run-1"}
    told = desk.chat([system("s"), user("q")], calls("c1"), headers=name)
    desk.chat([system("helper"), user("look")], "seen", headers={**name, "X-Millstream-Agent": "helper"})
    desk.chat([system("s"), *told[2:], result("c1", "1")], "cut", headers=name)
    desk.chat([system("s"), user("q")], "again", headers={**name, "X-Millstream-End": "done"})
    ((reason, words),) = desk.told()
    assert reason == "complete"
    assert words == [
        *("start", "system:s", "user:q", ">[c1]", "c1=1", "system:helper", "user:look", ">seen", ">cut", ">again"),
        "end:done",
    ]
    (run,) = desk.runs().values()
    assert run.id == "run-1"
    assert {event.text: event.agent for event in run.responses}["seen"] == "helper"


def test_metadata_names_it_too(desk):
    """For clients that set no headers; a header wins."""
    metadata = {"millstream_trajectory": "m", "millstream_task_id": "t", "millstream_policy_version": "7", "own": "x"}
    desk.chat([user("q")], metadata=metadata)
    desk.chat([user("q")], metadata=metadata, headers={"x-millstream-trajectory": "h"})
    first, second = desk.runs().values()
    assert (first.id, first.task.id, first.started.policy_version) == ("m", "t", 7)
    assert second.id == "h"


def test_another_proxy_tells_the_same(desk):
    """A run that is named goes on after a restart: what is told again is told once."""
    name = {"X-Millstream-Trajectory": "run-1"}
    told = desk.chat([user("q")], calls("c1"), headers=name)
    again = Desk()
    again.now = 50.0
    again.chat([*told, result("c1", "1")], "done", headers={**name, "X-Millstream-End": "done"})
    desk.sink.events += again.sink.events
    ((_, words),) = desk.told()
    assert words == ["start", "user:q", ">[c1]", "c1=1", ">done", "end:done"]


def test_responses_go_on_by_id(desk):
    """``previous_response_id`` tells only what is new; the same words may be said again."""
    first, _ = desk.respond("yes", "A", instructions="be")
    second, _ = desk.respond("yes", "B", previous_response_id=first)
    desk.respond("other", "C", previous_response_id=first)
    desk.respond("yes", "D", previous_response_id=second)
    main, branch = desk.told()
    assert main[1] == ["start", "system:be", "user:yes", ">A", "user:yes", ">B", "user:yes", ">D"]
    assert branch[1] == ["start", "user:other", ">C"]
    assert list(desk.runs().values())[1].started.flags == ("branch",)


def test_a_response_that_nobody_knows_begins_a_run(desk):
    """And says that there was something before."""
    desk.respond("q", "A", previous_response_id="resp_elsewhere")
    (run,) = desk.runs().values()
    assert run.started.flags == ("earlier_unknown",)


def test_responses_that_tell_all_go_on_by_their_items(desk):
    """Reasoning, calls and results told back as items."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    _, items = desk.respond([user("q")], thought, call)
    desk.respond([user("q"), *items, {"type": "function_call_output", "call_id": "c1", "output": "1"}], "done")
    ((_, words),) = desk.told()
    assert words == ["start", "user:q", ">[c1]", "c1=1", ">done"]
    (run,) = desk.runs().values()
    assert run.responses[0].reasoning == "hm"
    assert run.responses[0].tool_calls[0].arguments == {"a": 1}


def test_a_conversation_of_the_server_is_one_run(desk):
    """``conversation``, as an id or as an object."""
    desk.respond("a", "A", conversation="conv_1")
    desk.respond("b", "B", conversation={"id": "conv_1"})
    desk.respond("c", "C", conversation="conv_2")
    assert [words for _, words in desk.told()] == [
        ["start", "user:a", ">A", "user:b", ">B"],
        ["start", "user:c", ">C"],
    ]


def test_call_ids_that_are_used_again_keep_their_results_apart(desk):
    """Servers that number each turn's calls from 0, or give no ids at all."""
    told = desk.chat([user("q")], calls("call_0"))
    told = desk.chat([*told, result("call_0", "1")], calls("call_0"))
    told = desk.chat([*told, result("call_0", "2")], calls("", name="g"))
    desk.chat([*told, {"role": "tool", "content": "3", "name": "g"}], "done")
    (run,) = desk.runs().values()
    assert [(step.response.text, [one.output for one in step.results]) for step in run.steps] == [
        ("", ["1"]),
        ("", ["2"]),
        ("", ["3"]),
        ("done", []),
    ]


def test_an_edited_history_is_another_run(desk):
    """Words that were never said do not go on with anything; they are no actions of the policy."""
    told = desk.chat([user("q")], "A")
    desk.chat([told[0], {"role": "assistant", "content": "B"}, user("x")], "C")
    _, edited = desk.told()
    assert edited[1] == ["start", "user:q", "~>B", "user:x", ">C"]


def test_what_differs_only_in_a_picture_differs(desk):
    """Parts of a message count to the last byte."""
    pictures = [[{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{n}"}}] for n in "ab"]
    told = [desk.chat([{"role": "user", "content": one}], "same") for one in pictures]
    for one in told:
        desk.chat([*one, user("more")], "more")
    assert [len(words) for _, words in desk.told()] == [5, 5]


def test_memory_is_bounded():
    """The runs that waited longest are over when there is no room; the others go on."""
    desk = Desk(remember=60)
    first = desk.chat([user("0")], "a")
    for n in range(1, 30):
        last = desk.chat([user(f"{n}")], "a")
        book = desk.recorder.conversations
        assert sum(run.size for run in book) <= 60
    desk.chat([*last, user("on")], "b")
    desk.chat([*first, user("on")], "b")
    runs = desk.runs()
    assert len(runs) == 31
    assert sum(len(run.responses) == 2 for run in runs.values()) == 1
    assert desk.recorder.conversations.forgotten >= 10
    assert book._size == sum(run.size for run in book)
    desk.wait(101)
    assert (len(book), book._size, book.answers, book.failures, book.named) == (0, 0, {}, {}, {})


def test_a_named_run_that_was_forgotten_goes_on():
    """It is not ended for want of memory; what is told again is told once."""
    desk, name = Desk(remember=20), {"X-Millstream-Trajectory": "run-1"}
    told = desk.chat([user("q")], calls("c1"), headers=name)
    for n in range(20):
        desk.chat([user(f"{n}")], "a")
    assert "run-1" not in [run.id for run in desk.recorder.conversations]
    desk.chat([*told, result("c1", "1")], "done", headers={**name, "X-Millstream-End": "done"})
    assert desk.told()[0] == ("complete", ["start", "user:q", ">[c1]", "c1=1", ">done", "end:done"])


def test_a_run_is_not_over_while_a_call_is_under_way(desk):
    """A long answer is no silence."""
    told = desk.chat([user("q")], "a")
    passing = desk.recorder.begin("POST", "/v1/chat/completions", [])
    desk.wait(500)
    assert len(desk.recorder.conversations) == 1
    passing._recorder.over(passing)
    desk.chat([*told, user("x")], "b")
    desk.wait(99)
    assert len(desk.recorder.conversations) == 1
    desk.wait(2)
    assert desk.told() == [("complete", ["start", "user:q", ">a", "user:x", ">b", "end:done"])]


def test_open_runs_go_on_after_a_restart(desk, tmp_path):
    """By their messages, by ids, by conversation, and as retries; branches are still branches; nothing that was said
    is in the file.
    """
    asked = desk.chat([user("secret words"), user("b")], calls("c1"))
    taken = desk.chat([user("q")], "A")
    desk.chat([*taken, user("x")], "X")
    desk.chat([user("again")], status=500, body={"error": {"message": "private"}})
    first, _ = desk.respond("r", "R")
    desk.respond("v", "V", conversation="conv_1")
    desk.now += 50
    keep(desk.recorder.conversations, tmp_path, desk.now, int(desk.now * 1e9))
    (file,) = tmp_path.iterdir()
    assert (file.stat().st_mode & 0o777) == 0o600
    assert not any(word in file.read_text() for word in ("secret", "private", '"A"'))

    after = Desk()
    after.now = desk.now + 10
    assert take(after.recorder.conversations, tmp_path, after.now, int(after.now * 1e9)) == 5
    assert list(tmp_path.iterdir()) == []
    after.chat([*asked, result("c1", "1")], "done")
    after.chat([*taken, user("y")], "Y")
    after.chat([user("again")], "at last")
    after.respond("s", "S", previous_response_id=first)
    after.respond("w", "W", conversation="conv_1")
    desk.sink.events += after.sink.events
    assert [words for _, words in desk.told()] == [
        ["start", "user:secret words", "user:b", ">[c1]", "c1=1", ">done"],
        ["start", "user:q", ">A", "user:x", ">X"],
        ["start", "user:again", "!>", ">at last"],
        ["start", "user:r", ">R", "user:s", ">S"],
        ["start", "user:v", ">V", "user:w", ">W"],
        ["start", "user:q", "~>A", "user:y", ">Y"],
    ]
    after.wait(35)
    assert sum(type(event).__name__ == "TrajectoryEnded" for event in after.sink.events) == 1
    after.wait(100)
    book = after.recorder.conversations
    assert (len(book), book._size, book.answers, book.failures, book.named) == (0, 0, {}, {}, {})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 9, "runs": [{"id": "x", "touched_ns": 1}]}', '{"runs": 1}']
)
def test_what_can_not_be_read_is_left_out(tmp_path, text):
    """A file of another version, or a broken one, stops nothing."""
    (tmp_path / "open-1.json").write_text(text)
    book = Conversations(100)
    assert take(book, tmp_path, 0.0, 0) == 0
    assert len(book) == 0
    assert take(book, tmp_path / "none", 0.0, 0) == 0


@given(st.randoms(use_true_random=False))
def test_events_in_any_order_and_twice_are_the_same_run(rng):
    """What waited in a spool comes later, and may come again."""
    desk, name = Desk(), {"X-Millstream-Trajectory": "run-1"}
    told = desk.chat([system("s"), user("q")], calls("c1", "c2"), headers=name)
    told = [*told, result("c2", "two"), result("c1", "one")]
    desk.chat(told, status=500, body={}, headers=name)
    told = desk.chat(told, "half", headers=name)
    desk.chat([*told, user("and?")], "whole", headers={**name, "X-Millstream-End": "done"})
    (wanted,) = desk.runs().values()
    again = rng.sample(desk.sink.events, 5)
    desk.sink.events += again
    rng.shuffle(desk.sink.events)
    (found,) = desk.runs().values()
    assert (found.status, found.content_hash) == ("complete", wanted.content_hash)


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 6))
def test_whatever_runs_side_by_side_each_keeps_its_own(seed, count, turns):
    """Conversations that interleave, say the same now and then, and fail now and then: as many runs, each with its
    own turns in order and everything once.
    """
    rng = random.Random(seed)
    desk = Desk()
    talks = [[user("start")] for _ in range(count)]
    said = [[] for _ in range(count)]
    left = [n for n in range(count) for _ in range(turns)]
    rng.shuffle(left)
    for n in left:
        if rng.random() < 0.3 and len(said[n]) > 0:
            desk.chat(talks[n], status=500, body={})
        answer = f"answer {n} {len(said[n])}"
        said[n].append(answer)
        talks[n] = [*desk.chat(talks[n], answer), user(f"go on {rng.randrange(2)}")]
    runs = desk.runs().values()
    found = sorted([response.text for response in run.responses] for run in runs)
    assert found == sorted(said)
    for run in runs:
        assert sum(type(event).__name__ == "MessageReceived" for event in run.events) == turns
