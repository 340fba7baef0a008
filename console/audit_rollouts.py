"""The books of rollouts: what became of each graded trajectory in each namespace of the buffer, and
whether any decision rests on something that is not so.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from millstream.console.audit_grades import Given, Graded
from millstream.console.audit_reading import BUFFER
from millstream.console.audit_report import Books
from millstream.errors import SettingsError
from millstream.grade import Scored
from millstream.graders.reward import Formula
from millstream.ndjson import UNREADABLE, filled
from millstream.ports import Record
from millstream.rollout import (
    BufferDecision,
    GroupClosed,
    RolloutAdmitted,
    RolloutRefused,
    RolloutsAcknowledged,
    RolloutsEvicted,
    RolloutsLeased,
)
from millstream.settings import BufferSettings
from millstream.topics import BUFFER_EVENTS, GRADES

_DECISION: msgspec.json.Decoder[BufferDecision] = msgspec.json.Decoder(BufferDecision)
_WIDE = 1e300
"""The range of a reward is the settings' business; the audit checks the arithmetic."""
Fate: TypeAlias = tuple[str, int]
"""(waiting, leased, consumed, evicted or the reason of a refusal; trajectory revision)."""


class Namespace(Struct):
    """One buffer as its decisions tell it."""

    fates: dict[str, Fate] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """Rollouts in the buffer → their trajectories."""
    leases: dict[str, frozenset[str]] = field(default_factory=dict)


class RolloutBooks:
    """Goes through ``buffer-events`` once. ``settings``: how long a group may stay open."""

    def __init__(self, books: Books, made: Graded, settings: BufferSettings) -> None:
        self.books = books
        self.made = made
        self.patience_ms = round(settings.group_timeout_s * 1000)
        self.spaces: dict[str, Namespace] = {settings.namespace: Namespace()}
        self._ids: set[str] = set()
        self._formulas: dict[str, Formula] = {}

    def fill(self) -> None:
        """Count every graded trajectory by its fate and name what is unexplained."""
        for record in self.books.reading.records(BUFFER_EVENTS.name):
            lines = list(filled(record.value))
            try:
                decisions = [_DECISION.decode(line) for line in lines]
            except UNREADABLE as error:
                self.books.differ("unreadable", _at(record), f"not a decision: {error}")
                continue
            self._record(record, decisions)
        last: dict[str, int] = {}
        for name, number in self.made.finished:
            last[name] = max(number, last.get(name, 0))
        for label, space in self.spaces.items():
            self._settle(label, space, last)

    def _record(self, record: Record, decisions: list[BufferDecision]) -> None:
        admitted = Counter(d.rollout_id for d in decisions if isinstance(d, RolloutAdmitted))
        self._epochs(decisions, _at(record))
        for decision in decisions:
            if decision.id in self._ids:
                self.books.differ("doubled decision", decision.id, f"is there again at {_at(record)}")
                continue
            self._ids.add(decision.id)
            if isinstance(decision, GroupClosed) and set(decision.rollout_ids) - admitted.keys():
                self.books.differ(
                    "lost admission", decision.group, f"{_at(record)} closes it with rollouts not admitted"
                )
            self._decide(self.spaces.setdefault(decision.namespace, Namespace()), decision, _at(record))

    def _epochs(self, decisions: list[BufferDecision], where: str) -> None:
        """The members of a group are graded by the same epochs: else its advantages compare graders."""
        epochs: dict[str, tuple[str, ...]] = {}
        for decision in decisions:
            if isinstance(decision, RolloutAdmitted):
                first = epochs.setdefault(decision.group, decision.grader_epochs)
                if first != decision.grader_epochs:
                    told = " ".join(sorted({*first} ^ {*decision.grader_epochs}))
                    self.books.differ(
                        "mixed epochs", decision.rollout_id, f"{where}: group {decision.group} has {told}"
                    )

    def _decide(self, space: Namespace, decision: BufferDecision, where: str) -> None:
        if isinstance(decision, RolloutAdmitted):
            self._admit(space, decision, where)
        elif isinstance(decision, RolloutRefused):
            self._fate(space, decision.trajectory_id, f"refused: {decision.reason}", decision.trajectory_revision)
        elif isinstance(decision, GroupClosed):
            self.books.add("rollouts", "groups closed")
        elif isinstance(decision, RolloutsEvicted):
            for rollout_id in decision.rollout_ids:
                trajectory_id = space.held.pop(rollout_id, None)
                if trajectory_id is None:
                    self.books.differ("wrong eviction", rollout_id, f"{where} evicts what is not in the buffer")
                else:
                    self._fate(space, trajectory_id, "evicted")
        elif isinstance(decision, RolloutsLeased):
            self._lease(space, decision, where)
        else:
            self._end(
                space,
                decision.training_id,
                decision.rollout_ids,
                where,
                used=isinstance(decision, RolloutsAcknowledged),
            )

    def _fate(self, space: Namespace, trajectory_id: str, name: str, revision: int = 0) -> None:
        known = space.fates.get(trajectory_id, ("", 0))
        if not revision or revision >= known[1]:
            space.fates[trajectory_id] = (name, max(revision, known[1]))

    def _admit(self, space: Namespace, decision: RolloutAdmitted, where: str) -> None:
        if decision.rollout_id in space.held:
            self.books.differ("doubled admission", decision.rollout_id, f"{where} admits what is in the buffer already")
        finished = self.made.finished.get((decision.trajectory_id, decision.trajectory_revision))
        if finished is None or finished.content_hash != decision.content_hash:
            self.books.differ(
                "invented rollout", decision.rollout_id, f"{where} admits a revision that was not graded so"
            )
        space.held[decision.rollout_id] = decision.trajectory_id
        self._fate(space, decision.trajectory_id, "waiting", decision.trajectory_revision)
        self._reward(decision, where)

    def _reward(self, decision: RolloutAdmitted, where: str) -> None:
        """No failed grade became a reward, and the reward is what its formula gives."""
        named: dict[str, Given] = {}
        for grade_id in decision.grade_ids:
            given = self.made.given.get(grade_id)
            if given is None:
                self.books.differ("lost grade", grade_id, f"rollout {decision.rollout_id} ({where}) rests on it")
            elif not isinstance(given.grade, Scored):
                status = type(given.grade).__name__
                self.books.differ(
                    "false reward", decision.rollout_id, f"{where}: grade {grade_id} is {status}, no score"
                )
            elif given.trajectory_id != decision.trajectory_id:
                self.books.differ("false reward", decision.rollout_id, f"{where}: grade {grade_id} is another run's")
            else:
                named[given.grader] = given
        if len(named) == len(decision.grade_ids) and decision.formula:
            expected = self._formula(decision.formula).reward({name: one.grade for name, one in named.items()}).value
            if expected is None or not math.isclose(expected, decision.reward, rel_tol=1e-9, abs_tol=1e-12):
                self.books.differ(
                    "false reward", decision.rollout_id, f"{where}: {decision.reward}, its grades give {expected}"
                )

    def _formula(self, text: str) -> Formula:
        if text not in self._formulas:
            try:
                self._formulas[text] = Formula(text, -_WIDE, _WIDE)
            except SettingsError as error:
                self.books.differ("unreadable", text, f"not a formula: {error}")
                self._formulas[text] = Formula("unreadable", -_WIDE, _WIDE)
        return self._formulas[text]

    def _lease(self, space: Namespace, decision: RolloutsLeased, where: str) -> None:
        for training, ids in space.leases.items():
            for rollout_id in sorted(ids & set(decision.rollout_ids)):
                self.books.differ("doubled lease", rollout_id, f"{where} leases what training {training} holds")
        for rollout_id in decision.rollout_ids:
            if rollout_id not in space.held:
                self.books.differ("wrong lease", rollout_id, f"{where} leases what is not in the buffer")
            else:
                self._fate(space, space.held[rollout_id], "leased")
        space.leases[decision.training_id] = frozenset(decision.rollout_ids)

    def _end(self, space: Namespace, training: str, ids: tuple[str, ...], where: str, *, used: bool) -> None:
        lease = space.leases.pop(training, frozenset())
        for rollout_id in ids:
            if used and rollout_id not in lease:
                self.books.differ("wrong use", rollout_id, f"{where} consumes what training {training} had not leased")
            if rollout_id in space.held:
                self._fate(space, space.held[rollout_id], "consumed" if used else "waiting")

    def _settle(self, label: str, space: Namespace, last: dict[str, int]) -> None:
        now_ms = max((f.log_ms for f in self.made.finished.values() if self._read(f.partition, f.offset)), default=0)
        for name, number in last.items():
            finished = self.made.finished[name, number]
            fate, revision = space.fates.get(name, ("", 0))
            if fate and revision >= number:
                self.books.add("rollouts", f"{label}: {fate}")
                continue
            self.books.add("rollouts", f"{label}: group pending")
            overdue = finished.log_ms + self.patience_ms < now_ms and not space.leases
            if overdue and self._read(finished.partition, finished.offset):
                self.books.differ(
                    "lost rollout",
                    name,
                    f"graded at {GRADES.name}:{finished.partition} "
                    f"{finished.offset}, its group's time has passed, but {label!r} never decided it",
                )

    def _read(self, partition: int, offset: int) -> bool:
        return offset < self.books.reading.position(BUFFER, GRADES.name, partition)


def _at(record: Record) -> str:
    return f"{record.topic}:{record.partition} at {record.offset}"
