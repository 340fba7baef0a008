"""Trajectories as training sequences: which tokens the policy read, which it sampled, and what is known of them.

Logged token ids win over text that is tokenised again. When the prompt of each call extends the prompt and output of
the call before, the trajectory is one sequence, else one a call, weighted 1 / calls. Only sampled tokens are trained,
the end token too only where it was sampled. `millstream.trainer.rendering` is the way for runs without logged ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field, structs

from millstream.events import HISTORY, ModelResponded
from millstream.rollout import Rollout, RolloutId
from millstream.trajectory import Trajectory

TokensSource: TypeAlias = Literal["logged", "rendered"]
_RESHAPING: dict[str, Any] = {
    "min_p": 0,
    "logit_bias": {},
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
}
"""Settings of a call that change the distribution in a way that ratios do not know of, with what changes nothing."""

Dropped: TypeAlias = Literal[
    "no_response",
    "no_logged_tokens",
    "no_trained_tokens",
    "too_long",
    "unknown_token",
    "no_ratios",
    "template_prefix",
    "template_error",
    "malformed_call",
    "truncated_response",
]
"""Why a rollout or one of its sequences is not trained on."""


class TokenSequence(Struct, frozen=True, kw_only=True):
    """Tokens in one row. `mask` marks those that the policy sampled; all tuples have the length of `ids`.

    `logprobs` (nats, 0 where the mask is false) are those of the distribution that was sampled from, at `temperature`;
    None when they cannot be used for ratios. `weight` multiplies the loss of every token.
    """

    rollout_id: RolloutId
    call: int = 0
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...] | None = None
    temperature: float = 1.0
    weight: float = 1.0

    @property
    def trained(self) -> int:
        """How many tokens are trained: the first of a row has no prediction."""
        return sum(self.mask[1:])


class Tokenised(Struct, frozen=True, kw_only=True):
    """A rollout with its sequences; none when it was dropped, and why."""

    rollout: Rollout
    sequences: tuple[TokenSequence, ...] = ()
    dropped: tuple[Dropped, ...] = ()


class TokenLimits(Struct, frozen=True, kw_only=True):
    """What a sequence must keep to. `ratios`: the algorithm needs behaviour log-probs. `vocabulary`: ids are below it
    (0: whatever they are).
    """

    max_length: int = 4096
    vocabulary: int = 0
    ratios: bool = False
    agent: str = ""


class TokenCounts(Struct, kw_only=True):
    """What tokenising made of a set of rollouts."""

    rollouts: int = 0
    sequences: int = 0
    trained_tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def policy_agent(trajectory: Trajectory, wanted: str = "") -> str:
    """Whose tokens are trained: the agent asked for, else that of the start event, else of the first response."""
    if wanted:
        return wanted
    if trajectory.started is not None and trajectory.started.agent:
        return trajectory.started.agent
    return trajectory.responses[0].agent if trajectory.responses else ""


def policy_responses(trajectory: Trajectory, wanted: str = "") -> tuple[ModelResponded, ...]:
    """The responses that the policy's own agent gave in this run, in order: no other agent's, no other policy's."""
    agent = policy_agent(trajectory, wanted)
    return tuple(one for one in trajectory.responses if one.agent in (agent, "") and is_own(one, trajectory, wanted))


def is_own(response: ModelResponded, trajectory: Trajectory, wanted: str = "") -> bool:
    """Whether a response is a step to train: no history, and not told to be of another policy than the run's, unless
    that agent is asked for by name.
    """
    started = trajectory.started
    if HISTORY in response.flags:
        return False
    if started is None or response.policy_version is None or wanted:
        return True
    return (response.lineage or started.lineage, response.policy_version) == (started.lineage, started.policy_version)


def logged_sequences(rollout: Rollout, agent: str = "") -> Sequence[TokenSequence] | Dropped:
    """The sequences of a rollout whose calls all carry token ids, or why there are none."""
    responses = policy_responses(rollout.trajectory, agent)
    if not responses:
        return "no_response"
    if any(response.token_ids is None or response.prompt_token_ids is None for response in responses):
        return "no_logged_tokens"
    known = _interface_known(rollout)
    calls = [_call(rollout.id, place, response, known) for place, response in enumerate(responses)]
    if all(extends(later, earlier) for earlier, later in pairwise(calls)):
        return (joined(calls),)
    return tuple(weighted(call, 1.0 / len(calls)) for call in calls)


def _interface_known(rollout: Rollout) -> bool:
    parts = rollout.facts.interface
    return bool(parts.tools and parts.system and parts.template and parts.tokenizer)


def _call(rollout_id: RolloutId, place: int, response: ModelResponded, interface_known: bool) -> TokenSequence:
    prompt, output = response.prompt_token_ids or (), response.token_ids or ()
    logprobs = behaviour_logprobs(response) if interface_known else None
    return TokenSequence(
        rollout_id=rollout_id,
        call=place,
        ids=prompt + output,
        mask=(False,) * len(prompt) + (True,) * len(output),
        logprobs=None if logprobs is None else (0.0,) * len(prompt) + logprobs,
        temperature=response.temperature or 1.0,
    )


def behaviour_logprobs(response: ModelResponded) -> tuple[float, ...] | None:
    """Log-probs that a ratio may use, else None.

    The ladder: processed ones at a known temperature above 0 and with nothing cut from the distribution; raw ones only
    where they are the same thing, at temperature 1.
    """
    found = response.logprobs
    if found is None or len(found) != len(response.token_ids or ()) or not all(map(math.isfinite, found)):
        return None
    if not response.temperature or response.top_k or response.top_p not in (None, 1.0):
        return None
    if any(response.sampling.get(name) not in (None, 0, harmless) for name, harmless in _RESHAPING.items()):
        return None
    usable = response.logprob_kind == "processed" or (response.logprob_kind == "raw" and response.temperature == 1.0)
    return found if usable else None


def extends(later: TokenSequence, earlier: TokenSequence) -> bool:
    """Whether the prompt of a call begins with all tokens of the call before (at the same temperature)."""
    prompt = later.ids[: len(later.ids) - sum(later.mask)]
    return prompt[: len(earlier.ids)] == earlier.ids and later.temperature == earlier.temperature


def joined(calls: Sequence[TokenSequence]) -> TokenSequence:
    """One sequence of calls that extend each other."""
    mask: tuple[bool, ...] = ()
    logprobs: tuple[float, ...] | None = ()
    for call in calls:
        if logprobs is not None:
            logprobs = None if call.logprobs is None else logprobs + call.logprobs[len(mask) :]
        mask += call.mask[len(mask) :]
    last = calls[-1]
    return TokenSequence(
        rollout_id=last.rollout_id, ids=last.ids, mask=mask, logprobs=logprobs, temperature=last.temperature
    )


def weighted(call: TokenSequence, weight: float) -> TokenSequence:
    """The same sequence with another weight."""
    return structs.replace(call, weight=weight)


def fitted(rollout: Rollout, found: Sequence[TokenSequence] | Dropped, limits: TokenLimits) -> Tokenised:
    """Keep the sequences that can be trained on; each one that cannot is named in `dropped`."""
    if isinstance(found, str):
        return Tokenised(rollout=rollout, dropped=(found,))
    reasons = [_unfit(sequence, limits) for sequence in found]
    return Tokenised(
        rollout=rollout,
        sequences=tuple(sequence for sequence, reason in zip(found, reasons, strict=True) if reason is None),
        dropped=tuple(reason for reason in reasons if reason is not None),
    )


def _unfit(sequence: TokenSequence, limits: TokenLimits) -> Dropped | None:
    if len(sequence.ids) > limits.max_length:
        return "too_long"
    if limits.vocabulary and max(sequence.ids, default=0) >= limits.vocabulary:
        return "unknown_token"
    if not sequence.trained:
        return "no_trained_tokens"
    if limits.ratios and sequence.logprobs is None:
        return "no_ratios"
    return None


def tokenise_logged(rollouts: Sequence[Rollout], limits: TokenLimits) -> list[Tokenised]:
    """Every rollout with its logged sequences, in order of rollout id (never of arrival)."""
    ordered = sorted(rollouts, key=lambda rollout: rollout.id)
    return [fitted(rollout, logged_sequences(rollout, limits.agent), limits) for rollout in ordered]


def counted(items: Sequence[Tokenised]) -> TokenCounts:
    """The denominators of a training: what was kept, and what was dropped for which reason."""
    counts = TokenCounts(rollouts=len(items))
    for item in items:
        counts.sequences += len(item.sequences)
        counts.trained_tokens += sum(sequence.trained for sequence in item.sequences)
        for reason in item.dropped:
            counts.dropped[reason] = counts.dropped.get(reason, 0) + 1
    return counts
