"""History on a Kafka cluster read again by a corrected mapping, its state in a file beside: as on the embedded log."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from msgspec.structs import replace
from spans import line, span

from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_store import SqliteStore
from millstream.codec import encode_lines
from millstream.dialects import vercel
from millstream.errors import Conflict
from millstream.events import CLOSE_OPEN, Tick
from millstream.ledger import read_all
from millstream.partition import partition_of
from millstream.ports import Message
from millstream.settings import Assembly
from millstream.streams.assembled import Downstream
from millstream.streams.assembly import Assembler
from millstream.streams.remapping import Reading, put_out
from millstream.streams.runner import StageRunner
from millstream.trajectory import Trajectory

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]
TRACES = [f"{number:032x}" for number in range(1, 7)]
WRONG = TRACES[::2]
"""The runs of the dialect that is read wrongly at first."""


@pytest.fixture
def store(log, tmp_path):
    """The state of the stage, in a file."""
    file = SqliteFile(tmp_path / "state.db")
    yield SqliteStore(log, file)
    file.close()


def tell(log, trace):
    """The spans of a run, in the record of their partition."""
    prompt = '[{"role": "user", "content": "q"}]'
    said = {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": prompt, "ai.response.text": "a"}
    if trace not in WRONG:
        said = {"openinference.span.kind": "LLM", "input.value": "q", "output.value": "a"}
    told = [span(1, trace=trace), span(2, 1, attributes=said | {"ai.settings.topP": 0.5}, trace=trace)]
    value = b"\n".join(map(line, told))
    log.append("telemetry", [Message(trace, value, {"dialect": "otlp/spans"})], partition_of(trace, 2))


def workers(log, store, epoch):
    """One for each partition."""
    return [StageRunner(Assembler(Assembly(), mapping_epoch=epoch), log, store, partition) for partition in range(2)]


def work(log, runners, *, close=True):
    """Assemble what is there, sealing all of it."""
    tick = encode_lines([Tick(id="t", trajectory_id="-", flags=(CLOSE_OPEN,))])
    for runner in runners:
        if close:
            log.append("telemetry", [Message("", tick, {})], runner.partition)
        while runner.run_once():
            pass
        runner.close()


def read_again(log, store, epoch):
    """What `millstream replay` does; the runs that it revised."""
    changed = []
    for live in workers(log, store, epoch):
        live.start()
        cut = live.positions[f"telemetry:{live.partition}"]
        known = Downstream.read(log)
        fresh = Assembler(Assembly(), mapping_epoch=epoch)
        with contextlib.closing(Reading(log, fresh, live.partition, cut, known=known)) as found:
            found.fold(lambda _: None)
            put_out(found, live)
            changed += found.changes
    return changed


def revisions(log):
    """(revision, top_p) of each trajectory, in order."""
    found: dict[str, list[tuple[int, float | None]]] = {}
    for partition in range(log.partitions("trajectories")):
        for record in read_all(log, "trajectories", partition):
            one = msgspec.json.decode(record.value, type=Trajectory)
            found.setdefault(one.id, []).append((one.revision, one.responses[0].top_p))
    return found


def test_just_the_changed_trajectories_are_revised(log, store, monkeypatch):
    """In both partitions, each once; a second replay and workers that go on add nothing, a late span counts on."""
    with monkeypatch.context() as before:
        right = vercel.told
        before.setattr(vercel, "told", lambda one: replace(right(one), top_p=None))
        for trace in TRACES:
            tell(log, trace)
        work(log, workers(log, store, 1))
        assert revisions(log) == {trace: [(1, None)] for trace in TRACES}
    assert sorted(read_again(log, store, 2)) == WRONG
    assert revisions(log) == {trace: [(1, None), (2, 0.5)] if trace in WRONG else [(1, None)] for trace in TRACES}
    assert read_again(log, store, 2) == []
    work(log, workers(log, store, 2))
    for trace in TRACES:
        tell(log, trace)
    work(log, workers(log, store, 2))
    assert {len(found) for found in revisions(log).values()} == {1, 2}
    assert store.waiting() == {}


def test_a_worker_that_takes_the_partition_meanwhile_wins(log, store):
    """Its fence is newer: the replay writes nothing and says so; the worker goes on."""
    for trace in TRACES:
        tell(log, trace)
    work(log, workers(log, store, 1))
    live = workers(log, store, 2)[0]
    live.start()
    cut = live.positions["telemetry:0"]
    fresh = Assembler(Assembly(), mapping_epoch=2)
    with contextlib.closing(Reading(log, fresh, 0, cut, known=Downstream())) as found:
        found.fold(lambda _: None)
        assert found.changes
        work(log, workers(log, store, 1), close=False)
        taken = workers(log, store, 1)[0]
        taken.start()
        with pytest.raises(Conflict):
            put_out(found, live)
    assert {len(found) for found in revisions(log).values()} == {1}
