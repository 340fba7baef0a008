"""The alarm stage: is the reward being fooled? Grades in, `AlarmRaised` on ``policy-events`` out.

Pure, like every stage; one a lineage. Three things are watched, each by bets that hold at every look:

- **hack**: how often the reward pays what gold fails, against ``fooled_share``, for each policy version;
- **avoidance** and **drift** (`alarm_measures`): shares of a version's runs against those of the champion
  before it, in the order in which they began (`alarm_queue`) and task by task (`alarm_tasks`);
- **disagreement**: how often reward and gold differ, against what it was at first, for a change at any time
  (a control chart).

A false alarm of each kind has a chance of at most ``false_alarm`` a version (``disagreement``: one in
10/``false_alarm`` audits on average), while the reference's share is below the upper end of its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec
from msgspec import Struct, field

from millstream.betting import Bet
from millstream.codec import digest
from millstream.errors import GraderError
from millstream.events import CLOSE_OPEN, Tick
from millstream.grade import Censored, Failed, Grade, GradeGiven, Scored
from millstream.grader_events import AlarmCleared, AlarmRaised
from millstream.graders.reward import Formula
from millstream.ledger import policy_events
from millstream.ndjson import UNREADABLE, filled
from millstream.policy import PolicyPromoted, PolicyRolledBack
from millstream.ports import Output, Record
from millstream.rollout import GradingFinished
from millstream.settings import AlarmSettings, RewardSettings
from millstream.streams.alarm_audits import Audit, Audited, Audits, Rules, bare
from millstream.streams.alarm_books import Books, most
from millstream.streams.alarm_measures import DISAGREES, FOOLED, Measure, Sample, sample_of
from millstream.streams.alarm_queue import Held, Queue
from millstream.streams.alarm_tasks import Attempts, Track, Watch, share
from millstream.streams.graded_runs import is_feedback
from millstream.topics import GRADES, POLICY_EVENTS

_LINES = msgspec.json.Decoder(GradeGiven | GradingFinished | Tick)
_UNUSABLE = (*UNREADABLE, GraderError)
KEPT_SEEN = 20_000
"""Runs that are remembered, so that a second grading of one is not a second run."""


class AlarmState(Struct, kw_only=True):
    """``champions``: the versions that served, oldest first. ``raised``: alarm id → (measure, version), so that
    clearing one begins its watch anew.
    """

    now_ms: int = 0
    seen: dict[str, None] = field(default_factory=dict)
    champions: list[int] = field(default_factory=list)
    queue: Queue = field(default_factory=Queue)
    books: Books = field(default_factory=Books)
    audits: Audits = field(default_factory=Audits)
    fooled: dict[str, Track] = field(default_factory=dict)
    disagrees: Track = field(default_factory=Track)
    raised: dict[str, tuple[str, str]] = field(default_factory=dict)


class AlarmStage:
    """``lineages``: whose runs are watched (empty: all); ``lineage``: whose training an alarm stops."""

    inputs = (GRADES.name, POLICY_EVENTS.name)

    def __init__(
        self,
        settings: AlarmSettings,
        reward: RewardSettings,
        *,
        lineage: str,
        lineages: frozenset[str] = frozenset(),
        name: str = "alarms",
    ) -> None:
        self.name = name
        self.settings = settings
        self.lineage = lineage
        self.lineages = lineages
        formula = Formula.of(reward)
        waits = is_feedback(settings.gold) or any(map(is_feedback, formula.names))
        self.rules = Rules(formula, settings.gold, settings.gold_pass, int(settings.gold_wait_s * 1000) * waits)
        self.graders = tuple(sorted(formula.names))
        self._hold_ms = int(settings.hold_s * 1000)
        self._asked = tuple(n for n in self.graders if not is_feedback(n))
        self._wanted = {*formula.names, settings.gold}
        self._compares = formula.names != {settings.gold}
        self.state = AlarmState()

    def feed(self, record: Record) -> Sequence[Output]:
        """Fold one record in; the alarms it raises. Lines that can't be read are the buffer stage's to report."""
        self.state.now_ms = max(self.state.now_ms, record.log_ms)
        if record.topic == POLICY_EVENTS.name:
            self._policy(record)
            return ()
        raised = list(self._grades(_lines(record)))
        return [
            Output(POLICY_EVENTS.name, self.lineage, msgspec.json.encode(alarm), {"kind": "policy"}) for alarm in raised
        ]

    def deadline_ms(self) -> int | None:
        """It has no timers."""
        return None

    def snapshot(self) -> bytes:
        """The whole state in MessagePack."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by a snapshot's."""
        self.state = msgspec.msgpack.decode(snapshot, type=AlarmState)

    def _policy(self, record: Record) -> None:
        for event in policy_events(record):
            if event is None or event.lineage != self.lineage:
                continue
            if isinstance(event, PolicyPromoted | PolicyRolledBack):
                serving = self.state.champions[-1] if self.state.champions else None
                if event.expected_champion == serving:
                    self.state.champions.append(event.version)
            elif isinstance(event, AlarmCleared):
                self._cleared(event.alarm_id)

    def _cleared(self, alarm_id: str) -> None:
        measure, version = self.state.raised.pop(alarm_id, ("", ""))
        book, track = self.state.books.books.get(version), self.state.fooled.get(version)
        for watch in (
            track.watch if track and measure == FOOLED.name else None,
            self.state.disagrees.watch if measure == DISAGREES.name else None,
            book.watches.get(measure) if book else None,
        ):
            if watch is not None:
                watch.again()

    def _grades(self, lines: Iterable[GradeGiven | GradingFinished | Tick]) -> Iterator[AlarmRaised]:
        given: dict[str, Grade] = {}
        until_ms = self.state.now_ms - self._hold_ms
        for line in lines:
            if isinstance(line, Tick):
                until_ms = self.state.now_ms if CLOSE_OPEN in line.flags else until_ms
            elif isinstance(line, GradingFinished):
                self._run(line, given)
                given = {}
            elif is_feedback(line.grader):
                if self._compares and line.grader in self._wanted:
                    self.state.audits.feedback(line.trajectory_id, line.grader, line.grade)
            elif line.grader in self._wanted and _counts(given.get(line.grader)):
                given[line.grader] = line.grade
        for held in self.state.queue.due(until_ms):
            yield from self._look(held)
        for audited in self.state.audits.ready(self.rules, self.state.now_ms):
            yield from self._audited(audited)

    def _run(self, finished: GradingFinished, given: dict[str, Grade]) -> None:
        """Put a run that was graded for the first time into the queue."""
        facts = finished.facts
        if finished.trajectory_id in self.state.seen or not self._mine(facts.lineage):
            return
        self.state.seen[finished.trajectory_id] = None
        if len(self.state.seen) > KEPT_SEEN:
            del self.state.seen[next(iter(self.state.seen))]
        asked = [given[name] for name in self._asked if name in given]
        sample = sample_of(
            finished.trajectory_id,
            facts,
            ungraded=any(isinstance(grade, Failed | Censored) for grade in asked),
            timed_out=any(isinstance(grade, Failed) and grade.kind == "timeout" for grade in asked),
        )
        version = "" if facts.policy_version is None else str(facts.policy_version)
        comparable = self._compares and all(isinstance(grade, Scored) for grade in asked)
        grades = {name: bare(grade) for name, grade in given.items()} if comparable else None
        self.state.queue.add(facts.habits.began_ms, Held(version, sample, grades))

    def _look(self, held: Held) -> Iterator[AlarmRaised]:
        """A run's turn has come."""
        for measure, watch in self.state.books.take(held.version, held.sample, self._before, self.settings):
            yield self._alarm(measure, watch, held.version)
        if held.grades is not None:
            self.state.audits.add(
                Audit(
                    trajectory_id=held.sample.trajectory_id,
                    task=held.sample.task,
                    version=held.version,
                    known_ms=self.state.now_ms,
                    grades=held.grades,
                )
            )

    def _mine(self, lineage: str) -> bool:
        return not self.lineages or not lineage or lineage in self.lineages

    def _before(self, version: str) -> str:
        """The champion that a version came after: the one before it, or the last; itself where none did."""
        if not version:
            return version
        served = [str(champion) for champion in self.state.champions]
        at = served.index(version) if version in served else len(served)
        return served[at - 1] if at else version

    def _audited(self, audited: Audited) -> Iterator[AlarmRaised]:
        threshold = 1 / self.settings.false_alarm
        track = self.state.fooled.get(audited.version)
        if track is None:
            watch = Watch(bet=Bet(expected=self.settings.fooled_share), reference=f"the gold grader {self.rules.gold}")
            track = self.state.fooled[audited.version] = Track(watch=watch)
        for measure, kept, enough in ((FOOLED, track, threshold), (DISAGREES, self.state.disagrees, 10 * threshold)):
            attempts = kept.open.add(audited.sample)
            if attempts is None:
                continue
            if kept.watch is None:
                self._agreement(kept, attempts)
            elif kept.watch.take(attempts, partial(_hit, measure.name), enough):
                yield self._alarm(measure, kept.watch, audited.version)

    def _agreement(self, track: Track, attempts: Attempts) -> None:
        """Count the first audits, until there are enough to compare with."""
        hits, tasks = track.counted[0] + share(attempts, partial(_hit, DISAGREES.name)), track.counted[1] + 1
        track.counted = hits, tasks
        if tasks >= self.settings.reference_tasks:
            bet = Bet(expected=most(hits, tasks, self.settings.slack), restarts=True)
            track.watch = Watch(bet=bet, reference=f"the first {tasks} tasks audited")

    def _alarm(self, measure: Measure, watch: Watch, version: str) -> AlarmRaised:
        identity = digest("alarm", self.lineage, measure.name, version, *watch.ids)
        self.state.raised[identity] = (measure.name, version)
        told = watch.hits / watch.runs
        whose = f"of version {version}" if version else "of the policy"
        runs = "audited runs" if measure in (FOOLED, DISAGREES) else "runs"
        return AlarmRaised(
            id=identity,
            lineage=self.lineage,
            alarm=measure.alarm,
            measure=measure.name,
            graders=self.graders,
            version=int(version) if version else None,
            reference=watch.reference,
            runs=watch.runs,
            hits=watch.hits,
            share=round(told, 6),
            expected=round(watch.bet.expected, 6),
            evidence=round(watch.bet.evidence, 3),
            reason=(
                f"{watch.hits} of {watch.runs} {runs} {whose} ({told:.1%}) {measure.told}; "
                f"against {watch.reference} at most {watch.bet.expected:.1%} is expected"
            ),
            trajectory_ids=tuple(watch.ids),
            stops=measure.alarm in self.settings.stops,
        )


def _hit(name: str, run: Sample) -> bool:
    return name in run.hits


def _counts(before: Grade | None) -> bool:
    """Whether a later attempt of a grader counts: the first that did not fail does."""
    return before is None or isinstance(before, Failed)


def _lines(record: Record) -> list[GradeGiven | GradingFinished | Tick]:
    try:
        return _LINES.decode_lines(record.value or b"")
    except _UNUSABLE:
        return list(_each(record.value or b""))


def _each(value: bytes) -> Iterator[GradeGiven | GradingFinished | Tick]:
    for line in filled(value):
        try:
            yield _LINES.decode(line)
        except _UNUSABLE:
            continue
