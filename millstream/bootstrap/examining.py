"""Registration: a grader meets the attack battery before it teaches, and what came out is an event.

Built-ins are examined when a pipeline starts (a tenth of a second each, once an epoch). Code of one's own may
ask a judge that costs money, so it is examined when somebody says so: ``millstream graders attack NAME``, or
``[graders] examine = "all"``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.codec import digest
from millstream.errors import GraderError, SettingsError
from millstream.grader_events import AlarmCleared, AlarmRaised, GraderExamined
from millstream.graders.attacks.battery import VERSION
from millstream.graders.attacks.examination import Examination, examine, examined
from millstream.graders.attacks.specimens import STANDARD, Specimen, specimens_of
from millstream.graders.builtin import BUILTINS, builtin
from millstream.graders.registry import Grader
from millstream.ledger import LedgerReader, append_policy_events

if TYPE_CHECKING:
    from millstream.bootstrap.plans import Plan
    from millstream.bootstrap.runtime import Runtime
    from millstream.console.calibration import Calibration, Wanted
    from millstream.graders.calibration.chart import Chart


def register(runtime: Runtime) -> None:
    """Examine the built-ins that are enabled or named as gold and have not been yet. Raises `SettingsError`
    when the gold of a gate may not gate.
    """
    which = runtime.loaded.settings.graders.examine
    _register(runtime, {g.name: g for g in runtime.graders.graders if which == "all" or g.source == "builtin"})


def register_gold(runtime: Runtime) -> None:
    """Examine what gates decide by, for a process that only judges. Raises `SettingsError` as `register` does."""
    _register(runtime, {})


def _register(runtime: Runtime, graders: dict[str, Grader]) -> None:
    ledger = LedgerReader(runtime.log).refresh()
    known = {(e.epoch, e.battery) for e in ledger.graders.examined.values()}
    wanted = {**_golds(runtime, graders), **graders} if runtime.loaded.settings.graders.examine != "none" else {}
    found = [_examined(runtime, g) for g in wanted.values() if (g.epoch, VERSION) not in known]
    if found:
        append_policy_events(runtime.log, found)
        for event in found:
            ledger.apply(event)
    for plan in runtime.plans:
        unfit = ledger.graders.unfit(plan.gate.gold) if plan.gate.enabled and plan.gate.evaluation else None
        if unfit is not None:
            raise SettingsError(
                f"[gate] gold = {plan.gate.gold!r}: the grader is {unfit.verdict}: {unfit.reason}; a gate needs a "
                f"grader that attacks don't fool (`millstream graders attack {plan.gate.gold}` shows them)"
            )


def _golds(runtime: Runtime, stream: Collection[str]) -> dict[str, Grader]:
    """The built-ins that only gates use, with the options they have here; one that a grader file of this
    installation stands before is that file's.
    """
    settings = runtime.loaded.settings.graders
    found: dict[str, Grader] = {}
    names = {plan.gate.gold for plan in runtime.plans if plan.gate.evaluation}
    for name in sorted(names & BUILTINS.keys() - set(stream)):
        if not settings.files or name not in runtime.graders.names:
            found[name] = builtin(name, settings.options.get(name), runtime.loaded.root)
    return found


def verdicts(runtime: Runtime) -> dict[str, str]:
    """The verdict of the last examination of each grader; none where there is no log yet."""
    storage = runtime.loaded.settings.storage
    if storage.log.startswith("sqlite:") and not runtime.loaded.database(storage.log).exists():
        return {}
    return {name: e.verdict for name, e in LedgerReader(runtime.log).refresh().graders.examined.items()}


def _examined(runtime: Runtime, made: Grader) -> GraderExamined:
    """Examine a grader at the start: one that hangs or dies is untested, and the stream goes on."""
    if made.source == "builtin":
        return examined(made.name, made.epoch, examine(made, made.low, made.high))
    try:
        return examined(made.name, made.epoch, _met(runtime, made.name, STANDARD)[1])
    except GraderError as error:
        found = Examination(verdict="untested", reason=str(error)[:500], tasks=0, asked=len(STANDARD))
        return examined(made.name, made.epoch, found)


def _met(runtime: Runtime, name: str, specimens: Sequence[Specimen]) -> tuple[Grader, Examination]:
    """A grader, in a child of its own where it needs one, and what the battery found."""
    from millstream.graders.running import effective

    graders = runtime.one_grader(name)
    try:
        made = graders.graders[0]
        return made, examine(lambda t: effective(graders.grade(t)[0]).grade, made.low, made.high, specimens)
    finally:
        graders.close()


def attack(runtime: Runtime, name: str, tasks: Path | None = None) -> GraderExamined:
    """Examine one grader, on the operator's tasks where a file names some, and keep what was found. Raises
    `SettingsError` for an unknown grader or tasks of no use, `GraderError` when it hangs or dies.
    """
    from millstream.graders.files import read_tasks

    specimens = specimens_of(read_tasks(tasks.read_bytes(), tasks.name).values()) if tasks else STANDARD
    if tasks is not None and not specimens:
        raise SettingsError(f"{tasks.name}: no task to attack: at least two are needed, with different references")
    made, found = _met(runtime, name, specimens)
    event = examined(name, made.epoch, found, own_tasks=tasks is not None)
    append_policy_events(runtime.log, [event])
    return event


def clear_alarm(runtime: Runtime, alarm_id: str, reason: str) -> AlarmCleared:
    """Clear an alarm that stands. Raises `SettingsError` when there is none of that id."""
    book = LedgerReader(runtime.log).refresh().graders
    alarm = book.alarms.get(alarm_id)
    if alarm is None or alarm_id in book.cleared:
        why = "is cleared already" if alarm is not None else "is none"
        raise SettingsError(f"alarm {alarm_id!r} {why}; `millstream alarms list` shows what stands")
    identity = digest("cleared", alarm_id)
    event = AlarmCleared(id=identity, lineage=alarm.lineage, alarm_id=alarm_id, reason=reason, by="hand")
    append_policy_events(runtime.log, [event])
    return event


def calibrated(
    runtime: Runtime,
    wanted: Wanted,
    labels: Path | None,
    times: tuple[int | None, int | None] = (None, None),
    *,
    dry_run: bool = False,
) -> tuple[Calibration, AlarmRaised | None]:
    """Compare a grader with gold; when its agreement has drifted, raise an alarm (once) about every lineage
    that is trained here. ``times``: as of when it was known and when it held, for a look back that raises
    none. Raises `SettingsError` when there is nothing to compare.
    """
    from millstream.console.calibration import calibrate

    content = labels.read_bytes() if labels else None
    found = calibrate(runtime.log, wanted, content, as_of_ms=times[0], valid_at_ms=times[1])
    back = dry_run or times != (None, None)
    if found.chart is None or found.chart.drifted_at is None or back:
        return found, None
    alarms = [_drifted(found, found.chart, plan) for plan in runtime.plans]
    known = LedgerReader(runtime.log).refresh().graders.alarms
    append_policy_events(runtime.log, [alarm for alarm in alarms if alarm.id not in known])
    return found, alarms[0]


def _drifted(found: Calibration, drift: Chart, plan: Plan) -> AlarmRaised:
    runs = drift.drifted_at or 0
    hits = sum(round(w.disagreement * w.labels) for w in drift.windows)
    share = hits / max(1, sum(w.labels for w in drift.windows))
    return AlarmRaised(
        id=digest("drifted", plan.lineage, found.grader, found.epoch, found.gold, *drift.ids),
        lineage=plan.lineage,
        alarm="disagreement",
        measure=f"calibration of {found.grader}",
        graders=(found.grader,),
        version=None,
        reference=f"the first {drift.reference_labels} labels",
        runs=runs,
        hits=len(drift.ids),
        share=round(share, 6),
        expected=round(drift.expected, 6),
        evidence=round(drift.evidence, 3),
        reason=(
            f"{found.grader} disagreed with {found.gold} on {drift.reference:.1%} of the first "
            f"{drift.reference_labels} labels and on {share:.1%} of those after them; "
            f"at most {drift.expected:.1%} is expected"
        ),
        trajectory_ids=drift.ids,
        stops="disagreement" in plan.alarms.stops,
    )
