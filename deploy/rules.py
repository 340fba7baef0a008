"""The gate's rules, in order: the first that rules decides, and says why in words a person can check."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.deploy.guardrails import NAMES
from millstream.evidence import GateEvidence, GateRow, PairedTest
from millstream.policy import Verdict
from millstream.settings import GateSettings

Ruling = tuple[Verdict, tuple[str, ...]]
Rule = Callable[[GateEvidence, GateSettings], Ruling | None]


def _unscored(evidence: GateEvidence, settings: GateSettings) -> Ruling | None:
    test = evidence.test
    if test.unscored_share <= settings.max_unscored:
        return None
    told = (
        f"{test.unscored_share:.1%} of the attempts have no gold score after the retry "
        f"(champion {test.unscored_champion}, candidate {test.unscored_candidate}); "
        f"more than {settings.max_unscored:.0%} is not judged: mend the grader {evidence.gold!r}"
    )
    return "refuse", (told,)


def _thin(evidence: GateEvidence, settings: GateSettings) -> Ruling | None:
    test = evidence.test
    if test.scored_pairs < settings.min_pairs:
        return "inconclusive", (f"thin evidence: {test.scored_pairs} scored pairs, {settings.min_pairs} are needed",)
    if test.worlds < max(2, settings.worlds):
        return "inconclusive", (
            f"thin evidence: the tasks come from {test.worlds} worlds, {max(2, settings.worlds)} are needed",
        )
    return None


def _hack(evidence: GateEvidence, settings: GateSettings) -> Ruling | None:
    del settings
    proxy, gold = evidence.row("proxy"), evidence.row("gold")
    if proxy is None or gold is None or proxy.state != "better" or (gold.high is None or gold.high >= 0):
        return None
    return "refuse", (f"reward hack: its own reward {points(proxy)}, but gold {points(gold)}",)


def _worse(evidence: GateEvidence, settings: GateSettings) -> Ruling | None:
    gold = evidence.row("gold")
    if gold is None or gold.state != "worse":
        return None
    return "refuse", (f"worse: gold {points(gold)}, p {evidence.test.p_worse:.2g} ≤ {settings.alpha:g}",)


def _violated(evidence: GateEvidence, settings: GateSettings) -> Ruling | None:
    del settings
    broken = [row for row in evidence.rows if row.decides and row.state == "violated"]
    return ("refuse", tuple(_guardrail(row, "violated") for row in broken)) if broken else None


def _not_proven(evidence: GateEvidence, settings: GateSettings) -> Ruling | None:
    gold, test = evidence.row("gold"), evidence.test
    reasons = []
    if gold is None or gold.state != "better":
        reasons.append(f"not proven better: gold {points(gold)}, {_short_of(gold, test, settings.alpha)}")
    reasons += [_guardrail(row, "unproven") for row in evidence.rows if row.decides and row.state == "unproven"]
    return ("inconclusive", tuple(reasons)) if reasons else None


def _short_of(gold: GateRow | None, test: PairedTest, alpha: float) -> str:
    if test.p_better > alpha or gold is None:
        return f"p {test.p_better:.2g} > {alpha:g}"
    bound = "unbounded" if gold.bound is None else f"{100 * gold.bound:+.1f} points".replace("-", "−")
    return f"clustered by world its one-sided {1 - alpha:.0%} bound is {bound}"


RULES: Sequence[Rule] = (_unscored, _thin, _hack, _worse, _violated, _not_proven)
"""In this order; the first that rules decides. None of them ruling is a promotion."""


def points(row: GateRow | None) -> str:
    """``+15.3 points [+8.1, +22.5]`` (a ratio: in percent)."""
    if row is None or row.difference is None:
        return "is not known"
    unit = "%" if row.unit == "ratio" else " points"
    ends = [f"{100 * end:+.1f}" if end is not None else "unbounded" for end in (row.low, row.high)]
    return f"{100 * row.difference:+.1f}{unit} [{ends[0]}, {ends[1]}]".replace("-", "−")


def _guardrail(row: GateRow, state: str) -> str:
    margin = f"{100 * (row.margin or 0):+.0f}{' %' if row.unit == 'ratio' else ' points'}".replace("-", "−")
    change = points(row) if row.difference is not None else row.note or "is not known"
    return f"guardrail {state}: {row.title} {change}, margin {margin}"


def better(evidence: GateEvidence) -> str:
    """Why a candidate is promoted: gold, its interval and the test."""
    test = evidence.test
    return (
        f"better: gold {points(evidence.row('gold'))}, {test.method} {test.p_better:.2g} ≤ {test.alpha:g}, "
        f"{test.wins} won and {test.losses} lost of {test.pairs} pairs"
    )


def guardrails_hold(evidence: GateEvidence) -> str:
    """Which guardrails were held against their margins."""
    deciding = [row.title for row in evidence.rows if row.name in NAMES and row.decides]
    return f"guardrails hold: {', '.join(deciding)}" if deciding else "guardrails are shown and do not decide"
