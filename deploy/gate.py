"""The gate: from two outcome sheets to a verdict, pure.

Chain: integrity → finite → enough scored → reward hack → enough evidence → worse → guardrails →
better (`deploy.rules`). *Promote* needs proof: McNemar mid-p (graded gold: paired bootstrap) at
one-sided alpha, and the bound of the difference clustered by world, at the same alpha, above zero.
*Refuse* needs proof too, or broken evidence. All else is *inconclusive*: the data is kept for the next
candidate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from millstream.deploy.evaluation import Outcomes, TaskOutcome
from millstream.deploy.guardrails import guardrail_rows
from millstream.deploy.pairing import Paired, pair
from millstream.deploy.rows import gold_row, proxy_row, shown_rows
from millstream.deploy.rules import RULES, better, guardrails_hold
from millstream.deploy.statistics import mcnemar_mid_p, paired_bootstrap
from millstream.errors import SettingsError
from millstream.evidence import GateEvidence, GateRow, PairedTest
from millstream.grade import score_of
from millstream.policy import Verdict
from millstream.settings import GateSettings


class Judgement(Struct, frozen=True, kw_only=True):
    """What the gate says, why, and the table it says it from."""

    verdict: Verdict
    reasons: tuple[str, ...]
    evidence: GateEvidence


class GateContext(Struct, frozen=True, kw_only=True):
    """What is judged. ``integrity``: what `deploy.integrity` found wrong; ``seed``: of the bootstraps and of the
    drawn tasks.
    """

    lineage: str = ""
    version: int = 0
    champion: int = 0
    seed: int = 0
    integrity: tuple[str, ...] = ()


_NOTHING = GateContext()


def judge(
    champion: Outcomes, candidate: Outcomes, settings: GateSettings, context: GateContext = _NOTHING
) -> Judgement:
    """Judge a candidate against the champion on the same tasks. Never raises for bad outcomes: what
    cannot be trusted is refused.
    """
    champion, candidate = (_told_success(side, success_from(settings)) for side in (champion, candidate))
    paired = pair(champion, candidate, settings.gold_low, settings.gold_high)
    epochs = sorted({outcome.gold_epoch for outcome in (*champion, *candidate)} - {""})
    problems = context.integrity or (
        *paired.problems,
        *_mixed(epochs),
        *_not_finite(champion, candidate),
        *_outside(settings, champion, candidate),
    )
    if problems:
        evidence = _evidence(settings, context, paired, PairedTest(alpha=settings.alpha), (), problems)
        return Judgement(verdict="refuse", reasons=problems, evidence=evidence)
    test = _test(paired, settings, context.seed)
    rows = (
        gold_row(paired.pairs, test),
        *proxy_row(paired.pairs),
        *guardrail_rows(paired.pairs, settings, context.seed),
        *shown_rows(paired.pairs),
    )
    evidence = msgspec.structs.replace(_evidence(settings, context, paired, test, rows, ()), gold_epoch="".join(epochs))
    for rule in RULES:
        found = rule(evidence, settings)
        if found is not None:
            return Judgement(verdict=found[0], reasons=found[1], evidence=evidence)
    return Judgement(verdict="promote", reasons=(better(evidence), guardrails_hold(evidence)), evidence=evidence)


def _evidence(
    settings: GateSettings,
    context: GateContext,
    paired: Paired,
    test: PairedTest,
    rows: tuple[GateRow, ...],
    integrity: tuple[str, ...],
) -> GateEvidence:
    tasks = len(paired.pairs)
    return GateEvidence(
        lineage=context.lineage,
        version=context.version,
        champion=context.champion,
        seed=context.seed,
        temperature=settings.temperature,
        attempts=paired.attempts // tasks if tasks else 0,
        gold=settings.gold,
        integrity=integrity,
        test=test,
        rows=rows,
    )


def _mixed(epochs: Sequence[str]) -> list[str]:
    """Gold of two epochs is two measurements: what differs may be the grader."""
    return [f"gold was measured by {len(epochs)} epochs: {', '.join(epochs)}"] if len(epochs) > 1 else []


def _not_finite(champion: Outcomes, candidate: Outcomes) -> list[str]:
    """Measures that are NaN or infinite: a gate never passes on one (it fails closed)."""
    bad = [
        f"{side}: {name} of task {outcome.task_id!r} is {value}, not a finite number"
        for side, outcomes in (("champion", champion), ("candidate", candidate))
        for outcome in outcomes
        for name, value in _numbers(outcome)
        if not math.isfinite(value)
    ]
    return bad[:1] + ([f"{len(bad) - 1} more measures are not finite"] if len(bad) > 1 else [])


def success_from(settings: GateSettings) -> float:
    """From which gold score on an attempt is a success. Raises `SettingsError` for a range that is none, or a success
    outside of it.
    """
    low, high, success = settings.gold_low, settings.gold_high, settings.success
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingsError(f"[gate]: gold's range [{low}, {high}] must be finite, gold_low before gold_high")
    if success == "middle":
        return (low + high) / 2
    if not low < success <= high:
        raise SettingsError(f"[gate] success {success:g} must lie above {low:g} and at most at {high:g}")
    return success


def _told_success(outcomes: Outcomes, least: float) -> Outcomes:
    return [msgspec.structs.replace(o, success_from=least) if o.success_from != least else o for o in outcomes]


def _outside(settings: GateSettings, *sides: Outcomes) -> list[str]:
    """Gold outside of its declared range: what is unscored could not be bounded."""
    low, high = settings.gold_low, settings.gold_high
    scores = [(o.task_id, value) for side in sides for o in side if (value := score_of(o.gold)) is not None]
    bad = [(task, value) for task, value in scores if not low <= value <= high]
    return [
        f"gold of {len(bad)} attempts lies outside [{low:g}, {high:g}], first {value:g} of task {task!r}: "
        "say its range with [gate] gold_low and gold_high"
        for task, value in bad[:1]
    ]


def _numbers(outcome: TaskOutcome) -> tuple[tuple[str, float], ...]:
    scores = [("gold", outcome.gold), ("proxy", outcome.proxy)]
    return (
        ("format_ok", outcome.format_ok),
        ("cost", outcome.cost),
        *((name, score) for name, grade in scores if (score := getattr(grade, "score", None)) is not None),
    )


def _test(paired: Paired, settings: GateSettings, seed: int) -> PairedTest:
    differences = [p.difference for p in paired.pairs]
    binary = all(p.champion in (0.0, 1.0) and p.candidate in (0.0, 1.0) for p in paired.pairs)
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    if binary:
        better, worse = mcnemar_mid_p(wins, losses), mcnemar_mid_p(losses, wins)
    else:
        better, worse = paired_bootstrap(differences, seed)
    return PairedTest(
        method="McNemar mid-p" if binary else "paired bootstrap",
        alpha=settings.alpha,
        pairs=len(differences),
        scored_pairs=sum(p.scored for p in paired.pairs),
        worlds=len({p.world for p in paired.pairs}),
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        discordance=(wins + losses) / len(differences),
        p_better=better,
        p_worse=worse,
        unscored_champion=paired.unscored_champion,
        unscored_candidate=paired.unscored_candidate,
        unscored_share=paired.unscored_share,
    )
