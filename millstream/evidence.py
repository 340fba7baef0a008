"""The table a gate decided from, as it lies in `GateDecided.evidence`: the gate writes it, `why`, the
report and people read it. A value that does not exist (nothing measured, a cost over no success) is
None, with a note: JSON has no infinity, and a gate never passes on one.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

Unit: TypeAlias = Literal["rate", "count", "ratio"]
"""``rate``: shown in points of a hundred; ``count``: a mean; ``ratio``: compared relatively."""

RowState: TypeAlias = Literal[
    "better", "worse", "unclear", "holds", "violated", "unproven", "not measured", "shown", "not finite"
]


class GateRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the table. ``difference`` is candidate − champion (``ratio``: candidate/champion − 1),
    ``low``/``high`` its two-sided 95 % interval clustered by world, ``bound`` the one-sided 95 % bound
    that is held against ``margin``. ``*_range``: the side's own 95 % interval.
    """

    name: str
    title: str
    unit: Unit = "rate"
    champion: float | None = None
    candidate: float | None = None
    champion_range: tuple[float, float] | None = None
    candidate_range: tuple[float, float] | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    margin: float | None = None
    state: RowState = "shown"
    decides: bool = False
    note: str = ""


class PairedTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The paired test on gold: ``wins`` pairs the candidate has better, one-sided p both ways."""

    method: Literal["McNemar mid-p", "paired bootstrap", "none"] = "none"
    alpha: float = 0.01
    pairs: int = 0
    scored_pairs: int = 0
    worlds: int = 0
    wins: int = 0
    losses: int = 0
    ties: int = 0
    discordance: float = 0.0
    p_better: float = 1.0
    p_worse: float = 1.0
    unscored_champion: int = 0
    unscored_candidate: int = 0
    unscored_share: float = 0.0


class GateEvidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a decision rests on. ``gold_epoch``: of the gold grader, empty when the evaluation does not
    say; ``archive``: where the outcomes lie, by the hash of their bytes.
    """

    lineage: str = ""
    version: int = 0
    champion: int = 0
    split: str = "held_out"
    seed: int = 0
    temperature: float = 0.0
    attempts: int = 1
    gold: str = ""
    gold_epoch: str = ""
    archive: str = ""
    integrity: tuple[str, ...] = ()
    test: PairedTest = PairedTest()
    rows: tuple[GateRow, ...] = ()

    def row(self, name: str) -> GateRow | None:
        """The line with this name, or None."""
        return next((row for row in self.rows if row.name == name), None)


def to_json(evidence: GateEvidence) -> dict[str, Any]:
    """The evidence as the plain tree that an event carries."""
    tree: dict[str, Any] = msgspec.to_builtins(evidence)
    return tree


def from_json(tree: dict[str, Any]) -> GateEvidence | None:
    """The evidence of an event; None when it is of another shape (another gate wrote it)."""
    try:
        return msgspec.convert(tree, GateEvidence)
    except msgspec.ValidationError:
        return None
