"""A policy plays tasks: what it sampled, and what the tools answered, turn by turn.

Practice and evaluation are the same play; they differ in the tasks and in where the runs go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from millstream.examples.finqa.episode import Episode
from millstream.examples.finqa.tasks import task_from_id
from millstream.trainer.sampling import Assignment, SampledRollout, Sampler, SamplingSettings

MAX_CONTEXT = 512
_MODELS: dict[str, tuple[Any, Any]] = {}


class Play(Struct, frozen=True, kw_only=True):
    """What to play: ``attempts`` at each task, with the model in ``policy_dir``."""

    policy_dir: str
    task_ids: tuple[str, ...]
    attempts: int = 1
    first_attempt: int = 0
    temperature: float = 0.7
    seed: str = "0"
    batch_size: int = 256


class PlayedTurn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action. ``prompt_ids`` is the whole prompt; ``tool`` is empty where the text was no call."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    text: str
    tool: str = ""
    argument: str = ""
    observation: str | None = None
    ok: bool = True


class PlayedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt, whole. ``limit``: it ran out of turns, tokens or context before it answered."""

    task_id: str
    attempt: int
    turns: tuple[PlayedTurn, ...]
    final_answer: str | None
    limit: bool


def play(request: Play) -> list[PlayedRun]:
    """One run for each task and attempt, tasks in order, attempts within them."""
    model, tokenizer = load(request.policy_dir)
    episodes = [
        (Episode(task_from_id(task_id)), task_id, request.first_attempt + attempt)
        for task_id in request.task_ids
        for attempt in range(request.attempts)
    ]
    settings = SamplingSettings(
        temperature=request.temperature,
        seed=request.seed,
        batch_size=request.batch_size,
        max_context=MAX_CONTEXT,
    )
    assignments = [Assignment(task_id, attempt, episode) for episode, task_id, attempt in episodes]
    rollouts = Sampler(model, tokenizer, settings).run(assignments)
    return [_played(rollout, episode) for rollout, (episode, _, _) in zip(rollouts, episodes, strict=True)]


def load(policy_dir: str) -> tuple[Any, Any]:
    """The model (float32, for sampling) and tokenizer of a directory; the last two are kept."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    key = str(Path(policy_dir).resolve())
    if key not in _MODELS:
        while len(_MODELS) > 1:
            _MODELS.pop(next(iter(_MODELS)))
        model = AutoModelForCausalLM.from_pretrained(key, dtype=torch.float32, local_files_only=True)
        _MODELS[key] = model, AutoTokenizer.from_pretrained(key, local_files_only=True)
    return _MODELS[key]


def _played(rollout: SampledRollout, episode: Episode) -> PlayedRun:
    turns: list[PlayedTurn] = []
    context: tuple[int, ...] = ()
    acted: Sequence[Any] = episode.turns
    for place, sampled in enumerate(rollout.turns):
        prompt = context + sampled.prompt_ids
        turn = acted[place] if place < len(acted) else None
        turns.append(
            PlayedTurn(
                prompt_ids=prompt,
                token_ids=sampled.token_ids,
                logprobs=sampled.logprobs,
                finish_reason=sampled.finish_reason,
                text=sampled.text,
                tool=(turn.tool or "") if turn else "",
                argument=turn.argument if turn else "",
                observation=turn.observation if turn else None,
                ok=turn.ok if turn else False,
            )
        )
        context = prompt + sampled.token_ids
    return PlayedRun(
        task_id=rollout.task_id,
        attempt=rollout.attempt,
        turns=tuple(turns),
        final_answer=episode.final_answer,
        limit=episode.end_reason != "done",
    )
