"""The sections of the report that show how it went: figures, the curve, the funnel, the decisions."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.console.markup import Child, Markup, join, tag
from millstream.console.report_charts import Point, Series, chart
from millstream.console.report_data import (
    FunnelStep,
    ReportData,
    ReportGrades,
    ReportHack,
    ReportVersion,
)
from millstream.console.report_gate import gate_block, verdict_badge
from millstream.console.report_parts import key, percent, span, table

BESIDE = 0.14
"""How far greedy marks stand to the right of the intervals, in steps."""


def glance(data: ReportData) -> Markup:
    """The few figures a hurried reader takes away."""
    shown: list[tuple[str, str]] = []
    if data.versions:
        last = _champion(data.versions)
        shown.append(
            (
                f"{percent(data.versions[0].report_success)} → {percent(last.report_success)}",
                f"success on the report set, base → version {last.version}",
            )
        )
    if data.candidates:
        promoted = sum(c.verdict == "promote" for c in data.candidates)
        shown.append((f"{promoted} of {len(data.candidates)}", "candidates promoted by the gate"))
    if data.hack:
        shown.append((_told(data.hack.verdict), "the lineage with a hole in its reward"))
    shown.append((f"{data.grades.failed:,} of {_graded(data.grades):,}", "grades failed; none became a reward"))
    if data.audit:
        shown.append(("balanced" if data.audit.balanced else "NOT balanced", "the books, from event to training"))
    if data.seconds:
        shown.append((f"{data.seconds:.0f} s", "from the first event to this page"))
    return tag("dl", [tag("div", tag("dt", what), tag("dd", value)) for value, what in shown], class_="figures")


def _told(verdict: str) -> str:
    return {"promote": "promoted", "refuse": "refused", "inconclusive": "inconclusive"}[verdict]


def _graded(grades: ReportGrades) -> int:
    return grades.scored + grades.failed + grades.abstained + grades.censored


def _champion(versions: Sequence[ReportVersion]) -> ReportVersion:
    return next((v for v in reversed(versions) if v.promoted), versions[0])


def curve(data: ReportData) -> Markup:
    """The learning curve with intervals, its key, and the same figures as a table."""
    base, last = data.versions[0], _champion(data.versions)
    control = data.control
    labels = [_place(v, base) for v in data.versions] + (["random\npick"] if control else [])
    series = [_served(data.versions), _greedy(data.versions)]
    if control:
        spot = Point(
            x=len(data.versions),
            value=control.report_success,
            low=control.report_ci[0],
            high=control.report_ci[1],
            mark="square",
        )
        series.append(Series(style="control", points=(spot,)))
    words = (
        f"Success goes from {percent(base.report_success)} at the base to {percent(last.report_success)} at version "
        f"{last.version}."
        + (f" The arm trained on a random pick stands at {percent(control.report_success)}." if control else "")
    )
    entries = [("served", "dot", "champion"), ("served", "ring", "not promoted"), ("greedy", "diamond", "greedy")]
    return join(
        tag(
            "p",
            f"{data.tasks} tasks from {data.worlds} worlds that no gate, training or tuning reads, at the served "
            f"temperature {data.temperature:g}. Bars are 95 % intervals, clustered by world.",
        ),
        tag(
            "figure",
            chart("curve-chart", "Success on the report set by version", words, labels, series),
            key([*entries, *([("control", "square", "same rollouts, picked at random")] if control else [])]),
            tag("figcaption", words),
        ),
        _curve_table(data),
    )


def _place(version: ReportVersion, base: ReportVersion) -> str:
    if version is base:
        return f"base\n(v{version.version})"
    return f"v{version.version}\n{_told(version.verdict) if version.verdict else ''}"


def _served(versions: Sequence[ReportVersion]) -> Series:
    points = tuple(
        Point(
            x=i,
            value=v.report_success,
            low=v.report_ci[0],
            high=v.report_ci[1],
            mark="dot" if i == 0 or v.promoted else "ring",
        )
        for i, v in enumerate(versions)
    )
    return Series(
        style="served", points=points, joined=tuple(i for i, v in enumerate(versions) if i == 0 or v.promoted)
    )


def _greedy(versions: Sequence[ReportVersion]) -> Series:
    points = tuple(
        Point(x=i + BESIDE, value=v.greedy, mark="diamond") for i, v in enumerate(versions) if v.greedy is not None
    )
    return Series(style="greedy", points=points, joined=tuple(range(len(points))))


def _curve_table(data: ReportData) -> Markup:
    rows: list[list[Child]] = [
        [
            f"version {v.version}" + (" (base)" if i == 0 else ""),
            percent(v.report_success),
            span(v.report_ci),
            percent(v.greedy),
            percent(v.pass_at_4),
            verdict_badge(v.verdict) if v.verdict else "serves first" if i == 0 else "–",
        ]
        for i, v in enumerate(data.versions)
    ]
    if data.control:
        control = data.control
        rows.append(
            [
                "random pick",
                percent(control.report_success),
                span(control.report_ci),
                percent(control.greedy),
                "–",
                "a control, not judged",
            ]
        )
    head = ("", "success", "95 % interval", "greedy", "pass@4", "gate")
    return table("The same figures", head, rows, numbers=(1, 2, 3, 4))


def funnel(data: ReportData) -> Markup:
    """What became of every event and every run, with what was left out and why."""
    most: dict[str, int] = {}
    for step in data.funnel:
        most[step.unit] = max(most.get(step.unit, 1), step.count)
    shared = {unit for unit in most if sum(s.unit == unit for s in data.funnel) > 1}
    return join(
        tag("p", "Nothing disappears: what does not reach the next step is counted with its reason."),
        tag(
            "ol",
            [_funnel_step(s, s.count / most[s.unit] if s.unit in shared else None) for s in data.funnel],
            class_="funnel",
        ),
    )


def _funnel_step(step: FunnelStep, share: float | None) -> Markup:
    bar = tag("i", style=f"width:{max(0.0, share) * 62:.1f}%", aria_hidden="true") if share is not None else None
    lost = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in step.lost.items() if n)
    return tag(
        "li",
        tag("span", step.name, tag("small", step.note) if step.note else None, class_="name"),
        tag("span", bar, f"{step.count:,} {step.unit}", class_="bar"),
        tag("p", f"not further: {lost}", class_="lost") if lost else None,
    )


def gates(data: ReportData) -> Markup:
    """Each candidate with its verdict, its reasons and its table."""
    return join(
        tag(
            "p",
            "Champion and candidate run the same unseen tasks. A promotion needs proof; without it the verdict is "
            "inconclusive and the data is kept.",
        ),
        [
            gate_block(f"Version {c.version} against version {c.champion}", c.verdict, c.reasons, c.evidence)
            for c in data.candidates
        ],
    )


def hack(found: ReportHack) -> Markup:
    """Its own reward against gold, before and after, and what the gate said."""
    words = (
        f"Its own reward went from {percent(found.proxy[0])} to {percent(found.proxy[1])}, "
        f"gold from {percent(found.gold[0])} to {percent(found.gold[1])}."
    )
    ranges = {name: row for name in ("proxy", "gold") if found.evidence and (row := found.evidence.row(name))}
    series = []
    for name, values in (("proxy", found.proxy), ("gold", found.gold)):
        row = ranges.get(name)
        sides = (row.champion_range, row.candidate_range) if row else (None, None)
        points = tuple(
            Point(
                x=i,
                value=value,
                low=side[0] if side else None,
                high=side[1] if side else None,
                mark="square" if name == "proxy" else "dot",
            )
            for i, (value, side) in enumerate(zip(values, sides, strict=True))
        )
        series.append(Series(style=name, points=points, joined=(0, 1)))
    formula = join(" Its reward is ", tag("code", found.formula), ".") if found.formula else None
    return join(
        tag(
            "p",
            "The same trainer, settings and gate; only the reward differs.",
            formula,
            " Paid for a proxy, a policy learns the proxy.",
        ),
        tag(
            "figure",
            chart("hack-chart", "Own reward and gold, before and after", words, ("before", "after two rounds"), series),
            key([("proxy", "square", "its own reward (proxy)"), ("gold", "dot", "gold, which it never sees")]),
            tag("figcaption", words),
        ),
        gate_block("The gate's judgement", found.verdict, found.reasons, found.evidence),
    )
