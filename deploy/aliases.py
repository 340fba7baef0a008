"""Aliases: ``champion``, ``challenger`` and ``previous`` in the model registry follow the ledger.

Moving an alias has no compare-and-set, so one fenced writer does it, and the ledger is the truth:
whatever an alias says (somebody moved it by hand, a slow writer wrote last), the next step puts it
right. The champion is looked up by alias, never searched for: search results carry no aliases.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import Conflict
from millstream.ledger import LedgerReader
from millstream.partition import slot
from millstream.policy import Lineage, PolicyLedger
from millstream.ports import Consumed, Log, StateCommit, Store, Tracker
from millstream.topics import POLICY_EVENTS

ALIASES = ("champion", "challenger", "previous")
Fence = Callable[[int], None]
"""Called with the offset the ledger is as new as, before anything is written. Raises `Conflict`
when another writer took over.
"""


def wanted(lineage: Lineage) -> dict[str, int | None]:
    """Where each alias belongs. The challenger is the newest candidate that no gate has judged."""
    waiting = [v.version for v in lineage.versions.values() if v.stage == "candidate" and v.verdict is None]
    return {
        "champion": lineage.champion,
        "challenger": max(waiting, default=None),
        "previous": lineage.previous,
    }


class AliasKeeper:
    """The one writer of aliases and of the ``verdict`` tag. `step` is quick when nothing moved."""

    def __init__(self, log: Log, tracker: Tracker, fence: Fence | None = None, rounds: int = 5) -> None:
        self.reader = LedgerReader(log)
        self.tracker = tracker
        self.fence = fence
        self.rounds = rounds
        self.moves = 0
        self._followed = -1
        self._verdicts: dict[tuple[str, int], str] = {}

    def step(self) -> int:
        """Follow the ledger if it moved since; how many aliases were put right."""
        self.reader.refresh()
        return self.repair() if self.reader.offset != self._followed else 0

    def repair(self) -> int:
        """Compare every alias with the ledger and put it right, again while the ledger moves under
        it. Raises `Conflict` when another writer took over, `Unavailable` when the registry is away.
        """
        moved = 0
        for _ in range(self.rounds):
            ledger, offset = self.reader.refresh(), self.reader.offset
            moved += sum(self._follow(lineage, offset) for lineage in ledger.lineages.values())
            self._tag(ledger)
            self._followed = offset
            if self.reader.refresh() is ledger and self.reader.offset == offset:
                break
        self.moves += moved
        return moved

    def _follow(self, lineage: Lineage, offset: int) -> int:
        moved = 0
        for alias, version in wanted(lineage).items():
            if self.tracker.pointed(lineage.name, alias) != version:
                if self.fence is not None:
                    self.fence(offset)
                self.tracker.point(lineage.name, alias, version)
                moved += 1
        return moved

    def _tag(self, ledger: PolicyLedger) -> None:
        for lineage in ledger.lineages.values():
            for version in lineage.versions.values():
                key = (lineage.name, version.version)
                if version.verdict is not None and self._verdicts.get(key) != version.verdict:
                    self.tracker.tag(*key, {"verdict": version.verdict})
                    self._verdicts[key] = version.verdict


class StoreFence:
    """A fence minted by the store: the newest process that takes it shuts every earlier one out."""

    def __init__(self, log: Log, store: Store, stage: str = "aliases") -> None:
        name = POLICY_EVENTS.name
        self.store = store
        self.assignment = store.assign(stage, 0, {name: log.topic_id(name)})
        self._at = self.assignment.positions.get(slot(name, 0), 0)

    def __call__(self, offset: int) -> None:
        """Commit the position the aliases follow to. Raises `Conflict` when the fence is an old one."""
        name = POLICY_EVENTS.name
        if offset < self._at:
            raise Conflict(f"the aliases follow offset {self._at} already, not {offset}: read the ledger again")
        consumed = (Consumed(name, 0, self._at, offset),) if offset > self._at else ()
        self.store.commit(
            StateCommit(assignment=self.assignment, expected={slot(name, 0): self._at}, consumed=consumed, outputs=())
        )
        self._at = offset
