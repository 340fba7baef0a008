"""What every algorithm is: a choice of examples and a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct, field

from millstream.errors import SettingsError, nearest
from millstream.trainer.batches import Example
from millstream.trainer.losses import Loss, Tokens
from millstream.trainer.tokens import Tokenised


class Selection(Struct, frozen=True, kw_only=True):
    """What to train on, and the counts of what was left out."""

    examples: tuple[Example, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


class Algorithm(ABC):
    """One way to learn from rollouts. `ratios`: it needs the log-probs of the policy that sampled."""

    name: ClassVar[str]
    ratios: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, options: Mapping[str, Any], *, keep_reward: float, keep_per_group: int, seed: int) -> None:
        """Read the options (`[trainer] options`). Raises `SettingsError`."""

    @property
    @abstractmethod
    def temperature(self) -> float | None:
        """The temperature of the log-probs that `loss` gets; None: the one each sequence was sampled at."""

    @property
    def references(self) -> bool:
        """Whether `loss` needs the champion's log-probs at every token (a sample is enough to watch the KL)."""
        return False

    @abstractmethod
    def select(self, items: Sequence[Tokenised]) -> Selection:
        """Choose what to train on; the same for every order of arrival."""

    @abstractmethod
    def loss(self, tokens: Tokens) -> Loss:
        """The loss of a batch."""


def groups(items: Sequence[Tokenised]) -> list[list[Tokenised]]:
    """Rollouts of one task by one policy version, in a fixed order."""
    found: dict[tuple[str, int], list[Tokenised]] = {}
    for item in sorted(items, key=lambda item: item.rollout.id):
        facts = item.rollout.facts
        key = (facts.group or facts.task_id or item.rollout.id, facts.policy_version or 0)
        found.setdefault(key, []).append(item)
    return [found[key] for key in sorted(found)]


OptionsT = TypeVar("OptionsT", bound=Struct)


def options_of(kind: type[OptionsT], options: Mapping[str, Any]) -> OptionsT:
    """The options as their struct. Raises `SettingsError` for an unknown one or a wrong type."""
    known = [member.name for member in msgspec.structs.fields(kind)]
    for name in options:
        if name not in known:
            raise SettingsError(f"trainer.options: unknown option {name!r}{nearest(name, known)}")
    try:
        return msgspec.convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"trainer.options: {error}") from None
