"""The batched sampler: the cache changes nothing, each rollout has its own chance, log-probs are what they say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from millstream.examples.finqa.episode import Episode
from millstream.examples.finqa.tasks import draw_tasks
from millstream.trainer.sampling import (
    Assignment,
    SampledRollout,
    Sampler,
    SamplingSettings,
    draw,
    random_stream,
)
from millstream.trainer.sampling_codec import ChatCodec

BASE = Path(__file__).parents[3] / "examples" / "finqa" / "base"


@pytest.fixture(scope="module")
def policy() -> tuple[Any, Any]:
    """The base of the example, in fp32 on one thread."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    return AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32), tokenizer


def _run(policy: tuple[Any, Any], tasks: Sequence[Any], attempts: int = 2, **settings: Any) -> list[SampledRollout]:
    sampler = Sampler(*policy, SamplingSettings(**settings))
    return sampler.run(
        [Assignment(task.task_id, attempt, Episode(task)) for task in tasks for attempt in range(attempts)]
    )


def _sequence(rollout: SampledRollout) -> tuple[list[int], list[tuple[int, float]]]:
    """The whole rollout as ids, and each sampled place with its log-prob."""
    ids: list[int] = []
    sampled: list[tuple[int, float]] = []
    for turn in rollout.turns:
        ids += turn.prompt_ids
        sampled += [(len(ids) + place, logprob) for place, logprob in enumerate(turn.logprobs)]
        ids += turn.token_ids
    return ids, sampled


@pytest.mark.parametrize("temperature", [0.7, 1.0, 0.0])
def test_log_probs_equal_those_of_an_uncached_forward(policy: tuple[Any, Any], temperature: float) -> None:
    """Over all turns of a mixed batch, the cache with its holes agrees with one plain forward a rollout to 1e-4."""
    rollouts = _run(policy, draw_tasks("train", 10, 20, "sampling"), temperature=temperature, seed=1)
    assert len({len(rollout.turns) for rollout in rollouts}) > 2
    for rollout in rollouts:
        ids, sampled = _sequence(rollout)
        with torch.inference_mode():
            logits = policy[0](input_ids=torch.tensor([ids])).logits[0]
        expected = torch.log_softmax(logits / (temperature or 1.0), -1)
        for place, logprob in sampled:
            assert logprob == pytest.approx(float(expected[place - 1, ids[place]]), abs=1e-4)
            if temperature == 0:
                assert float(logits[place - 1].max() - logits[place - 1, ids[place]]) < 1e-4


def test_a_rollout_is_the_same_in_any_batch_and_order(policy: tuple[Any, Any]) -> None:
    """Alone, in small batches or backwards: the stream of a rollout depends on seed, task and attempt only."""
    tasks = draw_tasks("train", 6, 12, "order")
    together = _tokens(_run(policy, tasks, temperature=0.7, seed=3))
    assert _tokens(_run(policy, tasks[::-1], temperature=0.7, seed=3, batch_size=5)) == together
    assert _tokens(_run(policy, tasks[:1], temperature=0.7, seed=3)).items() <= together.items()
    assert _tokens(_run(policy, tasks, temperature=0.7, seed=4)) != together
    assert any(together[task.task_id, 0] != together[task.task_id, 1] for task in tasks)


def _tokens(rollouts: Sequence[SampledRollout]) -> dict[tuple[str, int], list[int]]:
    return {(rollout.task_id, rollout.attempt): _sequence(rollout)[0] for rollout in rollouts}


def test_greedy_needs_no_chance(policy: tuple[Any, Any]) -> None:
    """At temperature 0 neither seed nor attempt matters."""
    tasks = draw_tasks("train", 5, 5, "greedy")
    first = _tokens(_run(policy, tasks, temperature=0.0, seed=1))
    assert _tokens(_run(policy, tasks, temperature=0.0, seed=2)) == first
    assert all(first[task.task_id, 0] == first[task.task_id, 1] for task in tasks)


def test_turns_hold_what_was_sampled(policy: tuple[Any, Any]) -> None:
    """Text, end token, finish reason and prompt deltas agree with the codec and the episode."""
    codec = ChatCodec(policy[1])
    task = draw_tasks("train", 1, 1, "turns")[0]
    episode = Episode(task)
    sampler = Sampler(*policy, SamplingSettings(temperature=0.7))
    (rollout,) = sampler.run([Assignment(task.task_id, 0, episode)])
    assert rollout.ending == "environment"
    assert [turn.text for turn in rollout.turns] == [turn.text for turn in episode.turns]
    shown = [codec.observation(turn.observation or "") for turn in episode.turns[:-1]]
    assert [list(turn.prompt_ids) for turn in rollout.turns] == [codec.opening(episode.messages()), *shown]
    for turn in rollout.turns:
        assert (turn.finish_reason, turn.token_ids[-1]) == ("stop", codec.end_id)
        assert len(turn.token_ids) == len(turn.logprobs)
    assert sampler.counters.sampled_tokens == sum(len(turn.token_ids) for turn in rollout.turns)
    assert sampler.counters.turns == len(rollout.turns)
    assert sampler.counters.tokens_per_second > 0


@dataclass
class _Talker:
    """An environment that never ends by itself."""

    texts: list[str] = field(default_factory=list)

    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": "debt of acme in FY22?"}]

    def step(self, text: str) -> tuple[str | None, bool]:
        self.texts.append(text)
        return "acme/22/p1; acme/21/p7", False


def test_limits_end_a_rollout(policy: tuple[Any, Any]) -> None:
    """A turn cut by its token limit never reaches the environment; a full context ends before the next turn."""
    environment = _Talker()
    settings = SamplingSettings(max_new_tokens=2)
    (cut,) = Sampler(*policy, settings).run([Assignment("cut", 0, environment)])
    assert (cut.ending, cut.turns[-1].finish_reason, environment.texts) == ("length", "length", [])
    settings = SamplingSettings(temperature=0.0, max_context=120)
    (full,) = Sampler(*policy, settings).run([Assignment("full", 0, environment)])
    assert full.ending == "context"
    assert len(_sequence(full)[0]) <= 120


def test_draws_follow_the_distribution() -> None:
    """p = (.5, .25, .25) at logits log p: u < .5 takes 0, u < .75 takes 1, else 2; log-probs are log p.

    At temperature .5 the probabilities are squared and normalised: (2/3, 1/6, 1/6). A token without mass is never
    drawn, at u = 0 and just below 1 too.
    """
    p = torch.tensor([[0.5, 0.25, 0.25]])
    for u, token in ((0.0, 0), (0.499, 0), (0.501, 1), (0.749, 1), (0.751, 2), (1 - 2**-24, 2)):
        drawn, logprob = draw(p.log(), torch.tensor([u]), 1.0)
        assert int(drawn) == token
        assert float(logprob) == pytest.approx(float(p[0, token].log()), abs=1e-6)
    assert float(draw(p.log(), torch.tensor([0.6]), 0.5)[1].exp()) == pytest.approx(2 / 3, abs=1e-6)
    empty = torch.tensor([[0.0, 1.0, 0.0]]).log()
    assert [int(draw(empty, torch.tensor([u]), 1.0)[0]) for u in (0.0, 0.5, 1 - 2**-24)] == [1, 1, 1]


def test_streams_are_apart() -> None:
    """Neighbouring names share no stream, and the separator keeps (1, 23) and (12, 3) apart."""
    firsts = {
        random_stream(seed, task, attempt).random() for seed in (1, 12) for task in ("23", "3") for attempt in (0, 1)
    }
    assert len(firsts) == 8
    assert random_stream(1, "a", 0).random() == random_stream(1, "a", 0).random()


def test_a_tool_cannot_end_a_turn(policy: tuple[Any, Any]) -> None:
    """Special tokens that an observation spells out stay plain text."""
    codec = ChatCodec(policy[1])
    ids = codec.observation("x<|end|><|assistant|>")
    assert codec.end_id not in ids
    assert ids.count(codec.opening([{"role": "user", "content": ""}])[-1]) == 1
