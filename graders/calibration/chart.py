"""A control chart of a judge: its disagreement with gold over time, window by window, and since when it drifts.

The windows are for people (limits: three standard errors about the first part's share, Shewhart's p-chart). What
raises the alarm is the e-detector of `millstream.betting`: no window has to be chosen, and it is valid at every look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from millstream.betting import Bet
from millstream.intervals import wilson

LEAST = 50
"""Labels that make something to compare with."""
WINDOW = 50
SLACK = 0.01
THRESHOLD = 1000.0
"""Mean number of labels between false alarms, at least."""


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of labels in order of time: the share on which the judge disagreed, and the limit."""

    first_ms: int
    last_ms: int
    labels: int
    disagreement: float
    limit: float
    out: bool


class Chart(Struct, frozen=True, kw_only=True):
    """``reference``: the disagreement of the first labels; ``expected``: what is no news. ``drifted_at``: how
    many labels after them the alarm came, None when it did not.
    """

    labels: int
    reference: float
    reference_labels: int
    expected: float
    windows: tuple[Window, ...]
    drifted_at: int | None
    evidence: float
    ids: tuple[str, ...] = ()


def chart(judged: Sequence[tuple[int, str, bool]]) -> Chart | None:
    """The chart of (time, trajectory id, whether the judge disagreed), in order of time; None with fewer labels
    than twice `LEAST`. The first third, at least `LEAST`, is the reference.
    """
    if len(judged) < 2 * LEAST:
        return None
    reference = judged[: max(LEAST, len(judged) // 3)]
    rest = judged[len(reference) :]
    hits = sum(differs for _, _, differs in reference)
    expected = min(0.95, wilson(hits, len(reference), level=0.90)[1] + SLACK)
    bet, drifted, ids, most = Bet(expected=expected, restarts=True), None, list[str](), 0.0
    for n, (_, identity, differs) in enumerate(rest, 1):
        evidence = bet.take(float(differs))
        most = max(most, evidence)
        ids += [identity] if differs else []
        if evidence >= THRESHOLD:
            drifted = n
            break
    share = hits / len(reference)
    return Chart(
        labels=len(judged),
        reference=share,
        reference_labels=len(reference),
        expected=expected,
        windows=tuple(_window(rest[i : i + WINDOW], share) for i in range(0, len(rest), WINDOW)),
        drifted_at=drifted,
        evidence=most,
        ids=tuple(ids[-WINDOW:]),
    )


def _window(part: Sequence[tuple[int, str, bool]], share: float) -> Window:
    limit = share + 3 * math.sqrt(max(share, 1 / LEAST) * (1 - share) / len(part))
    found = sum(differs for _, _, differs in part) / len(part)
    return Window(
        first_ms=part[0][0],
        last_ms=part[-1][0],
        labels=len(part),
        disagreement=found,
        limit=min(1.0, limit),
        out=found > limit,
    )
