"""History read again by a corrected mapping: just what it tells otherwise is revised, and the books balance."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from msgspec.structs import replace
from spans import a_run, agent, line, span

from millstream.console import audit_events
from millstream.console.audit import audit
from millstream.dialects import reading, vercel
from millstream.errors import Conflict
from millstream.events import CLOSE_OPEN, Tick
from millstream.grade import GradeGiven
from millstream.ports import Message
from millstream.rollout import GradingFinished
from millstream.streams import remapping
from millstream.streams.assembled import Downstream
from millstream.streams.assembly import Assembler
from millstream.streams.remapping import Reading, put_out, total
from millstream.streams.runner import StageRunner
from millstream.trajectory import Trajectory

GRADE_LINES = msgspec.json.Decoder(GradeGiven | GradingFinished)


def trace(number):
    """The id of a trace."""
    return f"{number:032x}"


def of_vercel(number, answer="1.0", root=True):
    """A run of the Vercel AI SDK: its root, and the call of its model."""
    told = {"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": answer, "ai.settings.topP": 0.5}
    told["ai.prompt.messages"] = '[{"role":"user","content":"How much?"}]'
    call = span(2, 1, attributes=told, trace=trace(number), at=1)
    return [span(1, attributes={"ai.operationId": "ai.generateText"}, trace=trace(number)), call][not root :]


def of_genai(number):
    """A run in the GenAI conventions, which the correction does not touch."""
    return [one | {"traceId": trace(number)} for one in a_run()]


def tell(mill, *told, dialect="otlp/spans"):
    """A record of spans."""
    mill.raw(b"".join(one + b"\n" if isinstance(one, bytes) else line(one) + b"\n" for one in told), dialect=dialect)


def close(mill):
    """Seal all that is open, and run the stages."""
    mill.send(Tick(id=f"tick-{random.random()}", trajectory_id="-", flags=(CLOSE_OPEN,)))
    mill.run()


@pytest.fixture
def correct(monkeypatch):
    """Until it is called the mapping forgets ``topP``; then it is the mapping as it is, under an epoch more."""
    right = vercel.told
    monkeypatch.setattr(vercel, "told", lambda one: replace(right(one), top_p=None))

    def mend():
        monkeypatch.setattr(vercel, "told", right)
        epoch = reading.MAPPING_EPOCH + 1
        for module in (reading, audit_events):
            monkeypatch.setattr(module, "MAPPING_EPOCH", epoch)

    return mend


def fresh(mill):
    """The assembly of a version that has the mapping of now."""
    return Assembler(
        mill.settings.assembly, topic_id=mill.log.topic_id("telemetry"), mapping_epoch=reading.MAPPING_EPOCH
    )


def upgrade(mill):
    """Stop, and go on with the mapping of now."""
    for runner in mill.runners:
        runner.close()
    grading, buffering = mill.runners[1:]
    mill.runners = [StageRunner(fresh(mill), mill.log, mill.store), grading, buffering]


def read_again(mill, *, write=True):
    """What `millstream replay` does, on one partition."""
    live = StageRunner(fresh(mill), mill.log, mill.store)
    live.start()
    cut = live.positions["telemetry:0"]
    with contextlib.closing(Reading(mill.log, fresh(mill), 0, cut, known=Downstream.read(mill.log))) as found:
        found.fold(lambda _: None)
        if write:
            put_out(found, live)
        return total(reading.MAPPING_EPOCH, {0: found})


def trajectories(mill):
    """Every revision, by id, in the order of the log."""
    found: dict[str, list[Trajectory]] = {}
    for record in mill.log.read("trajectories", 0, 0):
        if record.headers.get("kind") == "trajectory":
            one = msgspec.json.decode(record.value, type=Trajectory)
            found.setdefault(one.id, []).append(one)
    return found


def finished(mill):
    """Every grading, in the order of the log."""
    lines = [one for record in mill.log.read("grades", 0, 0) for one in record.value.splitlines()]
    return [one for one in map(GRADE_LINES.decode, lines) if isinstance(one, GradingFinished)]


def books(mill):
    """The books of events; nothing may be unexplained."""
    report = audit(mill.log, mill.store, mill.settings)
    assert report.differences == ()
    return {one.name: one.count for one in report.lines if one.section == "events" and one.name != "tick"}


def history(mill):
    """Runs of two dialects and of the SDK, some of them twice, in other orders, one of them late; and one that is
    still open.
    """
    tell(mill, *of_vercel(1), *of_genai(2), *reversed(of_vercel(3, "0.0")))
    mill.send(*mill.events("sdk", "1.0"))
    mill.feedback(trace(1))
    tell(mill, b"no span")
    close(mill)
    tell(mill, *of_vercel(1), span(9, 1, attributes=of_vercel(3)[1]["attributes"], trace=trace(3)))
    tell(mill, *of_vercel(4, "1.0", root=False))
    mill.run()


def test_just_what_a_correction_tells_otherwise_is_revised(mill, correct):
    """Two runs get a second revision, with the cause and the epoch, graded anew; the others and feedback stay."""
    history(mill)
    before = trajectories(mill)
    assert {len(revisions) for revisions in before.values()} == {1}
    correct()
    upgrade(mill)
    found = read_again(mill)
    assert [change.trajectory_id for change in found.changed] == [trace(1), trace(3)]
    assert (found.unchanged, found.dead_letters, found.feedback, found.kept, found.untold) == (2, 0, 0, 0, 0)
    mill.run()
    after = trajectories(mill)
    for name, revisions in after.items():
        touched = name in (trace(1), trace(3))
        assert [one.revision for one in revisions] == ([1, 2] if touched else [1])
        assert [one.responses[-1].top_p for one in revisions if touched] == [None, 0.5][: len(revisions) * touched]
        assert revisions[-1].evidence.cause == ("replay" if touched else "")
        assert revisions[-1].mapping_epoch == reading.MAPPING_EPOCH - (not touched)
    graded = [(one.trajectory_id, one.revision) for one in finished(mill)]
    assert sorted(graded) == sorted((name, one.revision) for name, revisions in after.items() for one in revisions)
    assert books(mill)["feedback"] == 1


def test_a_second_replay_changes_nothing(mill, correct):
    """What was put out is what the log holds: nothing differs any more, to the record."""
    history(mill)
    correct()
    upgrade(mill)
    read_again(mill)
    mill.run()
    end = mill.log.bounds("trajectories")
    again = read_again(mill)
    assert (again.changed, again.unchanged) == ((), 4)
    assert mill.log.bounds("trajectories") == end


def test_a_dry_run_says_the_same_and_writes_nothing(mill, correct):
    """It names what would change."""
    history(mill)
    correct()
    upgrade(mill)
    ends = {topic: mill.log.bounds(topic) for topic in ("trajectories", "dead-letters", "telemetry")}
    looked = read_again(mill, write=False)
    assert {topic: mill.log.bounds(topic) for topic in ends} == ends
    assert looked == read_again(mill)


def test_without_a_correction_nothing_differs(busy_mill):
    """Every kind of event, late ones and conflicts among them, read again: not one revision."""
    end = busy_mill.log.bounds("trajectories")
    found = read_again(busy_mill)
    assert (found.changed, found.dead_letters, found.feedback) == ((), 0, 0)
    assert busy_mill.log.bounds("trajectories") == end
    busy_mill.run()
    assert books(busy_mill)["in a trajectory"] > 0


def test_open_runs_go_on_with_the_corrected_mapping(mill, correct):
    """What was told before the correction and what is told after it are one run, as the mapping of now says."""
    history(mill)
    correct()
    upgrade(mill)
    read_again(mill)
    upgrade(mill)
    tell(mill, of_vercel(4, "1.0")[0])
    close(mill)
    (run,) = trajectories(mill)[trace(4)]
    assert [turn.top_p for turn in run.responses] == [0.5]
    assert books(mill)["in a trajectory"] > 0


def test_a_run_that_is_amended_after_a_replay_counts_on(mill, correct):
    """A parent that comes late raises the revision that the replay put out: no number is used twice."""
    call = of_vercel(1)[1] | {"parentSpanId": f"{99:016x}"}
    tell(mill, agent(1, trace=trace(1)), call)
    close(mill)
    assert trajectories(mill)[trace(1)][-1].reason == "dangling_link"
    correct()
    upgrade(mill)
    read_again(mill)
    upgrade(mill)
    tell(mill, span(99, 1, name="POST /v1/chat", trace=trace(1)))
    close(mill)
    told = [(one.revision, one.reason, one.responses[-1].top_p) for one in trajectories(mill)[trace(1)]]
    assert told == [(1, "dangling_link", None), (2, "dangling_link", 0.5), (3, "complete", 0.5)]
    assert books(mill)


def test_killed_between_two_steps_it_does_what_is_left(mill, correct, monkeypatch):
    """After the first group was put out the process is gone: the next replay puts out the others, each once; a stage
    that works on in between numbers on as well.
    """
    tell(mill, *(one for number in range(1, 6) for one in of_vercel(number)))
    close(mill)
    correct()
    upgrade(mill)
    monkeypatch.setattr(remapping, "BATCH_BYTES", 1)
    replaced = []

    def two(runner, state, outputs, original=StageRunner.replace):
        if len(replaced) == 2:
            raise KeyboardInterrupt
        replaced.append(outputs)
        original(runner, state, outputs)

    with monkeypatch.context() as killed:
        killed.setattr(StageRunner, "replace", two)
        with pytest.raises(KeyboardInterrupt):
            read_again(mill)
    upgrade(mill)
    mill.run()
    assert sorted(len(revisions) for revisions in trajectories(mill).values()) == [1, 1, 1, 2, 2]
    assert len(read_again(mill).changed) == 3
    upgrade(mill)
    mill.run()
    assert {tuple(one.revision for one in revisions) for revisions in trajectories(mill).values()} == {(1, 2)}
    assert books(mill)


def test_a_worker_that_goes_on_meanwhile_is_a_conflict(mill, correct):
    """Its state is not overwritten; nothing was put out."""
    history(mill)
    correct()
    upgrade(mill)
    live = StageRunner(fresh(mill), mill.log, mill.store)
    live.start()
    cut = live.positions["telemetry:0"]
    with contextlib.closing(Reading(mill.log, fresh(mill), 0, cut, known=Downstream.read(mill.log))) as found:
        found.fold(lambda _: None)
        tell(mill, *of_genai(7))
        mill.run()
        end = mill.log.bounds("trajectories")
        with pytest.raises(Conflict):
            put_out(found, live)
    assert mill.log.bounds("trajectories") == end


def test_lines_that_the_corrected_mapping_can_read(mill, monkeypatch, correct):
    """A span that made a dead letter is in a trajectory now, and the books say so; one that it can't read any more is
    a letter, once.
    """
    right = vercel.told

    def broken(one):
        if one.span_id.endswith("2"):
            raise ValueError("a mapping that breaks")
        return right(one)

    monkeypatch.setattr(vercel, "told", broken)
    tell(mill, *of_vercel(1))
    close(mill)
    assert books(mill)["dead letter"] == 1
    correct()
    upgrade(mill)
    tell(mill, *of_vercel(2))
    close(mill)
    (change,) = read_again(mill).changed
    assert (change.trajectory_id, change.before.events, change.after.events) == (trace(1), 2, 4)
    upgrade(mill)
    mill.run()
    assert "dead letter" not in books(mill)
    correct()
    monkeypatch.setattr(vercel, "told", broken)
    upgrade(mill)
    assert books(mill)["of an older mapping"] > 0
    found = read_again(mill)
    assert (len(found.changed), found.dead_letters) == (2, 1)
    mill.run()
    assert books(mill)["dead letter"] == 2


def test_what_began_before_the_log_does_stays(mill, correct):
    """Telemetry keeps only the end: a run whose spans are gone in part is not read again, one that is whole is."""
    tell(mill, *of_vercel(1))
    mill.clock.advance(5)
    close(mill)
    mill.clock.advance(5)
    tell(mill, *of_vercel(2))
    close(mill)
    mill.clock.advance(5)
    tell(mill, *of_vercel(3))
    close(mill)
    correct()
    upgrade(mill)
    mill.log.trim("telemetry", 0, 1)
    found = read_again(mill)
    assert [change.trajectory_id for change in found.changed] == [trace(2), trace(3)]
    upgrade(mill)
    tell(mill, *of_vercel(1))
    mill.run()
    assert len(trajectories(mill)[trace(1)]) == 1


def test_books_of_an_older_mapping_say_so(mill, correct):
    """Before the replay nothing is lost: what the mapping of now tells otherwise is counted apart."""
    history(mill)
    correct()
    upgrade(mill)
    mill.run()
    found = books(mill)
    assert found["feedback"] == 1
    read_again(mill)
    mill.run()
    assert "of an older mapping" not in books(mill)


def test_messages_that_no_run_has_are_told(mill):
    """A record that is no trajectory is left out of what is known."""
    mill.log.append("trajectories", [Message("x", b"{}", {"kind": "trajectory"}), Message("x", None, {})])
    assert Downstream.read(mill.log).last == {}
