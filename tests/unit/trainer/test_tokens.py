"""Logged tokens: which are trained, which log-probs a ratio may use, what is dropped and counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.events import Interface, Truncated
from millstream.trainer.tokens import (
    TokenLimits,
    TokenSequence,
    behaviour_logprobs,
    counted,
    logged_sequences,
    policy_agent,
    tokenise_logged,
)

LIMITS = TokenLimits()
IDS = st.integers(1, 9)
RATIOS = TokenLimits(ratios=True)


def sequences(rollout: Any) -> tuple[TokenSequence, ...]:
    found = logged_sequences(rollout)
    assert not isinstance(found, str)
    return tuple(found)


def test_calls_that_extend_each_other_are_one_sequence(story: Any) -> None:
    """Prompt [1 2], output [3 4], then prompt [1 2 3 4 | 5 6], output [7]: one row, only 3, 4 and 7 trained."""
    rollout = story().samples([1, 2], [3, 4]).tool("", "x").samples([1, 2, 3, 4, 5, 6], [7]).rollout()
    (found,) = sequences(rollout)
    assert found.ids == (1, 2, 3, 4, 5, 6, 7)
    assert found.mask == (False, False, True, True, False, False, True)
    assert found.logprobs == (0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.1)
    assert (found.weight, found.temperature, found.trained) == (1.0, 0.7, 3)


def test_observations_are_never_trained(story: Any) -> None:
    """Tokens [act, obs, obs, act] give the mask [1, 0, 0, 1] (R16)."""
    rollout = story().samples([], [10]).samples([10, 20, 21], [11]).rollout()
    (found,) = sequences(rollout)
    assert (found.ids, found.mask) == ((10, 20, 21, 11), (True, False, False, True))


def test_a_rewritten_history_gives_one_sequence_a_call(story: Any) -> None:
    """The second prompt does not extend the first call (R13): two rows that weigh a half each, each its own output."""
    rollout = story().samples([1, 2], [3, 4]).samples([1, 2, 9], [7]).rollout()
    first, second = sequences(rollout)
    assert (first.ids, first.mask, first.weight) == ((1, 2, 3, 4), (False, False, True, True), 0.5)
    assert (second.ids, second.mask, second.weight) == ((1, 2, 9, 7), (False, False, False, True), 0.5)
    assert (first.call, second.call) == (0, 1)


def test_an_end_token_that_was_not_sampled_is_not_trained(story: Any) -> None:
    """A turn cut at its token limit has no end token of its own; the one the template adds is prompt (R11)."""
    end = 99
    cut = story().samples([1], [3], finish_reason="length").samples([1, 3, end, 5], [7, end]).rollout()
    (found,) = sequences(cut)
    assert found.ids == (1, 3, end, 5, 7, end)
    assert found.mask == (False, True, False, False, True, True)


def test_only_the_policys_own_agent_is_trained(story: Any) -> None:
    """After a handoff the other agent's tokens stay out, or are what the policy read (T32)."""
    told = story(agent="A").samples([1], [2], agent="A").samples([50], [51, 52], agent="B")
    rollout = told.samples([1, 2, 51, 52], [3], agent="A").rollout()
    (found,) = sequences(rollout)
    assert (found.ids, found.mask) == ((1, 2, 51, 52, 3), (False, True, False, False, True))
    assert policy_agent(rollout.trajectory) == "A"
    (other,) = logged_sequences(rollout, "B")
    assert other.ids == (50, 51, 52)


def test_steps_of_another_policy_and_history_are_not_trained(story: Any) -> None:
    """What an earlier run gave, and what another version or lineage answered, is context; unless asked for by name."""
    told = story(agent="A", policy_version=1).samples([1], [2], agent="A", flags=("history",))
    told = told.samples([1, 2], [3], agent="A", policy_version=1).samples([50], [51], agent="B", policy_version=7)
    rollout = told.samples([1, 2, 3], [4], agent="A", policy_version=2).rollout()
    (found,) = sequences(rollout)
    assert (found.ids, found.mask) == ((1, 2, 3), (False, False, True))
    (other,) = logged_sequences(rollout, "B")
    assert other.ids == (50, 51)


@pytest.mark.parametrize(
    ("fields", "usable"),
    [
        ({}, True),
        ({"logprob_kind": "raw", "temperature": 1.0}, True),
        ({"logprob_kind": "raw"}, False),
        ({"logprob_kind": None}, False),
        ({"temperature": None}, False),
        ({"temperature": 0.0}, False),
        ({"top_p": 0.9}, False),
        ({"top_p": 1.0, "top_k": 0}, True),
        ({"top_k": 40}, False),
        ({"sampling": {"seed": 7, "max_tokens": 9, "logit_bias": {}, "repetition_penalty": 1.0}}, True),
        ({"sampling": {"frequency_penalty": 0.5}}, False),
        ({"sampling": {"repetition_penalty": 1.1}}, False),
        ({"sampling": {"logit_bias": {"5": -100}}}, False),
        ({"sampling": {"min_p": 0.05}}, False),
        ({"logprobs": None}, False),
        ({"logprobs": (-0.1,)}, False),
        ({"logprobs": (-0.1, float("-inf"))}, False),
    ],
)
def test_the_ladder_of_logprobs(story: Any, fields: dict[str, Any], usable: bool) -> None:
    """Processed ones at a known temperature are used, raw ones only at temperature 1, nothing that was cut off."""
    rollout = story().samples([1], [2, 3], **fields).rollout()
    assert (behaviour_logprobs(rollout.trajectory.responses[0]) is not None) == usable
    (item,) = tokenise_logged([rollout], RATIOS)
    assert (len(item.sequences), item.dropped) == ((1, ()) if usable else (0, ("no_ratios",)))
    (imitated,) = tokenise_logged([rollout], LIMITS)
    assert len(imitated.sequences) == 1


def test_an_unknown_interface_bars_ratios(story: Any) -> None:
    """Without the hash of a part of the interface nobody knows that μ was of the same prompt."""
    rollout = story().samples([1], [2]).rollout(interface=Interface(tools="a", system="b", template="c"))
    (item,) = tokenise_logged([rollout], RATIOS)
    assert item.dropped == ("no_ratios",)


def test_a_truncated_observation_does_not_matter_where_ids_were_logged(story: Any) -> None:
    """The ids are what the policy saw, whatever the log kept of the text."""
    told = story().samples([1], [2]).tool("c", "x", truncated=Truncated(length=9, sha256="0"))
    (item,) = tokenise_logged([told.samples([1, 2, 3], [4]).rollout()], RATIOS)
    assert len(item.sequences) == 1


def test_what_cannot_be_trained_is_dropped_and_counted(story: Any) -> None:
    """No response, no ids, no sampled token, a prompt over the limit: each has its name and number (R06)."""
    rollouts = [
        story("none").rollout(),
        story("text").says("hello").rollout(),
        story("empty").samples([1, 2], []).rollout(),
        story("long").samples(range(5000), [1]).rollout(),
        story("alone").samples([], [1]).rollout(),
        story("good").samples([1], [2]).rollout(),
    ]
    counts = counted(tokenise_logged(rollouts, LIMITS))
    assert counts.dropped == {"no_response": 1, "no_logged_tokens": 1, "no_trained_tokens": 2, "too_long": 1}
    assert (counts.rollouts, counts.sequences, counts.trained_tokens) == (6, 1, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.lists(IDS, max_size=4), st.lists(IDS, max_size=4), st.booleans()), min_size=1, max_size=6))
def test_each_sampled_token_is_trained_once_and_no_other(
    story: Any, turns: list[tuple[list[int], list[int], bool]]
) -> None:
    """Whatever the turns, and whether or not a prompt goes on from the last call: trained are the outputs, in order."""
    told, history, outputs = story(), [0], []
    for seen, sampled, goes_on in turns:
        prompt = (history if goes_on else [7, *history]) + seen
        told = told.samples(prompt, sampled)
        outputs += sampled
        history = prompt + sampled
    found = sequences(told.rollout())
    trained = [token for s in found for token, mine in zip(s.ids, s.mask, strict=True) if mine]
    assert trained == outputs
    assert sum(s.weight for s in found) == pytest.approx(1.0)
    assert all(len(s.ids) == len(s.mask) == len(s.logprobs or ()) for s in found)


def test_the_order_is_that_of_ids(story: Any) -> None:
    """Rollouts are taken by id, never by arrival."""
    rollouts = [story(name).samples([1], [2]).rollout() for name in ("b", "c", "a")]
    items = tokenise_logged(rollouts, LIMITS)
    assert [item.rollout.id for item in items] == ["r-a", "r-b", "r-c"]
    assert items == tokenise_logged(rollouts[::-1], LIMITS)
