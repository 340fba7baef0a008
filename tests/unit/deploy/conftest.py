"""Outcome sheets and a log with a base, a training and a candidate."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import Embedded, open_sqlite
from millstream.deploy.evaluation import TaskOutcome
from millstream.grade import score
from millstream.ledger import append_policy_events
from millstream.policy import (
    PolicyPromoted,
    PolicyRegistered,
    TrainingClaimed,
    TrainingFinished,
    TrainingRequested,
)
from millstream.ports import Log

Sheet = Callable[..., list[TaskOutcome]]


def make_sheet(
    successes: int, n: int = 300, worlds: int = 30, seed: int | None = None, **fields: Any
) -> list[TaskOutcome]:
    """``n`` outcomes, the first ``successes`` right (``seed``: any that many), one cost unit each."""
    right = [float(i < successes) for i in range(n)]
    if seed is not None:
        Random(seed).shuffle(right)
    defaults = {"calls": 4, "useful_calls": 3, "steps": 4, "depth": 3, "cost": 1.0}
    return [
        TaskOutcome(task_id=f"t{i:04d}", world=f"w{i % worlds}", gold=score(value), **{**defaults, **fields})
        for i, value in enumerate(right)
    ]


@pytest.fixture(name="sheet")
def _sheet() -> Sheet:
    return make_sheet


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def embedded(tmp_path: Path, clock: ManualClock) -> Iterator[Embedded]:
    found = open_sqlite(tmp_path / "log.db", clock=clock)
    yield found
    found.close()


@pytest.fixture
def log(embedded: Embedded) -> Log:
    return embedded.log


def make_base(log: Log, lineage: str = "policy") -> None:
    """Version 1, champion by bootstrap."""
    append_policy_events(
        log,
        [
            PolicyRegistered(id=f"{lineage}-r1", lineage=lineage, version=1, uri="base"),
            PolicyPromoted(id=f"{lineage}-p1", lineage=lineage, version=1, expected_champion=None, reason="bootstrap"),
        ],
    )


def make_candidate(log: Log, version: int, parent: int = 1, lineage: str = "policy") -> None:
    """A finished training of no rollouts that made a version."""
    training = f"{lineage}-training-{version}"
    append_policy_events(
        log,
        [
            TrainingRequested(
                id=training,
                lineage=lineage,
                parent=parent,
                rollout_ids=(),
                algorithm="sft",
                seed=0,
                namespace="default",
                reason="test",
            ),
            TrainingClaimed(id=f"{training}-c", lineage=lineage, training_id=training, token="t"),
            PolicyRegistered(
                id=f"{training}-r",
                lineage=lineage,
                version=version,
                uri=f"v{version}",
                parent=parent,
                training_id=training,
            ),
            TrainingFinished(
                id=f"{training}-f",
                lineage=lineage,
                training_id=training,
                token="t",
                version=version,
                manifest="manifest.json",
            ),
        ],
    )


@pytest.fixture
def base() -> Callable[..., None]:
    return make_base


@pytest.fixture
def candidate() -> Callable[..., None]:
    return make_candidate
