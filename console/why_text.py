"""`Why` as text: what a person reads first comes first, and long lists are cut with a count."""

from __future__ import annotations

from collections import Counter

from millstream.console.tables import columns, gate_table, tally_words
from millstream.console.times import iso
from millstream.console.why import Why, WhyRollout
from millstream.evidence import from_json
from millstream.grade import Scored
from millstream.policy import GateDecided

SHOWN = 10


def render(found: Why, shown: int = SHOWN) -> str:
    """The answer as text; at most ``shown`` rollouts, the rest counted."""
    blocks = [
        _head(found),
        _training(found),
        _rollouts(found, shown),
        *(_gate(decided) for decided in found.gates),
        _service(found),
        _alarms(found),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(found: Why) -> list[str]:
    version = found.version
    verdict = f", verdict {version.verdict}" if version.verdict else ""
    parent = f"parent: version {version.parent}" if version.parent is not None else "no parent: a base"
    return [
        f"version {version.version} of {found.lineage}: {version.stage}{verdict}",
        *([f"  QUARANTINED: {version.quarantined}"] if version.quarantined else []),
        f"  {parent}; registered {iso(version.registered_ms)}",
        f"  files: {_place(version.uri)}" + (f", content {version.content_hash}" if version.content_hash else ""),
    ]


def _place(uri: str) -> str:
    return uri if uri.startswith("/") or "://" in uri else f"{uri} in the data directory"


def _training(found: Why) -> list[str]:
    training = found.training
    if training is None:
        return []
    start = f", from version {training.start_from}" if training.start_from is not None else ""
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(training.metrics.items()))
    return [
        f"training {training.id}: {training.state}",
        f"  asked for {iso(training.requested_ms)}: {training.reason}",
        f"  {training.algorithm}{start}, seed {training.seed}, buffer namespace {training.namespace!r}",
        f"  manifest: {training.manifest or 'none'}",
        *([f"  {metrics}"] if metrics else []),
    ]


def _rollouts(found: Why, shown: int) -> list[str]:
    rollouts = found.rollouts
    if not rollouts:
        return []
    rewards = [r.reward for r in rollouts if r.reward is not None]
    mean = f", mean reward {sum(rewards) / len(rewards):.3f} over {len(rewards)}" if rewards else ""
    splits = ", ".join(f"{n} {name or 'of no split'}" for name, n in Counter(r.split for r in rollouts).items())
    missing = sum(not r.admitted for r in rollouts)
    tally = found.tally
    lines = [
        f"learned from {len(rollouts)} rollouts of {len({r.task_id for r in rollouts})} tasks{mean} ({splits})",
        f"  grades behind the rewards: {tally_words(tally)}",
        *(f"    {epoch}: {n}" for epoch, n in found.epochs.items()),
    ]
    if found.refused:
        lines.append("  the buffer refused " + ", ".join(f"{n} {reason}" for reason, n in found.refused.items()))
    if recalled := sum(bool(r.recalled) for r in rollouts):
        lines.append(f"  {recalled} of them rest on evidence that was recalled since")
    if since := [r for r in rollouts if r.since]:
        first = f"{since[0].trajectory_id}, {since[0].since}"
        lines.append(f"  {len(since)} of them would be another rollout now ({first}; --json has all)")
    if missing:
        lines.append(f"  {missing} rollouts are older than the log: see the manifest")
    head = ("trajectory", "task", "reward", "advantage", "grades", "decisions")
    lines += columns((_cells(r) for r in rollouts[:shown]), head, indent="  ")
    if len(rollouts) > shown:
        lines.append(f"  … and {len(rollouts) - shown} more (--json has all)")
    return lines


def _cells(rollout: WhyRollout) -> tuple[str, ...]:
    grades = ", ".join(
        f"{g.grader} {g.grade.score:g}"
        if isinstance(g.grade, Scored)
        else f"{g.grader} {type(g.grade).__name__.lower()}"
        for g in rollout.grades
    )
    return (
        rollout.trajectory_id or rollout.rollout_id,
        rollout.task_id,
        "–" if rollout.reward is None else f"{rollout.reward:.3f}",
        "–" if rollout.advantage is None else f"{rollout.advantage:+.3f}".replace("-", "−"),
        grades,
        " → ".join(d.kind.removeprefix("Rollouts").removeprefix("Rollout").lower() for d in rollout.decisions),
    )


def _gate(decided: GateDecided) -> list[str]:
    evidence = from_json(decided.evidence)
    table = gate_table(evidence) if evidence else ["the evidence is of another shape; --json has it"]
    return [
        f"gate {iso(decided.log_ms)} against version {decided.expected_champion}: {decided.verdict}",
        *(f"  because {reason}" for reason in decided.reasons),
        *(f"  {line}" for line in table),
    ]


def _service(found: Why) -> list[str]:
    if not found.served:
        return ["it never served"]
    return [
        f"served {iso(s.since_ms)} – {iso(s.until_ms) if s.until_ms is not None else 'now'} "
        f"({s.reason}{', by ' + s.by if s.by else ''})"
        for s in found.served
    ]


def _alarms(found: Why) -> list[str]:
    cleared = {event.alarm_id: event for event in found.cleared}
    lines = []
    for alarm in found.alarms:
        end = cleared.get(alarm.id)
        state = f"cleared {iso(end.log_ms)}: {end.reason}" if end else "it stands"
        lines += [f"{alarm.alarm} alarm {iso(alarm.log_ms)} by its runs: {alarm.reason}; {state}"]
        lines += [f"  for example {', '.join(alarm.trajectory_ids[-3:])}"] if alarm.trajectory_ids else []
    return lines
