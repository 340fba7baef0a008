"""What chaos is measured with: the stream has all it should; the verdict sees what is lost, doubled or invented."""

from __future__ import annotations

import random
from collections import Counter

import chaos_faults
import chaos_stream
import chaos_verdict
import msgspec
import pytest

from millstream.bootstrap import Runtime
from millstream.loading import load
from millstream.ports import Message
from millstream.repair import MAX_EVENT_BYTES

SHAPE = chaos_stream.Shape(
    runs=40, events_a_run=8, repeated=0.05, displaced=0.1, poison=0.02, oversize=1, unfinished=0.1
)


@pytest.fixture(scope="module")
def told():
    return list(chaos_stream.messages(chaos_stream.lines(SHAPE, 7), 4, 10))


def test_the_stream_has_everything_that_goes_wrong():
    """Repetitions, lines that are no events, one too large, runs without an end; the same seed gives the same."""
    lines = chaos_stream.lines(SHAPE, 7)
    assert lines == chaos_stream.lines(SHAPE, 7) != chaos_stream.lines(SHAPE, 8)
    counts = Counter(line.value for line in lines)
    assert any(count == 2 for count in counts.values())
    assert sum(len(line.value) > MAX_EVENT_BYTES for line in lines) == 1
    ended = {line.run for line in lines if b'"kind":"TrajectoryEnded"' in line.value}
    assert 0 < 40 - len(ended) < 20
    broken = 0
    for line in lines:
        try:
            msgspec.json.decode(line.value)
        except msgspec.DecodeError:
            broken += 1
    assert broken > 0


def test_a_record_holds_lines_of_one_partition(told):
    """As the SDK sends them."""
    partitions = {}
    for partition, message in told:
        for line in message.value.split(b"\n"):
            found = partitions.setdefault(line[:200], partition)
            assert found == partition


def test_an_undisturbed_run_is_the_same_twice_and_in_any_order(told, tmp_path):
    """Records in another order, and some of them twice, come to the same: that is what chaos is held against."""
    chance = random.Random(1)
    other = told[:]
    chance.shuffle(other)
    once = chaos_verdict.undisturbed(tmp_path / "a", told)
    again = chaos_verdict.undisturbed(tmp_path / "b", [*other, *other[:10]])
    assert once.trajectories
    assert once.decisions
    assert once[:3] == again[:3]
    assert set(once.dead_letters) == set(again.dead_letters)


def judged(folder, told, wanted):
    """A run of ``told`` through the embedded log, held against what was wanted."""
    chaos_verdict.undisturbed(folder, told)
    with Runtime(load(folder / "millstream.toml", environ={})) as runtime:
        return chaos_verdict.judge(runtime, wanted)


def test_the_verdict_sees_a_loss_and_an_invention(told, tmp_path):
    """A whole record that is missing is a loss; one more run is an invention; the run itself is good."""
    wanted = chaos_verdict.undisturbed(tmp_path / "wanted", told)
    good = judged(tmp_path / "good", told, wanted)
    assert good.good, good.examples
    lost = judged(tmp_path / "lost", told[:20], wanted)
    assert lost.lost > 0
    assert not lost.good
    more = chaos_stream.lines(chaos_stream.Shape(runs=4, events_a_run=8, oversize=0), 99)
    invented = judged(tmp_path / "more", [*told, *chaos_stream.messages(more, 4, 10)], wanted)
    assert invented.invented > 0
    assert not invented.good


def test_the_verdict_sees_what_is_told_twice(told, tmp_path):
    """A trajectory that another writer tells again, under a number of its own, is doubled."""
    wanted = chaos_verdict.undisturbed(tmp_path / "wanted", told)
    with Runtime(load(tmp_path / "wanted" / "millstream.toml", environ={})) as runtime:
        record = runtime.log.read("trajectories", 0, 0)[0]
        runtime.log.append("trajectories", [Message(record.key, record.value, {"kind": "trajectory"})])
        verdict = chaos_verdict.judge(runtime, wanted)
    assert verdict.doubled > 0
    assert not verdict.good


def test_a_plan_has_every_kind_of_fault():
    """Thirty faults have each kind that the machine can do at least once, in an order that the seed fixes."""
    plan = chaos_faults.plan(30, random.Random(1))
    assert plan == chaos_faults.plan(30, random.Random(1)) != chaos_faults.plan(30, random.Random(2))
    assert len(plan) == 30
    assert set(plan) == set(chaos_faults.known())
