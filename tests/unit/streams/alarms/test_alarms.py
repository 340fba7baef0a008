"""The alarm stage: what raises an alarm, what does not, and that folding again gives the same."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

import millstream as ms
from millstream.events import CLOSE_OPEN, NO_RUN, EventId, Tick
from millstream.grade import GradeGiven, abstain, score
from millstream.ports import Processor
from millstream.settings import AlarmSettings, RewardSettings
from millstream.streams.alarms import AlarmStage
from millstream.trajectory import Evidence

WORDS = ("some", "words", "that", "a", "policy", "says", "of", "its", "work")


def paid(_):
    return score(1.0)


def by_answer(t):
    return score(float(t.final_answer == "done"))


def feedback(run, value, name="gold", ms=0):
    """A word from outside about a run."""
    grader = f"feedback.{name}"
    given = GradeGiven(id=f"{run}-{value}-{ms}", trajectory_id=run, revision=0, grader=grader, epoch="feedback@1",
                       grade=score(value))  # fmt: skip
    return msgspec.json.encode(given)


def runs_of(open_tasks):
    return [run for runs in open_tasks.tasks.values() for run in runs]


def audited(mill):
    """The audits of the open tasks, and what each of them showed."""
    (track,) = mill.alarms.state.fooled.values()
    return {run.trajectory_id: run.hits for run in runs_of(track.open)}


def test_the_stage_is_a_processor():
    """Pure, like the others."""
    assert isinstance(AlarmStage(AlarmSettings(), RewardSettings(), lineage="policy"), Processor)


def test_a_reward_that_pays_what_gold_fails_is_told(mill, make_run):
    """Three runs in ten are paid and fail gold: an alarm about the hack, with those runs and the e-value."""
    mill = mill(reward=paid, gold=by_answer)
    for n in range(100):
        mill.run(make_run(f"r{n}", answer="nothing" if n % 10 < 3 else "done"))
    alarm = mill.raised[0]
    assert (alarm.alarm, alarm.measure, alarm.graders, alarm.version) == ("hack", "fooled", ("reward",), 1)
    assert alarm.evidence >= 100
    assert all(int(run[1:]) % 10 < 3 for run in alarm.trajectory_ids)
    assert alarm.hits == len(alarm.trajectory_ids)
    assert [a.measure for a in mill.raised].count("fooled") == 1


def test_what_gold_fails_and_the_reward_fails_too_is_no_hack(mill, make_run):
    """However bad the policy: the reward tells the truth about it."""
    mill = mill(reward=by_answer, gold=by_answer)
    for n in range(300):
        mill.run(make_run(f"r{n}", answer="nothing" if n % 10 < 8 else "done"))
    assert mill.raised == []


@pytest.mark.parametrize(("given", "hacked"), [(2.0, True), (0.5, True), (0.2, False), (-1.5, False)])
def test_what_is_paid_follows_from_the_rewards_range(mill, make_run, given, hacked):
    """In [-1.5, 2] a reward of 0.2 pays nothing and one of 0.5 does; neither is clipped to bet on it."""
    raw = ms.grader(name="reward", low=-1.5, high=2.0)(lambda _: score(given))
    made = mill(reward=raw, gold=lambda _: score(0.0), settings={"span": (-1.5, 2.0)})
    for n in range(150):
        made.run(make_run(f"r{n}"))
    assert ("hack" in {alarm.alarm for alarm in made.raised}) is hacked
    assert {entry.reward for entry in made.buffering.book.ledger.entries.values()} <= {given}


def test_runs_without_gold_say_nothing(mill, make_run):
    """An abstaining gold is no gold: nothing is counted for or against."""
    mill = mill(reward=paid, gold=lambda _: abstain("not looked at"))
    for n in range(100):
        mill.run(make_run(f"r{n}", answer="nothing"))
    assert mill.raised == []
    assert mill.alarms.state.fooled == {}


def test_bad_news_that_comes_first_raises_no_alarm(mill, make_run):
    """Gold from outside: complaints come at once, praise later. In order of arrival each of the first forty
    would be a failure; in order of decision two in a hundred are.
    """
    settings = {"gold": "feedback.gold", "gold_wait_s": 3600}
    mill = mill(settings=settings, reward=paid)
    bad = {f"r{n}" for n in range(10, 1000, 50)}
    for n in range(1000):
        mill.run(make_run(f"r{n}"))
        if f"r{n}" in bad:
            mill.graded(feedback(f"r{n}", 0.0))
    assert mill.alarms.state.fooled == {}, "the first run still waits for its word"
    for n in range(1000):
        if f"r{n}" not in bad:
            mill.graded(feedback(f"r{n}", 1.0))
    assert mill.raised == []
    (track,) = mill.alarms.state.fooled.values()
    assert (track.watch.runs, track.watch.hits) == (992, 20)


def test_a_run_waits_for_its_gold_only_so_long(mill, make_run):
    """After `gold_wait_s` of log time it is passed over, and what comes later is not counted."""
    mill = mill(settings={"gold": "feedback.gold", "gold_wait_s": 1}, reward=paid)
    mill.run(make_run("r0"))
    mill.run(make_run("r1"))
    mill.graded(feedback("r1", 0.0))
    assert mill.alarms.state.fooled == {}
    mill.ms += 2000
    mill.run(make_run("r2"))
    assert audited(mill) == {"r1": ("fooled", "disagrees")}
    mill.graded(feedback("r0", 0.0))
    assert audited(mill) == {"r1": ("fooled", "disagrees")}


def test_gold_may_come_before_the_run(mill, make_run):
    """Feedback has no lateness limit, and no earliness limit either."""
    mill = mill(settings={"gold": "feedback.gold"}, reward=paid)
    mill.graded(feedback("r0", 0.0))
    mill.run(make_run("r0"))
    assert audited(mill) == {"r0": ("fooled", "disagrees")}


def test_agreement_that_drifts_is_told(mill, make_run):
    """A judge that was right nine times in ten and then seven in ten: the chart says so, whenever it begins."""
    settings = {"fooled_share": 0.9, "reference_tasks": 100}
    random = Random(3)
    mill = mill(settings=settings, reward=by_answer, gold=lambda t: score(float("g" not in t.id)))

    def play(n, wrong):
        differs = random.random() < wrong
        mill.run(make_run(f"r{n}{'g' if differs else ''}", answer="done"))

    for n in range(600):
        play(n, 0.05)
    assert mill.raised == []
    for n in range(600, 800):
        play(n, 0.35)
    assert [alarm.alarm for alarm in mill.raised] == ["disagreement"]
    assert mill.raised[0].reference == "the first 100 tasks audited"


def test_a_run_into_a_limit_is_a_failure_and_is_watched(mill, make_run):
    """A policy that drives hard runs into the limit neither escapes its grade nor the eye."""
    mill = mill(reward=by_answer)

    def play(version, n, **unlucky):
        made = unlucky if n % 2 else {"answer": "done"}
        mill.run(make_run(f"{version}-{n}", version=version, task=f"{version}-{n // 2}", **made))

    for n in range(220):
        play(1, n, answer="failed")
    mill.serve(2, 1)
    for n in range(100):
        play(2, n, answer="still at it", end="limit")
    assert [(a.measure, a.version) for a in mill.raised if a.alarm == "avoidance"] == [("limit", 2)]
    entries = mill.buffering.book.ledger.entries.values()
    assert {e.reward for e in entries if e.policy_version == 2} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("measure", "changed"),
    [
        ("longer", {"answer": "done " + "and then some more words about it " * 30}),
        ("more_repetition", {"answer": "done and done again " * 20}),
        ("more_calls", {"calls": [("read", {"n": n}) for n in range(9)]}),
        ("fewer_calls", {"calls": []}),
    ],
)
def test_drift_of_length_repetition_and_calls_is_told(mill, make_run, measure, changed):
    """Against the champion before it, with the figure that drifted."""
    mill, random = mill(reward=paid), Random(5)

    def play(version, n, **changed):
        words = " ".join(random.choices(WORDS, k=random.randint(4, 30)))
        calls = [("read", {"n": k}) for k in range(random.randint(2, 5))]
        mill.run(make_run(f"{version}-{n}", version=version, **{"answer": words, "calls": calls, **changed}))

    for n in range(250):
        play(1, n)
    mill.serve(2, 1)
    for n in range(100):
        play(2, n, **changed)
    told = {alarm.measure: alarm for alarm in mill.raised}
    assert measure in told
    assert (told[measure].alarm, told[measure].version) == ("drift", 2)


def test_a_policy_of_unknown_version_is_compared_with_its_own_past(mill, make_run):
    """An agent that nobody here trains: its first runs are the reference."""
    mill = mill(reward=by_answer)
    for n in range(200):
        mill.run(make_run(f"a{n}", version=None))
    for n in range(60):
        mill.run(make_run(f"b{n}", version=None, answer="Shall I?"))
    alarm = next(a for a in mill.raised if a.measure == "asked")
    assert (alarm.version, alarm.reference) == (None, "its own first runs")


def test_runs_of_another_lineage_and_second_gradings_are_not_counted(make_run):
    """Each run once, and only one's own."""
    from millstream.rollout import GradingFinished, Position, RolloutFacts

    reward, mine = RewardSettings(formula="reward"), frozenset({"mine"})
    stage = AlarmStage(AlarmSettings(hold_s=0), reward, lineage="mine", lineages=mine)

    def graded(run, lineage):
        finished = GradingFinished(trajectory_id=run, revision=1, content_hash="h", position=Position("t", 0, 0),
                                   facts=RolloutFacts(lineage=lineage, policy_version=1))  # fmt: skip
        from millstream.ports import Record

        stage.feed(Record("grades", 0, 0, 1, "k", msgspec.json.encode(finished)))

    for run, lineage in (("a", "mine"), ("a", "mine"), ("b", "theirs"), ("c", "")):
        graded(run, lineage)
    assert sorted(run.trajectory_id for run in runs_of(stage.state.books.books["1"].open)) == ["a", "c"]


def test_folding_again_from_a_snapshot_gives_the_same(mill, make_run):
    """State goes through its bytes at any point without changing what follows; what can't be read is passed by."""
    records, outputs = [], []
    mill = mill(reward=paid, gold=by_answer)
    feed = mill.alarms.feed

    def recording(record):
        records.append(record)
        outputs.append(feed(record))
        return outputs[-1]

    mill.alarms.feed = recording
    for n in range(60):
        mill.run(make_run(f"r{n}", answer="nothing" if n % 3 else "done"))
    mill.graded(b'{"kind": "GradeGiven"\n\xff\xfe')
    again = AlarmStage(mill.alarms.settings, RewardSettings(formula="reward"), lineage="policy")
    again.state.champions = [1]
    for record, expected in zip(records, outputs, strict=True):
        restored = AlarmStage(mill.alarms.settings, RewardSettings(formula="reward"), lineage="policy")
        restored.restore(again.snapshot())
        assert restored.snapshot() == again.snapshot()
        again = restored
        assert again.feed(record) == expected
    assert sum(map(len, outputs)) >= 1


def test_the_short_runs_of_a_burst_raise_no_alarm(mill, make_run):
    """A hundred runs begin together and end as they are long: looked at in the order of their beginning, the
    short ones that come first are no drift.
    """

    def play(hold_s):
        made, random = mill(settings={"hold_s": hold_s}, reward=paid), Random(2)
        for burst in range(8):
            began = made.ms
            lengths = {n: random.randint(1, 100) for n in range(100)}
            for n in sorted(lengths, key=lengths.get):
                made.ms += 10
                run = make_run(f"{burst}-{n:03}", answer=" ".join(random.choices(WORDS, k=lengths[n])))
                made.run(msgspec.structs.replace(run, evidence=Evidence(first_log_ms=began)))
            made.ms += 5000
        return [alarm.measure for alarm in made.raised]

    assert "shorter" in play(0), "in the order in which they end"
    assert play(2) == []


def test_a_hard_task_that_is_tried_again_and_again_raises_no_alarm(mill, make_run):
    """Sixteen attempts at one task that all end in a question are one task, not sixteen."""
    mill = mill(reward=paid)
    for n in range(220):
        mill.run(make_run(f"1-{n}", answer="Shall I?" if n % 40 == 0 else "done"))
    mill.serve(2, 1)
    for n in range(400):
        mill.run(make_run(f"2-{n}", version=2, task=f"t{n // 16}", answer="Shall I?" if n // 16 == 3 else "done"))
    assert "asked" not in {alarm.measure for alarm in mill.raised}


def test_what_is_held_is_looked_at_when_nothing_more_is_waited_for(mill, make_run):
    """A closing tick in `grades` lets every held run go, however long the hold."""
    mill = mill(settings={"hold_s": 3600}, reward=paid, gold=by_answer)
    for n in range(60):
        mill.run(make_run(f"r{n}", answer="nothing"))
    assert mill.raised == []
    tick = Tick(id=EventId("t"), trajectory_id=NO_RUN, flags=(CLOSE_OPEN,))
    mill.graded(msgspec.json.encode(tick))
    assert [alarm.measure for alarm in mill.raised][:1] == ["fooled"]


def test_another_reward_may_be_trained_on(mill, make_run):
    """An alarm stops what is made of the graders that it is about, and nothing else."""
    mill = mill(reward=paid, gold=by_answer)
    for n in range(60):
        mill.run(make_run(f"r{n}", answer="nothing"))
    book = mill.trigger.state.policies.graders
    assert book.stopping("policy", {"reward"}) is not None
    assert book.stopping("policy", {"another"}) is None
    assert book.stopping("other", {"reward"}) is None


def test_state_holds_no_words_and_nothing_where_there_is_nothing_to_compare(mill, make_run):
    """Long reasons stay in the log; a reward that is its own gold is not audited at all."""
    settings = {"gold": "feedback.gold", "gold_wait_s": 3600}
    wordy = mill(settings=settings, reward=lambda _: score(1.0, reason="because " * 1000))
    alone = mill("feedback.gold", settings=settings)
    for made in (wordy, alone):
        for n in range(20):
            made.run(make_run(f"r{n}"))
        made.graded(feedback("r3", 1.0))
    assert len(wordy.alarms.state.audits.waiting) == 20
    assert len(wordy.alarms.snapshot()) < 20_000
    assert (alone.alarms.state.audits.waiting, alone.alarms.state.audits.early) == ({}, {})
