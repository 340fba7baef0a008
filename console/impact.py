"""What rests on some of the evidence: which rollouts were admitted with it, which of those are in a buffer,
which versions were trained on them or go back to one that was, and what serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from millstream.console.catalog import decisions, ledger
from millstream.policy import Lineage, PolicyLedger, Stage, Version
from millstream.ports import Log
from millstream.rollout import RolloutAdmitted, RolloutId
from millstream.streams.buffer_state import BufferLedger


class TouchedVersion(Struct, frozen=True, kw_only=True):
    """A version that learned from the evidence: ``touched`` of the ``rollouts`` of its own training, or by
    way of ``descends_from``, a touched version that it started from.
    """

    lineage: str
    version: int
    stage: Stage
    rollouts: int
    touched: int
    descends_from: int | None = None


class TouchedTraining(Struct, frozen=True, kw_only=True):
    """A training that was asked to learn from the evidence and has made no version yet."""

    lineage: str
    training_id: str
    state: str
    rollouts: int
    touched: int


class Impact(Struct, frozen=True, kw_only=True):
    """What rests on the evidence. ``runs``: trajectories that were ever admitted with it; ``in_buffer``:
    rollouts by namespace; ``champions``: serving versions that are touched, with the newest version of
    their lineage that served before and is clean (None: none did).
    """

    runs: int
    in_buffer: dict[str, int]
    versions: tuple[TouchedVersion, ...]
    trainings: tuple[TouchedTraining, ...]
    champions: dict[str, tuple[int, int | None]]


def impact(log: Log, rests: Callable[[RolloutAdmitted], bool]) -> Impact:
    """Follow the evidence on which ``rests`` says that an admission stands."""
    buffers: dict[str, BufferLedger] = {}
    touched: dict[RolloutId, str] = {}
    for decision in decisions(log):
        buffers.setdefault(decision.namespace, BufferLedger()).apply(decision)
        if isinstance(decision, RolloutAdmitted) and rests(decision):
            touched[decision.rollout_id] = decision.trajectory_id
    policies = ledger(log)
    versions, trainings = _trained(policies, touched)
    return Impact(
        runs=len(set(touched.values())),
        in_buffer={
            namespace: count
            for namespace, buffer in buffers.items()
            if (count := sum(rollout_id in touched for rollout_id in buffer.entries))
        },
        versions=tuple(versions),
        trainings=tuple(trainings),
        champions=_champions(policies, {(found.lineage, found.version) for found in versions}),
    )


def _trained(
    policies: PolicyLedger, touched: dict[RolloutId, str]
) -> tuple[list[TouchedVersion], list[TouchedTraining]]:
    counts = {name: _count(training.request.rollout_ids, touched) for name, training in policies.trainings.items()}
    versions = [found for lineage in policies.lineages.values() for found in _versions(policies, lineage, counts)]
    trainings = [
        TouchedTraining(
            lineage=training.request.lineage,
            training_id=name,
            state=training.state,
            rollouts=len(training.request.rollout_ids),
            touched=counts[name],
        )
        for name, training in policies.trainings.items()
        if counts[name] and training.state in ("requested", "claimed")
    ]
    return versions, trainings


def _count(ids: tuple[RolloutId, ...], touched: dict[RolloutId, str]) -> int:
    return sum(rollout_id in touched for rollout_id in ids)


def _versions(policies: PolicyLedger, lineage: Lineage, counts: Counter[str] | dict[str, int]) -> list[TouchedVersion]:
    found: dict[int, TouchedVersion] = {}
    for number in sorted(lineage.versions):
        version = lineage.versions[number]
        training = policies.trainings.get(version.training_id)
        own = counts.get(version.training_id, 0)
        came = next((source for source in _sources(policies, version) if source in found), None)
        if own or came is not None:
            found[number] = TouchedVersion(
                lineage=lineage.name,
                version=number,
                stage=version.stage,
                rollouts=len(training.request.rollout_ids) if training else 0,
                touched=own,
                descends_from=came,
            )
    return list(found.values())


def _sources(policies: PolicyLedger, version: Version) -> tuple[int, ...]:
    """The versions whose weights a version started from."""
    training = policies.trainings.get(version.training_id)
    start = training.request.start_from if training else None
    return tuple(source for source in (start, version.parent) if source is not None)


def _champions(policies: PolicyLedger, touched: set[tuple[str, int]]) -> dict[str, tuple[int, int | None]]:
    found: dict[str, tuple[int, int | None]] = {}
    for name, lineage in policies.lineages.items():
        if lineage.champion is None or (name, lineage.champion) not in touched:
            continue
        served = [number for _, number in lineage.history if (name, number) not in touched]
        clean = [number for number in served if not lineage.versions[number].quarantined]
        found[name] = (lineage.champion, clean[-1] if clean else None)
    return found


def impact_lines(found: Impact) -> list[str]:
    """What rests on the evidence, in words."""
    lines = [
        f"buffer {namespace!r}: {count} rollouts leave and are decided anew"
        for namespace, count in found.in_buffer.items()
    ]
    for version in found.versions:
        share = f"{version.touched} of its {version.rollouts} rollouts" if version.touched else ""
        came = f"goes back to version {version.descends_from}" if version.descends_from is not None else ""
        told = " and ".join(part for part in (share and f"trained on {share}", came) if part)
        lines.append(f"version {version.version} of {version.lineage} ({version.stage}): {told}")
    lines += [
        f"training {one.training_id} of {one.lineage} ({one.state}): {one.touched} of its {one.rollouts} rollouts"
        for one in found.trainings
    ]
    return lines or ["nothing in the buffer and no version rests on it"]
