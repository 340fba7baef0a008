"""Aliases follow the ledger, whoever moves them."""

import pytest

from millstream.deploy.aliases import AliasKeeper, StoreFence
from millstream.deploy.promotion import promote, rollback
from millstream.errors import Conflict
from millstream.ledger import append_policy_events
from millstream.policy import GateDecided


class Registry:
    """A registry's aliases and tags; like MLflow, it moves an alias without asking where it was."""

    def __init__(self) -> None:
        self.aliases: dict[tuple[str, str], int] = {}
        self.tags: dict[tuple[str, int], dict[str, str]] = {}

    def point(self, lineage: str, alias: str, version: int | None) -> None:
        if version is None:
            self.aliases.pop((lineage, alias), None)
        else:
            self.aliases[lineage, alias] = version

    def pointed(self, lineage: str, alias: str) -> int | None:
        return self.aliases.get((lineage, alias))

    def tag(self, lineage: str, version: int, tags: dict[str, str]) -> None:
        self.tags.setdefault((lineage, version), {}).update(tags)

    def of(self, lineage: str = "policy") -> dict[str, int]:
        return {alias: v for (name, alias), v in sorted(self.aliases.items()) if name == lineage}


def test_aliases_follow_the_ledger(log, base, candidate) -> None:
    """Base, candidate, promotion, rollback: each step puts the aliases where the ledger says."""
    registry = Registry()
    keeper = AliasKeeper(log, registry)
    base(log)
    keeper.step()
    assert registry.of() == {"champion": 1}
    candidate(log, 2)
    keeper.step()
    assert registry.of() == {"challenger": 2, "champion": 1}
    promote(log, "policy", 2, "")
    keeper.step()
    assert registry.of() == {"champion": 2, "previous": 1}
    rollback(log, "policy", "")
    keeper.step()
    assert registry.of() == {"champion": 1, "previous": 2}


def test_nothing_moved_nothing_written(log, base) -> None:
    """A second step touches nothing."""
    base(log)
    keeper = AliasKeeper(log, Registry())
    assert keeper.step() == 1
    assert keeper.step() == 0


def test_m01_each_alias_points_to_the_version_its_own_gate_passed(log, base, candidate) -> None:
    """M01: two versions are registered at once and gated; champion is the one whose gate passed, the
    other keeps its verdict and no alias.
    """
    base(log), candidate(log, 2), candidate(log, 3)
    for version, verdict in ((3, "promote"), (2, "refuse")):
        append_policy_events(
            log,
            [
                GateDecided(
                    id=f"g{version}",
                    lineage="policy",
                    version=version,
                    expected_champion=1,
                    verdict=verdict,
                    reasons=(),
                )
            ],
        )
    promote(log, "policy", 3, "gate")
    registry = Registry()
    AliasKeeper(log, registry).step()
    assert registry.of() == {"champion": 3, "previous": 1}
    assert registry.tags == {("policy", 2): {"verdict": "refuse"}, ("policy", 3): {"verdict": "promote"}}


def test_m03_the_champion_comes_from_the_ledger_not_from_a_search(log, base, candidate) -> None:
    """M03: a registry that shows no aliases at all does not make the next candidate a first champion."""
    base(log), candidate(log, 2)
    registry = Registry()
    AliasKeeper(log, registry).step()
    registry.aliases.clear()
    keeper = AliasKeeper(log, registry)
    assert keeper.repair() == 2
    assert registry.of() == {"challenger": 2, "champion": 1}


def test_m08_an_alias_moved_by_a_slow_writer_is_put_right(log, base, candidate) -> None:
    """M08: P1 writes version 5 after version 6 became champion; the next repair points to 6 again."""
    base(log), candidate(log, 5), candidate(log, 6)
    registry = Registry()
    keeper = AliasKeeper(log, registry)
    promote(log, "policy", 6, "P2")
    keeper.step()
    registry.point("policy", "champion", 5)
    assert keeper.step() == 0
    assert keeper.repair() == 1
    assert registry.pointed("policy", "champion") == 6


def test_a_ledger_that_moves_under_the_writer_is_followed(log, base, candidate) -> None:
    """A promotion between the look and the write is seen before the step ends."""
    base(log), candidate(log, 2)

    class Moving(Registry):
        def point(self, lineage: str, alias: str, version: int | None) -> None:
            super().point(lineage, alias, version)
            if (alias, version) == ("champion", 1):
                promote(log, "policy", 2, "meanwhile")

    registry = Moving()
    AliasKeeper(log, registry).step()
    assert registry.pointed("policy", "champion") == 2


def test_the_older_writer_is_fenced_out(embedded, base, candidate) -> None:
    """A second keeper takes the fence; the first one's next write is a Conflict and changes nothing."""
    log, registry = embedded.log, Registry()
    old = AliasKeeper(log, registry, StoreFence(log, embedded.store))
    base(log)
    assert old.step() == 1
    new = AliasKeeper(log, registry, StoreFence(log, embedded.store))
    assert new.step() == 0
    candidate(log, 2)
    promote(log, "policy", 2, "")
    with pytest.raises(Conflict):
        old.step()
    assert registry.pointed("policy", "champion") == 1
    assert new.step() == 2
    assert registry.of() == {"champion": 2, "previous": 1}
