"""Integrity: what must be in order before a candidate's figures are looked at.

A candidate without a manifest can be neither explained nor made again; one that trained on held-out
or report worlds has seen the exam; one of another interface was shown other tools than it will serve. And a
gold grader that pays for attacks measures nothing that a candidate could be promoted for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from millstream.events import Interface, Split
from millstream.grader_events import GraderBook
from millstream.ledger import read_all
from millstream.ndjson import filled
from millstream.policy import Training
from millstream.ports import Log
from millstream.rollout import BufferDecision, RolloutAdmitted, RolloutFacts, RolloutId
from millstream.topics import BUFFER_EVENTS

_DECISION = msgspec.json.Decoder(BufferDecision)


class ManifestRollout(Struct, frozen=True, kw_only=True):
    """What the gate reads of one rollout of a manifest; other fields are the trainer's."""

    id: RolloutId = RolloutId("")
    split: Split | None = None


class ManifestFacts(Struct, frozen=True, kw_only=True):
    """What the gate reads of a manifest: which rollouts, of which split, under which interface."""

    rollouts: tuple[ManifestRollout, ...] = ()
    interface: Interface = field(default_factory=Interface)


def admitted_facts(log: Log, rollout_ids: Iterable[RolloutId]) -> dict[RolloutId, RolloutFacts]:
    """What the buffer knew of these rollouts when it admitted them, from ``buffer-events``."""
    wanted, found = set(rollout_ids), {}
    for record in read_all(log, BUFFER_EVENTS.name):
        for line in filled(record.value):
            if b"RolloutAdmitted" in line:
                decision: Any = _DECISION.decode(line)
                if isinstance(decision, RolloutAdmitted) and decision.rollout_id in wanted:
                    found[decision.rollout_id] = decision.facts
    return found


def unfit_gold(graders: GraderBook, gold: str) -> tuple[str, ...]:
    """Why a grader may not decide as gold: it was examined and pays for what is not right."""
    found = graders.unfit(gold)
    if found is None:
        return ()
    mend = f"mend it and examine it again (`millstream graders attack {gold}`), or name another [gate] gold"
    return (f"the gold grader {found.epoch} is {found.verdict}: {found.reason}; {mend}",)


def problems(
    training: Training,
    manifest: ManifestFacts | None,
    admitted: Mapping[RolloutId, RolloutFacts],
    serving: Interface,
) -> tuple[str, ...]:
    """What is out of order with a candidate's training, in words; empty when nothing is.

    ``serving``: the interface the champion was trained and serves under; unknown parts match any.
    """
    if manifest is None:
        return (f"training {training.request.id} has no manifest that can be read (at {training.manifest!r})",)
    asked = training.request.rollout_ids
    return (
        *_same_rollouts(asked, [rollout.id for rollout in manifest.rollouts]),
        *_unknown(asked, admitted),
        *_seen_exam([rollout.split for rollout in manifest.rollouts], "manifest"),
        *_seen_exam([admitted[r].split for r in asked if r in admitted], "buffer decisions"),
        *_interface(manifest.interface, [admitted[r].interface for r in asked if r in admitted], serving),
    )


def _same_rollouts(asked: tuple[RolloutId, ...], listed: list[RolloutId]) -> list[str]:
    if not listed or set(listed) == set(asked):
        return []
    other = len(set(listed) ^ set(asked))
    return [f"the manifest and the request differ in {other} rollouts ({len(listed)} and {len(asked)} listed)"]


def _unknown(asked: tuple[RolloutId, ...], admitted: Mapping[RolloutId, RolloutFacts]) -> list[str]:
    missing = [r for r in asked if r not in admitted]
    return [f"{len(missing)} trained rollouts were never admitted to the buffer, first {missing[0]}"] if missing else []


def _seen_exam(splits: Iterable[Split | None], source: str) -> list[str]:
    counts = Counter(split for split in splits if split in ("held_out", "report"))
    return [f"{n} trained rollouts come from {split} worlds, says the {source}" for split, n in sorted(counts.items())]


def _interface(own: Interface, rollouts: Iterable[Interface], serving: Interface) -> list[str]:
    parts = {part for shown in (own, *rollouts) if (part := shown.mismatch(serving))}
    return [f"interface mismatch: {part} differs from what the champion serves under" for part in sorted(parts)]
