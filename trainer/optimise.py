"""The training loop: batches in, one optimiser step each, what happened in each step out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from msgspec import Struct, structs
from torch import Tensor

from millstream.trainer.algorithms import Algorithm
from millstream.trainer.batches import Example, make_batches, seeded
from millstream.trainer.losses import Tokens, kl_k3
from millstream.trainer.model import Policy, Rows, entropy, pad, token_logprobs, trained_logits


class LoopSettings(Struct, frozen=True, kw_only=True):
    """How to step. `warmup_steps`: the learning rate rises linearly over the first ones."""

    learning_rate: float = 5e-4
    epochs: int = 3
    tokens_per_batch: int = 3000
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    seed: int = 0


@dataclass(slots=True)
class Progress:
    """Where a training stands, besides its weights: resumable at each end of an epoch."""

    epoch: int = 0
    step: int = 0
    skipped: int = 0
    metrics: list[dict[str, float]] = field(default_factory=list)


class Trainer:
    """One training of one policy. Deterministic on a CPU: same examples, settings and seed, same weights."""

    def __init__(self, policy: Policy, algorithm: Algorithm, settings: LoopSettings) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.progress = Progress()
        parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
        self.parameters = parameters
        self.optimizer = torch.optim.AdamW(
            parameters, lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )

    def run(self, examples: Sequence[Example], at_epoch_end: Callable[[Progress], None]) -> Progress:
        """Train from where `progress` stands to the last epoch."""
        self.policy.model.train()
        while self.progress.epoch < self.settings.epochs:
            draw = seeded("batches", self.settings.seed, self.progress.epoch)
            for batch in make_batches(examples, self.settings.tokens_per_batch, draw):
                self.progress.metrics.append(self.step(batch))
            self.progress.epoch += 1
            at_epoch_end(self.progress)
        self.policy.model.eval()
        return self.progress

    def step(self, batch: Sequence[Example]) -> dict[str, float]:
        """One step down the gradient; a gradient that is not finite is counted and not followed."""
        rows = pad(batch, self.policy.model.device)
        logits = trained_logits(self.policy, rows)
        tokens = batch_tokens(batch, rows, logits, self.algorithm.temperature)
        loss = self.algorithm.loss(tokens)
        self.optimizer.zero_grad(set_to_none=True)
        loss.value.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm))
        self.progress.step += 1
        self.progress.skipped += not self._follow(norm)
        return {
            "loss": float(loss.value.detach()),
            **champion_kl(tokens),
            "entropy": float(entropy(logits.detach())),
            "gradient_norm": norm,
            "learning_rate": self._rate(),
            "tokens": float(len(tokens.logprobs)),
            "clip_share": 0.0,
            **loss.diagnostics,
        }

    def _follow(self, norm: float) -> bool:
        if not math.isfinite(norm):
            return False
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        self.optimizer.step()
        return True

    def _rate(self) -> float:
        return self.settings.learning_rate * min(1.0, self.progress.step / max(1, self.settings.warmup_steps))


def batch_tokens(batch: Sequence[Example], rows: Rows, logits: Tensor, temperature: float | None) -> Tokens:
    """The flat view of a batch that losses take; `temperature` None: each row's own."""
    heat: Tensor | float = temperature if temperature is not None else _spread(batch, rows, _temperature)
    logprobs = token_logprobs(logits, rows, heat)
    known = _spread(batch, rows, _referenced)
    return Tokens(
        logprobs=logprobs,
        weight=_spread(batch, rows, _weight),
        advantage=_spread(batch, rows, _advantage),
        imitate=_spread(batch, rows, _imitate),
        reference=torch.where(known > 0, _reference(batch, rows, logprobs), logprobs.detach()),
        referenced=known,
        old=_old(batch, logprobs),
    )


def champion_kl(tokens: Tokens) -> dict[str, float]:
    """KL(champion ‖ policy) in nats a token, over the tokens whose reference is known; nothing where none is.

    In this direction because the champion, not the policy as it is now, sampled the tokens.
    """
    if not bool(tokens.referenced.any()):
        return {}
    return {"kl_champion": float(kl_k3(tokens.reference, tokens.logprobs.detach(), tokens.weight * tokens.referenced))}


def _reference(batch: Sequence[Example], rows: Rows, like: Tensor) -> Tensor:
    counts = rows.counts
    return _flat([e.reference or (0.0,) * count for e, count in zip(batch, counts, strict=True)], like)


def _referenced(example: Example) -> float:
    return float(bool(example.reference))


def _old(batch: Sequence[Example], like: Tensor) -> Tensor | None:
    found = []
    for example in batch:
        sequence = example.sequence
        if sequence.logprobs is None:
            return None
        found.append([p for p, trained in zip(sequence.logprobs[1:], sequence.mask[1:], strict=True) if trained])
    return _flat(found, like)


def _flat(rows: Sequence[Sequence[float]], like: Tensor) -> Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=like.dtype, device=like.device)


def _spread(batch: Sequence[Example], rows: Rows, of: Callable[[Example], float]) -> Tensor:
    values = torch.tensor([of(example) for example in batch], device=rows.ids.device)
    return values.repeat_interleave(rows.trained.sum(1))


def _temperature(example: Example) -> float:
    return example.sequence.temperature


def _weight(example: Example) -> float:
    return example.sequence.weight


def _advantage(example: Example) -> float:
    return example.advantage


def _imitate(example: Example) -> float:
    return float(example.imitate)


@torch.no_grad()
def with_reference(
    champion: Policy, examples: Sequence[Example], tokens_per_batch: int, temperature: float | None
) -> list[Example]:
    """The examples with the champion's log-probs at their trained tokens, in order."""
    champion.model.eval()
    found: list[Example] = []
    for batch, rows, logits in scored(champion, examples, tokens_per_batch):
        logprobs = batch_tokens(batch, rows, logits, temperature).logprobs
        for example, part in zip(batch, torch.split(logprobs, rows.counts), strict=True):
            found.append(structs.replace(example, reference=tuple(part.tolist())))
    return sorted(found, key=lambda example: example.key)


@torch.no_grad()
def evaluate(
    policy: Policy, algorithm: Algorithm, examples: Sequence[Example], tokens_per_batch: int
) -> dict[str, float]:
    """Means over trained tokens of the policy as it stands: negative log-likelihood, KL to the champion, entropy."""
    policy.model.eval()
    sums: dict[str, float] = {"nll": 0.0, "kl_champion": 0.0, "entropy": 0.0}
    total = 0
    for batch, rows, logits in scored(policy, examples, tokens_per_batch):
        tokens = batch_tokens(batch, rows, logits, algorithm.temperature)
        count = len(tokens.logprobs)
        total += count
        sums["nll"] -= float(tokens.logprobs.sum())
        sums["kl_champion"] += count * champion_kl(tokens).get("kl_champion", 0.0)
        sums["entropy"] += count * float(entropy(logits))
    return {name: value / total for name, value in sums.items()} if total else {}


def scored(
    policy: Policy, examples: Sequence[Example], tokens_per_batch: int
) -> Iterator[tuple[list[Example], Rows, Tensor]]:
    """The examples in batches with their logits; always the same batches."""
    for batch in make_batches(examples, tokens_per_batch, seeded("score")):
        rows = pad(batch, policy.model.device)
        yield batch, rows, trained_logits(policy, rows)
