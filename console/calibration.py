"""``graders calibrate``: a grader's word beside gold, from the log or a file of human labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from millstream.console.catalog import grade_events, ledger
from millstream.console.tables import columns
from millstream.console.times import iso
from millstream.errors import SettingsError
from millstream.grade import Failed, GradeGiven, Scored
from millstream.graders.calibration.abstention import Threshold, least_labels, threshold
from millstream.graders.calibration.agreement import Agreement, agreement
from millstream.graders.calibration.chart import Chart, chart
from millstream.graders.calibration.combining import Combination, combine
from millstream.ndjson import UNREADABLE
from millstream.ports import Log

PASS, FAIL = "pass", "fail"


class Wanted(Struct, frozen=True, kw_only=True):
    """What to compare: ``graders`` (the first is calibrated, the others join it) with ``gold``. Scores from
    ``cut`` on are a pass; with ``labels`` the graders' own labels are compared instead.
    """

    graders: tuple[str, ...]
    gold: str
    cut: float = 0.5
    labels: bool = False
    risk: float = 0.1
    confidence: float = 0.95


class Calibration(Struct, frozen=True, kw_only=True):
    """What came out, of the grader's newest epoch alone, beside the newest of gold. ``unscored``: runs with a gold
    label on which the grader gave no score; ``others``: runs whose word is of another epoch. ``abstain``: the
    loosest confidence (distance of the score from the cut) at which the error is shown to be within ``risk``.
    """

    grader: str
    epoch: str
    gold: str
    gold_epoch: str
    others: int
    cut: float
    agreement: Agreement
    unscored: int
    risk: float
    confidence: float
    abstain: Threshold | None
    abstain_note: str
    together: Combination | None
    chart: Chart | None


class _Word(Struct, frozen=True):
    """What one grader said of one run: None of it where it gave no score."""

    score: float | None
    label: str
    epoch: str
    ms: int
    known_ms: int = 0


Words = Mapping[str, Mapping[str, _Word]]


class _Label(Struct, frozen=True):
    """A row of a file of labels."""

    trajectory_id: str = ""
    id: str = ""
    label: str = ""
    value: float | None = None


def calibrate(
    log: Log,
    wanted: Wanted,
    labels: bytes | None = None,
    *,
    as_of_ms: int | None = None,
    valid_at_ms: int | None = None,
) -> Calibration:
    """Compare. ``labels``: rows {trajectory_id or id, label or value}, in place of gold grades of the log. Recalled
    grades don't count. Raises `SettingsError` when there is nothing to compare.
    """
    every = _words(log, {*wanted.graders, wanted.gold}, (as_of_ms, valid_at_ms))
    words = {name: _newest(runs) for name, runs in every.items()}
    gold = _read(labels) if labels is not None else words.get(wanted.gold, {})
    judge = words.get(wanted.graders[0], {})
    common = sorted((run for run in judge if run in gold), key=lambda run: judge[run].ms)
    scored = [run for run in common if judge[run].score is not None and gold[run].score is not None]
    if not scored:
        raise SettingsError(
            f"nothing to compare: {len(judge)} runs are graded by {wanted.graders[0]!r}, {len(gold)} have a gold label "
            f"({'the file' if labels is not None else wanted.gold!r}), and none has a score of both"
        )
    pairs = [(_said(gold[run], wanted), _said(judge[run], wanted)) for run in scored]
    told = [(judge[run].ms, run, one != other) for run, (one, other) in zip(scored, pairs, strict=True)]
    confidences = [(abs((judge[run].score or 0.0) - wanted.cut), not differs) for _, run, differs in told]
    safe = threshold(confidences, wanted.risk, 1 - wanted.confidence)
    return Calibration(
        grader=wanted.graders[0],
        epoch=judge[scored[-1]].epoch,
        gold="labels of a file" if labels is not None else wanted.gold,
        gold_epoch=gold[scored[-1]].epoch,
        others=len(every.get(wanted.graders[0], {})) - len(judge),
        cut=wanted.cut,
        agreement=agreement(pairs),
        unscored=len(common) - len(scored),
        risk=wanted.risk,
        confidence=wanted.confidence,
        abstain=safe,
        abstain_note=_note(safe, len(scored), wanted),
        together=_together(words, gold, wanted) if len(wanted.graders) > 1 else None,
        chart=chart(told),
    )


def _words(log: Log, graders: set[str], times: tuple[int | None, int | None]) -> dict[str, dict[str, _Word]]:
    """The last word of each grader on each run: of its last epoch's attempts one that did not fail."""
    found: dict[str, dict[str, _Word]] = {}
    recalls = ledger(log, times[0]).recalls
    for event in grade_events(log, *times):
        if not isinstance(event, GradeGiven) or event.grader not in graders:
            continue
        if recalls.takes(event.trajectory_id) or recalls.covers(event.grader, event.epoch, event.known_ms):
            continue
        runs = found.setdefault(event.grader, {})
        known = runs.get(event.trajectory_id)
        if known is None or known.score is None or known.epoch != event.epoch or not isinstance(event.grade, Failed):
            runs[event.trajectory_id] = _word(event)
    return found


def _newest(runs: Mapping[str, _Word]) -> dict[str, _Word]:
    """Those of the epoch that spoke last: words of two epochs are two measurements."""
    last = max(runs.values(), key=lambda word: word.known_ms, default=None)
    return {run: word for run, word in runs.items() if last is not None and word.epoch == last.epoch}


def _word(given: GradeGiven) -> _Word:
    grade = given.grade
    ms = given.valid_ms or given.known_ms
    if isinstance(grade, Scored):
        return _Word(grade.score, grade.label, given.epoch, ms, given.known_ms)
    return _Word(None, "", given.epoch, ms, given.known_ms)


def _read(content: bytes) -> dict[str, _Word]:
    found = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=_Label)
        except UNREADABLE as error:
            raise SettingsError(f"labels, line {number}: {error}; a row is {{trajectory_id, label or value}}") from None
        run = row.trajectory_id or row.id
        if not run or (row.value is None and not row.label) or (row.value is not None and not math.isfinite(row.value)):
            raise SettingsError(f"labels, line {number}: a row is {{trajectory_id, label or value}}")
        value = row.value if row.value is not None else float(row.label.lower() in ("pass", "good", "yes", "correct"))
        found[run] = _Word(value, row.label, "labels", 0)
    return found


def _said(word: _Word, wanted: Wanted) -> str:
    if wanted.labels:
        return word.label or "(no label)"
    return PASS if (word.score or 0.0) >= wanted.cut else FAIL


def _note(safe: Threshold | None, labels: int, wanted: Wanted) -> str:
    if safe is not None:
        return ""
    least = least_labels(wanted.risk, 1 - wanted.confidence)
    if labels < least:
        return f"{labels} labels; {least} without an error are needed before anything can be shown"
    return "not even where it is surest is its error shown to be within the risk"


def _together(words: Words, gold: Mapping[str, _Word], wanted: Wanted) -> Combination:
    rows = []
    for run, right in sorted(gold.items()):
        votes = {
            name: word.score >= wanted.cut
            for name in wanted.graders
            if (word := words.get(name, {}).get(run)) is not None and word.score is not None
        }
        if votes and right.score is not None:
            rows.append((votes, right.score >= wanted.cut))
    return combine(rows)


def render(found: Calibration) -> str:
    """The comparison as text."""
    a = found.agreement
    lines = [
        _head(found),
        f"agreement {a.agreement:.3f} {_range(a.agreement_range)}, kappa {_kappa(a)}",
        "",
        *columns(
            ((gold, *(row[label] for label in row)) for gold, row in a.confusion.items()),
            ("gold \\ given", *a.confusion),
        ),
        "",
        *columns(
            (
                (c.label, c.gold, _share(c.recall, c.recall_range), c.given, _share(c.precision, c.precision_range))
                for c in a.classes
            ),
            ("class", "gold", "found (recall)", "given", "right (precision)"),
        ),
        "",
        _abstain(found),
    ]
    lines += _votes(found.together) if found.together else []
    return "\n".join([*lines, *_chart(found.chart)])


def _head(found: Calibration) -> str:
    return (
        f"{found.epoch} beside {found.gold} ({found.gold_epoch}): {found.agreement.n} runs with both, "
        f"{found.unscored} on which it gave no score, {found.others} left out that another epoch graded"
    )


def _range(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:.3f}, {ends[1]:.3f}]"


def _share(value: float | None, ends: tuple[float, float]) -> str:
    return "–" if value is None else f"{value:.3f} {_range(ends)}"


def _kappa(a: Agreement) -> str:
    if a.kappa is None or a.kappa_range is None:
        return "is not defined: only one label occurs"
    return f"{a.kappa:.3f} {_range(a.kappa_range)}"


def _abstain(found: Calibration) -> str:
    safe = found.abstain
    if safe is None:
        return f"no threshold keeps the error within {found.risk:.0%} at {found.confidence:.0%}: {found.abstain_note}"
    return (
        f"an error of at most {found.risk:.0%} is shown (at {found.confidence:.0%}) where the score is at least "
        f"{safe.confidence:.3g} from {found.cut:g}: {safe.kept} of {safe.n} runs ({safe.coverage:.0%}), "
        f"{safe.errors} errors; abstain elsewhere"
    )


def _votes(together: Combination) -> list[str]:
    lines = ["", f"several judges on {together.labels} gold labels:"]
    lines += [f"  {name} alone {share:.3f}" for name, share in together.alone.items()]
    lines.append(f"  majority {together.majority:.3f}")
    if together.weights is None or together.weighted is None:
        return [*lines, f"  no weights: {together.reason}; the majority stands"]
    told = ", ".join(f"{n} {y:+.2f}/{together.weights.no[n]:+.2f}" for n, y in together.weights.yes.items())
    return [*lines, f"  weighted {together.weighted:.3f} (ten folds); a yes/no is worth, in nats: {told}"]


def _chart(found: Chart | None) -> list[str]:
    if found is None:
        return ["", "no control chart: too few labels"]
    lines = ["", f"disagreement was {found.reference:.3f} on the first {found.reference_labels} labels; since then:"]
    lines += columns(
        (
            (iso(w.first_ms), w.labels, f"{w.disagreement:.3f}", f"{w.limit:.3f}", "OUT" if w.out else "")
            for w in found.windows
        ),
        ("from", "labels", "disagreement", "limit", ""),
        indent="  ",
    )
    if found.drifted_at is None:
        return [*lines, "no drift is shown"]
    return [*lines, f"DRIFT: shown {found.drifted_at} labels after the reference"]


def names(text: str) -> Sequence[str]:
    """The names of a comma list."""
    return [name for part in text.split(",") if (name := part.strip())]
