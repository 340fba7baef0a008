"""The batched sampler: one policy, many episodes at once, one key-value cache across the turns of each.

Each rollout has its own random stream, hash(seed, task id, attempt), whatever batch it is in. A token is drawn by
inverse CDF from the softmax of logits / temperature, and its log-prob is of that same distribution ("processed").
All rows of a batch take their turns together; between turns finished rows are dropped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch

from millstream.trainer.sampling_batch import SequenceBatch
from millstream.trainer.sampling_codec import ChatCodec

FinishReason: TypeAlias = Literal["stop", "length"]
Ending: TypeAlias = Literal["environment", "length", "context"]


class Environment(Protocol):
    """What a rollout acts in."""

    def messages(self) -> Sequence[dict[str, str]]:
        """The opening of the conversation, in chat form."""
        ...

    def step(self, text: str) -> tuple[str | None, bool]:
        """Take one action; return the observation and whether the episode is over."""
        ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """One rollout to make: `task_id` and `attempt` name its random stream."""

    task_id: str
    attempt: int
    environment: Environment


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One call of the policy.

    `prompt_ids` are the tokens added since the end of the previous call (the first time: the whole prompt);
    `token_ids` the sampled ones, the end token included where it was sampled; `logprobs` theirs, in nats.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    text: str


@dataclass(frozen=True, slots=True)
class SampledRollout:
    """The turns of one rollout and what ended it: the environment, the token limit of a turn, or the context."""

    task_id: str
    attempt: int
    turns: tuple[SampledTurn, ...]
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How to sample. At temperature 0 the likeliest token is taken and log-probs are of the untempered softmax."""

    temperature: float = 1.0
    seed: int | str = 0
    batch_size: int = 256
    max_new_tokens: int = 28
    max_context: int = 512


@dataclass(slots=True)
class SamplingCounters:
    """What a sampler has done so far; `slots` are token places computed, padding included; seconds are wall time."""

    rollouts: int = 0
    turns: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    steps: int = 0
    slots: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    turn_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time in all."""
        return self.prefill_seconds + self.decode_seconds + self.turn_seconds

    @property
    def tokens_per_second(self) -> float:
        """Sampled tokens a second of wall time; 0 before the first."""
        return self.sampled_tokens / self.seconds if self.seconds else 0.0


def random_stream(seed: int | str, task_id: str, attempt: int) -> np.random.Generator:
    """The random stream of one rollout: Philox keyed by a hash of the three."""
    name = f"{seed}\x1f{task_id}\x1f{attempt}".encode()
    key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "big")
    return np.random.Generator(np.random.Philox(key=key))


@dataclass(slots=True)
class _Row:
    assignment: Assignment
    stream: np.random.Generator
    prompt: list[int]
    carried: list[int] = field(default_factory=list)
    length: int = 0
    turns: list[SampledTurn] = field(default_factory=list)
    ending: Ending = "environment"


class Sampler:
    """Rollouts of one model; holds no state between calls beyond its counters."""

    def __init__(self, model: Any, tokenizer: Any, settings: SamplingSettings) -> None:
        """Wrap a causal LM and its tokenizer, whose chat template must show assistant and tool messages."""
        self.model = model.eval()
        self.codec = ChatCodec(tokenizer)
        self.settings = settings
        self.counters = SamplingCounters()

    def run(self, assignments: Iterable[Assignment]) -> list[SampledRollout]:
        """One rollout an assignment, in the same order; environments are stepped to their end."""
        rows = [self._row(assignment) for assignment in assignments]
        # Alike prompts make alike turns: batched together they leave fewer idle slots.
        ordered = sorted(rows, key=lambda row: (len(row.prompt), row.assignment.task_id))
        for start in range(0, len(ordered), self.settings.batch_size):
            self._run_batch(ordered[start : start + self.settings.batch_size])
        self.counters.rollouts += len(rows)
        return [
            SampledRollout(row.assignment.task_id, row.assignment.attempt, tuple(row.turns), row.ending) for row in rows
        ]

    def _row(self, assignment: Assignment) -> _Row:
        stream = random_stream(self.settings.seed, assignment.task_id, assignment.attempt)
        return _Row(assignment, stream, self.codec.opening(assignment.environment.messages()))

    @torch.inference_mode()
    def _run_batch(self, rows: list[_Row]) -> None:
        batch = SequenceBatch(self.model, len(rows))
        while rows:
            started = time.perf_counter()
            logits = batch.feed([row.carried + row.prompt for row in rows])
            prefilled = time.perf_counter()
            sampled, logprobs, counts, fed = self._decode(batch, rows, logits)
            decoded = time.perf_counter()
            kept = [
                place
                for place, row in enumerate(rows)
                if self._close_turn(row, sampled[place][: counts[place]], logprobs[place][: counts[place]], fed)
            ]
            rows = [rows[place] for place in kept]
            if rows:
                batch.keep(kept)
            self.counters.prefill_seconds += prefilled - started
            self.counters.decode_seconds += decoded - prefilled
            self.counters.turn_seconds += time.perf_counter() - decoded
        self.counters.slots += batch.slots

    def _decode(
        self, batch: SequenceBatch, rows: Sequence[_Row], logits: torch.Tensor
    ) -> tuple[list[list[int]], list[list[float]], list[int], int]:
        """Sample one turn of all rows: ids and log-probs a row, how many count, and how many are in the cache."""
        limit, end = self.settings.max_new_tokens, self.codec.end_id
        uniforms = torch.from_numpy(np.stack([row.stream.random(limit, dtype=np.float32) for row in rows]))
        uniforms = uniforms.to(logits.device)
        done = torch.zeros(len(rows), dtype=torch.bool, device=logits.device)
        counts = torch.zeros(len(rows), dtype=torch.long, device=logits.device)
        ids, logprobs = [], []
        for step in range(limit):
            token, logprob = draw(logits, uniforms[:, step], self.settings.temperature)
            ids.append(token)
            logprobs.append(logprob)
            counts += ~done
            live = ~done
            done = done | (token == end)
            if step == limit - 1 or bool(done.all()):
                break
            logits = batch.append(token, live)
        self.counters.steps += len(ids)
        table = torch.stack(ids, 1).tolist(), torch.stack(logprobs, 1).tolist()
        return *table, counts.tolist(), len(ids) - 1

    def _close_turn(self, row: _Row, ids: list[int], logprobs: list[float], fed: int) -> bool:
        """Record a turn and step the environment; whether the row goes on."""
        stopped = ids[-1] == self.codec.end_id
        text = self.codec.text(ids)
        row.turns.append(
            SampledTurn(tuple(row.prompt), tuple(ids), tuple(logprobs), "stop" if stopped else "length", text)
        )
        row.length += len(row.prompt) + len(ids)
        self.counters.turns += 1
        self.counters.sampled_tokens += len(ids)
        self.counters.prompt_tokens += len(row.prompt)
        if not stopped:
            row.ending = "length"
            return False
        observation, done = row.assignment.environment.step(text)
        if done:
            return False
        row.prompt = self.codec.observation(observation or "")
        row.carried = ids[fed:]
        if row.length + len(row.prompt) + self.settings.max_new_tokens > self.settings.max_context:
            row.ending = "context"
            return False
        return True


def draw(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row by inverse CDF, and its log-prob under softmax(logits / temperature).

    `logits` `[rows, vocabulary]`, `uniforms` `[rows]` in [0, 1); temperature 0 takes the likeliest token.
    """
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), -1)
    if temperature == 0:
        token = logprobs.argmax(-1, keepdim=True)
    else:
        mass = logprobs.exp().cumsum(-1)
        total = mass[:, -1:]
        below_total = torch.nextafter(total, torch.zeros_like(total))
        token = torch.searchsorted(mass, torch.minimum(uniforms[:, None] * total, below_total), right=True)
    return token[:, 0], logprobs.gather(1, token)[:, 0]
