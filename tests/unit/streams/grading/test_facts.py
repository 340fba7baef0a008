"""Facts of a trajectory: task ids, token hashes and signatures of near-duplicates."""

from __future__ import annotations

import random

import pytest

from millstream.events import (
    EventId,
    Interface,
    MessageReceived,
    ModelResponded,
    Task,
    ToolCall,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.streams.facts import facts_of
from millstream.streams.signatures import MAX_BYTES, PLACES, signature, similarity
from millstream.trajectory import Trajectory

GOLDEN = (21084, 54106, 46186, 46186, 64561, 18744, 13044, 25182)
WORDS = [f"{a}{b}{c}" for a in "bdfglmnprst" for b in "aeiou" for c in ("", "n", "rs", "tle", "ment")]


def common(n):
    return {"id": EventId(f"e{n}"), "trajectory_id": TrajectoryId("t")}


def run(*responses, task=None, messages=("What is  it?",), interface=None):
    start = TrajectoryStarted(**common(0), task=task or Task(), interface=interface or Interface())
    received = [MessageReceived(**common(i + 1), content=text) for i, text in enumerate(messages)]
    return Trajectory(id=TrajectoryId("t"), events=(start, *received, *responses))


def said(text="", n=9, **fields):
    return ModelResponded(**common(n), text=text, **fields)


def test_the_callers_task_id_wins():
    """Else it is made from the first messages and the interface."""
    assert facts_of(run(said("x"), task=Task(id="mine")), 0).task_id == "mine"
    made = facts_of(run(said("x")), 0).task_id
    assert made.startswith("task-")
    assert facts_of(run(said("other answer"), messages=("what is it?",)), 0).task_id == made
    assert facts_of(run(said("x"), messages=("What was it?",)), 0).task_id != made
    assert facts_of(run(said("x"), interface=Interface(tools="h")), 0).task_id != made
    assert facts_of(run(said("x"), messages=()), 0).task_id == ""


def test_messages_after_the_first_action_do_not_name_the_task():
    """They depend on what the policy did."""
    later = Trajectory(
        id=TrajectoryId("t"), events=(*run(said("x")).events, MessageReceived(**common(10), content="go on"))
    )
    assert facts_of(later, 0).task_id == facts_of(run(said("x")), 0).task_id


def test_token_hashes_are_equal_for_identical_answers_only():
    """Of token ids where all are known, else of the text; the borders between actions count."""
    ids = facts_of(run(said("a", token_ids=(1, 2)), said("b", token_ids=(3,))), 0)
    assert ids.token_hash == facts_of(run(said("x", token_ids=(1, 2)), said("y", token_ids=(3,))), 0).token_hash
    assert ids.token_hash != facts_of(run(said("a", token_ids=(1,)), said("b", token_ids=(2, 3))), 0).token_hash
    assert facts_of(run(said("a")), 0).token_hash == facts_of(run(said("a")), 0).token_hash != ""
    assert (ids.policy_tokens, ids.steps) == (3, 2)


def test_a_run_without_content_is_not_trainable():
    """Metadata only: accepted, and said to be so."""
    facts = facts_of(run(said()), 0)
    assert not facts.trainable
    assert facts.signature == ()
    assert facts_of(run(said("x")), 0).trainable
    assert facts_of(run(said(tool_calls=(ToolCall(name="f", arguments={"x": 1}),))), 0).trainable


@pytest.mark.parametrize("text", ["a", "abcd", "abcde", "\u00e9\u00e8", "x" * 5000, "\ud83d"])
def test_any_text_has_a_signature_that_is_equal_to_itself(text):
    """128 numbers of 16 bits; short texts too."""
    made = signature(text)
    assert len(made) == PLACES
    assert all(0 <= value < 1 << 16 for value in made)
    assert similarity(made, signature(text)) == 1.0


def test_no_text_has_no_signature_and_resembles_nothing():
    """Also not itself."""
    assert signature("") == ()
    assert similarity((), ()) == 0.0


def test_signatures_do_not_change_between_versions():
    """They are kept in the log: a change makes old and new ones incomparable."""
    assert signature("the quick brown fox jumps over the lazy dog")[:8] == GOLDEN


def test_word_edits_are_recalled_and_distinct_texts_are_not_flagged():
    """At .7, of 40-word texts: one edit always, three nearly always, none of 200 distinct pairs."""
    draw = random.Random(3)

    def flagged(edits):
        count = 0
        for _ in range(100):
            words = draw.choices(WORDS, k=40)
            other = list(words)
            for place in draw.sample(range(40), edits):
                other[place] = draw.choice(WORDS)
            count += similarity(signature(" ".join(words)), signature(" ".join(other))) >= 0.7
        return count

    assert flagged(1) == 100
    assert flagged(3) >= 85
    distinct = [signature(" ".join(draw.choices(WORDS, k=40))) for _ in range(400)]
    assert not any(similarity(a, b) >= 0.7 for a, b in zip(distinct[::2], distinct[1::2], strict=True))


def test_the_estimate_is_unbiased():
    """Against the Jaccard similarity counted exactly."""
    draw = random.Random(5)
    errors = []
    for _ in range(60):
        words = draw.choices(WORDS, k=60)
        other = words[: draw.randrange(10, 60)] + draw.choices(WORDS, k=20)
        left, right = " ".join(words), " ".join(other)
        shingles = [{text[i : i + 5] for i in range(len(text) - 4)} for text in (left, right)]
        exact = len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])
        errors.append(similarity(signature(left), signature(right)) - exact)
    assert abs(sum(errors) / len(errors)) < 0.02
    assert max(map(abs, errors)) < 0.17


def test_long_texts_are_signed_by_their_ends():
    """So that the cost of a signature is bounded."""
    left, right = ("x" * MAX_BYTES + "end of it", "x" * MAX_BYTES * 3 + "end of it")
    assert signature(left) == signature(right)
