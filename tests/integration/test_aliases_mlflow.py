"""Aliases in a real MLflow registry follow the ledger: M01, M03 and M08 end to end."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millstream.adapters.mlflow import MlflowTracker
from millstream.adapters.sqlite import open_sqlite
from millstream.deploy.aliases import AliasKeeper, StoreFence
from millstream.deploy.promotion import promote
from millstream.ledger import append_policy_events
from millstream.policy import GateDecided, PolicyPromoted, PolicyRegistered
from millstream.ports import Log

pytestmark = pytest.mark.slow


def made(folder: Path, number: int) -> Path:
    """A model folder."""
    path = folder / f"model-{number}"
    path.mkdir()
    (path / "config.json").write_text(f'{{"number": {number}}}')
    return path


def decide(log: Log, version: int, verdict: str, champion: int) -> None:
    """A gate's decision and, on promote, the promotion."""
    append_policy_events(
        log,
        [
            GateDecided(
                id=f"g{version}", lineage="p", version=version, expected_champion=champion, verdict=verdict, reasons=()
            )
        ],
    )
    if verdict == "promote":
        promote(log, "p", version, "gate")


def test_aliases_of_a_real_registry(tmp_path: Path) -> None:
    """Two register at once (M01); a search shows no aliases (M03); a slow writer wrote last (M08): at
    the end each alias is where the ledger says.
    """
    embedded = open_sqlite(tmp_path / "log.db")
    tracker = MlflowTracker(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    base = tracker.register("p", tracker.start("p", "base", {}, {}), made(tmp_path, 0), {})
    runs = [tracker.start("p", f"training-{i}", {}, {}) for i in (1, 2)]
    folders = [made(tmp_path, i) for i in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        two = list(pool.map(lambda n: tracker.register("p", runs[n], folders[n], {}), range(2)))
    assert len({base, *two}) == 3

    log = embedded.log
    append_policy_events(log, [PolicyRegistered(id=f"r{v}", lineage="p", version=v, uri="") for v in (base, *two)])
    append_policy_events(
        log, [PolicyPromoted(id="p1", lineage="p", version=base, expected_champion=None, reason="bootstrap")]
    )
    keeper = AliasKeeper(log, tracker, StoreFence(log, embedded.store))
    keeper.step()
    assert tracker.pointed("p", "champion") == base
    assert tracker.pointed("p", "challenger") == max(two)

    lost, won = min(two), max(two)
    decide(log, won, "promote", base)
    decide(log, lost, "refuse", base)
    keeper.step()
    found = {alias: tracker.pointed("p", alias) for alias in ("champion", "challenger", "previous")}
    assert found == {"champion": won, "challenger": None, "previous": base}

    tracker.point("p", "champion", lost)
    assert keeper.repair() == 1
    assert tracker.pointed("p", "champion") == won
    embedded.close()
