"""The way from the queue to the log: outages, full spools, hanging logs, forks and exits."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections import Counter

import pytest

from millstream.capture import spool as spools
from millstream.capture.client import Client
from millstream.errors import Unavailable
from millstream.events import ModelResponded
from millstream.settings import Capture


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def tell(client, count, text="x"):
    run = client.start_run({"id": "t"})
    for number in range(count):
        run.model(text=f"{text}{number}")
    run.end()
    return run


def test_many_events_go_in_few_records(make, told, log):
    """A burst is appended in batches, not event by event."""
    client = make(flush_ms=50)
    tell(client, 500)
    assert client.flush()
    assert len(told()) == 502
    assert log.appends < 10
    assert client.counters.sent == client.counters.recorded == 502


def test_an_outage_neither_loses_nor_doubles(make, told, log, spool):
    """What was told while the log was away waits on disk and arrives once, in order, when it is back."""
    client = make()
    log.away = True
    tell(client, 20, "during ")
    until(lambda: client.counters.spooled == 22)
    assert told() == []
    assert list(spool.glob("*.ndjson"))
    log.away = False
    tell(client, 3, "after ")
    assert client.flush()
    events = told()
    assert Counter(e.id for e in events).most_common(1)[0][1] == 1
    texts = [e.text for e in events if isinstance(e, ModelResponded)]
    assert sorted(texts) == sorted([f"during {n}" for n in range(20)] + [f"after {n}" for n in range(3)])
    assert [t for t in texts if t.startswith("during")] == [f"during {n}" for n in range(20)]
    assert client.counters.replayed >= 22
    assert not list(spool.glob("*.ndjson"))


def test_another_process_takes_over_what_a_dead_one_left(make, told, log, spool):
    """Events spooled by a client that is gone are sent by the next one."""
    log.away = True
    first = make()
    tell(first, 5)
    until(lambda: first.counters.spooled == 7)
    first.close()
    assert list(spool.glob("*.ndjson"))
    log.away = False
    second = make()
    tell(second, 1)
    assert second.flush()
    assert len(told()) == 7 + 3
    assert not list(spool.glob("*.ndjson"))


def test_a_living_process_keeps_its_spool(make, log, spool):
    """What another client still holds is not taken from it."""
    log.away = True
    first, second = make(), make()
    tell(first, 5)
    until(lambda: first.counters.spooled == 7)
    tell(second, 1)
    until(lambda: second.counters.spooled == 3)
    names = {path.name for path in spool.glob("*.ndjson")}
    assert {name.rsplit("-", 1)[0] for name in names} == {first.producer, second.producer}
    log.away = False
    assert second.flush()
    assert second.counters.replayed == 3


def test_a_full_spool_refuses_and_counts(make, told, log, spool):
    """Over its cap the spool takes no more; what it refused is counted here and on disk."""
    client = make(spool_bytes=3000)
    log.away = True
    tell(client, 50)
    until(lambda: client.counters.spooled + client.counters.lost == 52)
    counters = client.counters
    assert counters.lost > 0
    assert sum(path.stat().st_size for path in spool.glob("*.ndjson")) <= 3000
    assert spools.lost(spool).events == counters.lost
    log.away = False
    assert client.flush()
    assert len(told()) == counters.spooled


def test_without_a_spool_events_wait_in_memory(make, told, log):
    """No folder, no loss: the events are held until the log is back, and the queue refuses beyond its cap."""
    client = make(folder=None, queue_events=40)
    log.away = True
    tell(client, 3)
    until(lambda: client.counters.failures > 0)
    tell(client, 100)
    assert client.counters.refused > 0
    log.away = False
    assert client.flush()
    assert len(told()) == client.counters.recorded
    assert client.counters.recorded + client.counters.refused == 5 + 102


def test_an_unwritable_spool_is_like_none(make, told, log, tmp_path):
    """A spool that can't be opened does not stop the sender."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    client = make(folder=blocked / "spool")
    log.away = True
    tell(client, 3)
    until(lambda: client.counters.failures > 1)
    log.away = False
    assert client.flush()
    assert len(told()) == 5


def test_a_hanging_log_never_blocks_the_agent(make, told, log, spool):
    """While an append hangs, calls return; at the end what hung is on disk."""
    client = make(queue_events=1000)
    log.free.clear()
    began = time.monotonic()
    tell(client, 300)
    assert time.monotonic() - began < 2.0
    assert not client.flush(0.05)
    assert not client.close(0.05)
    assert len(list(spools.waiting(spool))) == 302
    log.free.set()
    after = make()
    tell(after, 1)
    assert after.flush()
    assert len({e.id for e in told()}) == 302 + 3


def test_a_torn_last_line_is_left_out(spool):
    """A crash in the middle of a write costs that line only."""
    one = spools.Spool(spool, "gone", 10_000)
    one.write([b'{"a":1}', b'{"a":2}'])
    path = next(spool.glob("*.ndjson"))
    with path.open("ab") as file:
        file.write(b'{"a":')
    one.close()
    two = spools.Spool(spool, "next", 10_000)
    assert two.read() == [b'{"a":1}', b'{"a":2}']
    two.taken()
    assert two.read() == []
    assert two.torn == 1
    assert two.empty


def test_a_replay_that_fails_is_read_again(spool):
    """Lines count as gone only when the log has taken them."""
    one = spools.Spool(spool, "me", 10_000)
    one.write([b"1", b"2"])
    assert one.read() == one.read() == [b"1", b"2"]
    one.taken()
    one.write([b"3"])
    assert one.read() == [b"3"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_a_producer_of_its_own(make, told):
    """Parent and child go on telling after a fork; nothing is told twice and the numbers do not clash."""
    client = make(flush_ms=200)
    run = client.start_run({"id": "t"})
    run.model(text="before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run.model(text="in the child")
            code = 0 if client.flush() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    run.model(text="in the parent")
    assert client.flush()
    events = told()
    assert sorted(e.text for e in events if isinstance(e, ModelResponded)) == [
        "before",
        "in the child",
        "in the parent",
    ]
    assert len({(e.producer, e.seq) for e in events}) == len(events) == 4
    assert len({e.producer for e in events}) == 2


EXITING = """
import sys
from pathlib import Path
from millstream.adapters.sqlite import open_sqlite
from millstream.capture.client import Client
from millstream.settings import Capture

folder = Path(sys.argv[1])
client = Client(open_sqlite(folder / "log.db", partitions=4).log, Capture(flush_ms=60_000), folder / "spool")
run = client.start_run()
run.message("user", "q")
{how}
"""


@pytest.mark.parametrize(
    "how",
    [
        "",
        "raise SystemExit(0)",
        "import multiprocessing as m; p = m.get_context('fork').Process(target=run.close); p.start(); p.join()",
    ],
    ids=["end of script", "exit", "child of multiprocessing"],
)
def test_leaving_sends_what_is_queued(tmp_path, log, told, how):
    """A process that ends takes nothing with it, its open run's start included."""
    script = textwrap.dedent(EXITING).format(how=how)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kinds = Counter(type(e).__name__ for e in told())
    assert kinds["TrajectoryStarted"] >= 1
    assert kinds["MessageReceived"] == 1
    assert kinds["TrajectoryEnded"] == ("Process" in how)


def test_a_log_that_cannot_be_opened_yet_is_opened_later(log, told, spool):
    """Opening is tried in the background and again; until then events wait on disk."""
    tries = []

    def opened():
        tries.append(1)
        if log.away:
            raise Unavailable("not up yet")
        return log

    log.away = True
    client = Client(opened, Capture(flush_ms=5), spool)
    assert tries == []
    tell(client, 2)
    until(lambda: client.counters.spooled == 4)
    log.away = False
    assert client.flush()
    assert len(told()) == 4
    before = len(tries)
    tell(client, 2)
    assert client.flush()
    assert len(tries) == before
    client.close()
