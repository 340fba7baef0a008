"""What a training is asked to use: the groups that are available, fresh and within the cap."""

from __future__ import annotations

import itertools

import msgspec
from msgspec import Struct, field

from millstream.codec import digest
from millstream.errors import SettingsError
from millstream.ledger import LedgerReader, read_all
from millstream.ndjson import filled
from millstream.policy import PolicyLedger, TrainingRequested, Version
from millstream.ports import Log
from millstream.rollout import BufferDecision, RolloutId
from millstream.settings import TrainerSettings, TriggerSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.learnability import Teaches, idle_families
from millstream.topics import BUFFER_EVENTS

_LINE = msgspec.json.Decoder(BufferDecision)


class Choice(Struct, frozen=True, kw_only=True):
    """The rollouts of a training, sorted by id. ``usable``: every group that could be used, also those
    above the cap and the ``idle`` ones, whose families (``families``, with why) teach the champion nothing.
    ``start_from``: the candidate whose weights it goes on from, None for the champion's.
    """

    parent: int
    start_from: int | None
    usable: frozenset[str]
    rollout_ids: tuple[RolloutId, ...]
    idle: frozenset[str] = frozenset()
    families: dict[str, Teaches] = field(default_factory=dict)


def choose(
    buffer: BufferLedger,
    policies: PolicyLedger,
    settings: TriggerSettings,
    lineage: str,
    champion: Version,
    max_uses: int,
    success_at: float = 0.5,
) -> Choice:
    """Every group that a training of this champion may use. Staleness counts versions from the policy
    that is trained; a rollout of an unknown version has none. Families that teach nothing are left out (a
    reward of ``success_at`` or more is a success). Above ``max_rollouts`` the groups of the highest priority are taken.
    """
    start_from = last_candidate(policies, lineage) if settings.chain else None
    reference = champion.version if start_from is None else start_from
    available = {
        group: ids
        for group, ids in buffer.available(lineage, champion.version, max_uses).items()
        if _age(buffer, ids[0], reference) <= settings.max_staleness
    }
    own = ((e.family, e.reward) for e in buffer.entries.values() if e.policy_version in (None, champion.version))
    families = idle_families(own, success_at, settings.learnable_runs)
    idle = frozenset(group for group, ids in available.items() if buffer.entries[ids[0]].family in families)
    taught = {group: ids for group, ids in available.items() if group not in idle}
    groups = _within(buffer, taught, settings.max_rollouts)
    return Choice(
        parent=champion.version,
        start_from=start_from,
        usable=frozenset(available),
        rollout_ids=tuple(sorted(rollout_id for members in groups.values() for rollout_id in members)),
        idle=idle,
        families=families,
    )


def _age(buffer: BufferLedger, rollout_id: RolloutId, reference: int) -> int:
    version = buffer.entries[rollout_id].policy_version
    return 0 if version is None else reference - version


def _within(buffer: BufferLedger, groups: dict[str, list[RolloutId]], most: int) -> dict[str, list[RolloutId]]:
    if sum(map(len, groups.values())) <= most:
        return groups
    taken, count = {}, 0
    best = sorted(groups, key=lambda group: (-max(buffer.entries[i].priority for i in groups[group]), group))
    for group in best:
        if count + len(groups[group]) <= most:
            taken[group] = groups[group]
            count += len(groups[group])
    return taken


def last_candidate(policies: PolicyLedger, lineage: str) -> int | None:
    """The newest version of a lineage that a training made and that no gate has turned down."""
    versions = policies.lineage(lineage).versions
    made = [
        version.version
        for training in policies.trainings.values()
        if training.request.lineage == lineage
        and training.state == "finished"
        and (version := versions.get(training.version or 0)) is not None
        and version.stage == "candidate"
        and version.verdict is None
    ]
    return max(made, default=None)


def idle_words(families: dict[str, Teaches]) -> str:
    """The families that are left out, and why."""
    return "left out, they teach nothing: " + ", ".join(f"{family} ({why})" for family, why in families.items())


def request_of(
    choice: Choice,
    trainer: TrainerSettings,
    lineage: str,
    namespace: str,
    *,
    reason: str,
    log_ms: int = 0,
    attempt: int = 0,
) -> TrainingRequested:
    """The request for a choice. Its id is a hash of the lineage, parent, rollouts, algorithm and start, and of the
    ``attempt`` where it is not the first.
    """
    start = "" if choice.start_from is None else choice.start_from
    same = "training", lineage, choice.parent, "\n".join(choice.rollout_ids), trainer.algorithm, start
    return TrainingRequested(
        id=digest(*same, attempt) if attempt else digest(*same),
        lineage=lineage,
        log_ms=log_ms,
        parent=choice.parent,
        rollout_ids=choice.rollout_ids,
        algorithm=trainer.algorithm,
        seed=trainer.seed,
        namespace=namespace,
        reason=reason,
        start_from=choice.start_from,
        settings=msgspec.to_builtins(trainer),
    )


def request_by_hand(
    log: Log,
    settings: TriggerSettings,
    trainer: TrainerSettings,
    lineage: str,
    namespace: str,
    algorithm: str = "",
    *,
    max_uses: int = 3,
    success_at: float = 0.5,
) -> TrainingRequested:
    """A request for all that the buffer holds for the champion now; nothing is appended. One that failed is asked
    for anew, under another id. Raises `SettingsError` when there is no champion or nothing to train on.
    """
    policies = LedgerReader(log).refresh()
    champion = policies.champion(lineage)
    if champion is None:
        raise SettingsError(f"lineage {lineage!r} has no champion yet; set [policy] base and run `millstream up`")
    buffer = BufferLedger()
    for record in read_all(log, BUFFER_EVENTS.name):
        for line in filled(record.value):
            if (decision := _LINE.decode(line)).namespace == namespace:
                buffer.apply(decision, record.offset)
    choice = choose(buffer, policies, settings, lineage, champion, max_uses, success_at)
    if not choice.rollout_ids:
        idle = f"; {idle_words(choice.families)}" if choice.families else ""
        raise SettingsError(
            f"nothing in the buffer {namespace!r} may be used for champion {champion.version} of {lineage!r}: "
            f"{len(buffer.entries)} rollouts there, all leased, consumed or older than max_staleness{idle}"
        )
    if algorithm:
        trainer = msgspec.structs.replace(trainer, algorithm=algorithm)
    for attempt in itertools.count():
        request = request_of(choice, trainer, lineage, namespace, reason="asked for by hand", attempt=attempt)
        held = policies.trainings.get(request.id)
        if held is None or held.state != "failed":
            return request
    raise AssertionError
