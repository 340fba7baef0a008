"""The warm start of the base: imitation of the imperfect demonstrator, on the tokens it acts with."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.examples.finqa.demonstrator import demonstrate
from millstream.examples.finqa.settings import WarmStart
from millstream.examples.finqa.tasks import WORLDS, make_task
from millstream.trainer.sampling_codec import ChatCodec

FIRST_WORLD = WORLDS.stop + 1000
_WORLDS_A_POOL, _TASKS_A_WORLD = 8, 40


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode as tokens; `acted` marks the tokens of actions."""

    ids: list[int]
    acted: list[bool]


def demonstrations(codec: ChatCodec, seed: int) -> Iterator[list[Demonstration]]:
    """Pools of demonstrations over fresh worlds without end, none of them worlds that tasks are drawn from."""
    draw = random.Random(f"finqa-warm-start-{seed}")
    first = FIRST_WORLD
    while True:
        pool = []
        for number in range(first, first + _WORLDS_A_POOL):
            pool += [_demonstration(codec, number, index, draw) for index in range(_TASKS_A_WORLD)]
        first += _WORLDS_A_POOL
        yield pool


def _demonstration(codec: ChatCodec, number: int, index: int, draw: random.Random) -> Demonstration:
    episode = demonstrate(make_task(number, index), draw)
    ids = codec.opening(episode.messages())
    acted = [False] * len(ids)
    for turn in episode.turns:
        action = codec.action(turn.text)
        shown = [] if turn.observation is None else codec.observation(turn.observation)
        ids += action + shown
        acted += [True] * len(action) + [False] * len(shown)
    return Demonstration(ids, acted)


def batches(pool: Sequence[Demonstration], tokens: int, draw: random.Random) -> list[list[Demonstration]]:
    """Batches of alike lengths, at most `tokens` padded tokens each, in random order."""
    batches: list[list[Demonstration]] = []
    batch: list[Demonstration] = []
    for item in sorted(pool, key=lambda item: len(item.ids) + 24 * draw.random()):
        longest = max(len(other.ids) for other in [*batch, item])
        if batch and longest * (len(batch) + 1) > tokens:
            batches.append(batch)
            batch = []
        batch.append(item)
    if batch:
        batches.append(batch)
    draw.shuffle(batches)
    return batches


def train(model: Any, codec: ChatCodec, settings: WarmStart) -> Iterator[float]:
    """Train in place; yields the mean negative log-likelihood of action tokens, in nats, step by step."""
    import torch

    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=settings.weight_decay,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, settings.steps))
    draw = random.Random(f"finqa-batches-{settings.seed}")
    pools = demonstrations(codec, settings.seed)
    queue: list[list[Demonstration]] = []
    for _ in range(settings.steps):
        if not queue:
            queue = batches(next(pools), settings.batch_tokens, draw)
        loss = _loss(model, queue.pop(), codec.pad_id)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield float(loss.detach())


def _loss(model: Any, batch: Sequence[Demonstration], pad: int) -> Any:
    import torch
    from torch.nn import functional

    width = max(len(item.ids) for item in batch)
    ids = torch.tensor([item.ids + [pad] * (width - len(item.ids)) for item in batch])
    acted = torch.tensor([item.acted + [False] * (width - len(item.ids)) for item in batch])
    real = torch.tensor([[True] * len(item.ids) + [False] * (width - len(item.ids)) for item in batch])
    hidden = model.model(input_ids=ids, attention_mask=real, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1][acted[:, 1:]])
    return functional.cross_entropy(logits, ids[:, 1:][acted[:, 1:]])


def _rate(step: int, steps: int, warm_up: int = 50) -> float:
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
    return min(1.0, (step + 1) / warm_up) * (0.05 + 0.95 * cosine)
