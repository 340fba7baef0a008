"""Several judges as one: their votes weighted by what each was worth on gold labels.

log-odds of "right" = log(π/(1−π)) + Σ_k w_k(vote_k), w_k(v) = log P(v | right) − log P(v | wrong), each
probability estimated with one imaginary vote either way (Nitzan & Paroush 1982; Dawid & Skene 1979 with known
labels). Weights are only fitted on enough labels; below that a majority is what there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

ENOUGH, ENOUGH_EACH = 50, 10
"""Gold labels that are needed in all, and of each of the two classes."""
FOLDS = 10

Votes = Mapping[str, bool]


class Weights(Struct, frozen=True, kw_only=True):
    """The fitted prior and, for each judge, what its yes and its no are worth (in nats)."""

    prior: float
    yes: dict[str, float]
    no: dict[str, float]

    def log_odds(self, votes: Votes) -> float:
        """The log-odds of "right"; a judge that is not heard adds nothing."""
        return self.prior + math.fsum((self.yes if vote else self.no).get(judge, 0.0) for judge, vote in votes.items())

    def verdict(self, votes: Votes) -> bool:
        """Whether right is likelier than wrong."""
        return self.log_odds(votes) > 0


class Combination(Struct, frozen=True, kw_only=True):
    """Accuracy on ``labels`` gold labels, each found by weights fitted on the others (ten folds): of each judge
    alone, of their majority, and of the weighted vote. ``weights`` is None without enough labels.
    """

    labels: int
    right: int
    alone: dict[str, float]
    majority: float
    weighted: float | None
    weights: Weights | None
    reason: str = ""


def fit(rows: Sequence[tuple[Votes, bool]]) -> Weights:
    """Weights from (votes, gold) rows."""
    right = sum(gold for _, gold in rows)
    wrong = len(rows) - right
    judges = sorted({judge for votes, _ in rows for judge in votes})
    yes, no = {}, {}
    for judge in judges:
        heard = [(votes[judge], gold) for votes, gold in rows if judge in votes]
        sides = {side: [vote for vote, gold in heard if gold is side] for side in (True, False)}
        chance = {side: (sum(votes) + 1) / (len(votes) + 2) for side, votes in sides.items()}
        yes[judge] = math.log(chance[True] / chance[False])
        no[judge] = math.log((1 - chance[True]) / (1 - chance[False]))
    return Weights(prior=math.log((right + 1) / (wrong + 1)), yes=yes, no=no)


def combine(rows: Sequence[tuple[Votes, bool]]) -> Combination:
    """What the judges are worth alone and together. Raises `ValueError` without a row."""
    if not rows:
        raise ValueError("nothing to combine: no run has a gold label and a judge's vote")
    judges = sorted({judge for votes, _ in rows for judge in votes})
    right = sum(gold for _, gold in rows)
    heard = {judge: [(votes[judge], gold) for votes, gold in rows if judge in votes] for judge in judges}
    lacking = _lacking(len(rows), right)
    return Combination(
        labels=len(rows),
        right=right,
        alone={judge: sum(vote == gold for vote, gold in found) / len(found) for judge, found in heard.items()},
        majority=sum(majority(votes) == gold for votes, gold in rows) / len(rows),
        weighted=None if lacking else _crossed(rows),
        weights=None if lacking else fit(rows),
        reason=lacking,
    )


def majority(votes: Votes) -> bool:
    """More yes than no."""
    return sum(votes.values()) * 2 > len(votes)


def _lacking(labels: int, right: int) -> str:
    few = min(right, labels - right)
    if labels >= ENOUGH and few >= ENOUGH_EACH:
        return ""
    return f"{labels} gold labels, {few} of the rarer class: weights need {ENOUGH} and {ENOUGH_EACH}"


def _crossed(rows: Sequence[tuple[Votes, bool]]) -> float:
    hits = 0
    for fold in range(FOLDS):
        weights = fit([row for i, row in enumerate(rows) if i % FOLDS != fold])
        hits += sum(weights.verdict(votes) == gold for votes, gold in rows[fold::FOLDS])
    return hits / len(rows)
