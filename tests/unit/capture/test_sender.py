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


FULL_DISK = """
import resource, sys, time
from pathlib import Path
from millstream.adapters.sqlite import open_sqlite
from millstream.capture.client import Client
from millstream.errors import Unavailable
from millstream.settings import Capture

folder = Path(sys.argv[1])
inner = open_sqlite(folder / "log.db", partitions=4).log
away = [True]

class Log:
    def partitions(self, topic):
        return inner.partitions(topic)

    def append(self, *args):
        if away:
            raise Unavailable("away")
        return inner.append(*args)

client = Client(Log(), Capture(flush_ms=1, queue_events=2000), folder / "spool")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
began = time.monotonic()
with client.start_run({"id": "t"}) as run:
    for number in range(500):
        run.model(text=f"{number} " + "x" * 90)
        if number % 10 == 0:
            time.sleep(0.002)
assert time.monotonic() - began < 10
while client.counters.failures < 20:
    time.sleep(0.005)
    client._sender._outlet.retry_at = 0.0
    client._sender._wake()
counters = client.counters
assert counters.refused == counters.lost == 0, counters
spooled = [line for path in (folder / "spool").glob("*.ndjson") for line in path.read_bytes().splitlines(True)]
assert spooled and all(line.endswith(b"}\\n") for line in spooled), spooled[-1:]
assert len(spooled) == counters.spooled < counters.recorded == 502, counters
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
away.clear()
assert client.flush(20)
"""


def test_a_disk_that_fills_loses_nothing(tmp_path, log, told):
    """The kernel takes half a write and refuses the next: no torn line on disk, the rest waits in memory, the agent
    goes on; when there is room again everything arrives, once.
    """
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    events = told()
    assert len({e.id for e in events}) == len(events) == 502
    texts = [int(e.text.split()[0]) for e in events if isinstance(e, ModelResponded)]
    assert sorted(texts) == list(range(500))


KILLED = """
import sys, time
from pathlib import Path
from millstream.capture.client import Client
from millstream.errors import Unavailable
from millstream.settings import Capture

class Away:
    def partitions(self, topic):
        return 4

    def append(self, *_):
        raise Unavailable("away")

client = Client(Away(), Capture(flush_ms=1), Path(sys.argv[1]) / "spool")
run = client.start_run({"id": "t"})
number = 0
while True:
    run.model(text=str(number))
    number += 1
    if number % 100 == 0:
        while client.counters.spooled < client.counters.recorded:
            time.sleep(0.001)
        print(number, flush=True)
"""


def test_what_a_killed_process_had_on_disk_is_sent_by_the_next(tmp_path, make, told, spool):
    """kill -9 in the middle of writing: all that was on disk arrives, in order; half a line is left out."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with process:
        for _ in range(5):
            durable = int(process.stdout.readline())
        process.kill()
    assert process.returncode == -9
    client = make()
    tell(client, 1)
    assert client.flush()
    killed = [e for e in told() if isinstance(e, ModelResponded) and e.producer != client.producer]
    texts = [int(e.text) for e in sorted(killed, key=lambda e: e.seq)]
    assert texts == list(range(len(texts)))
    assert len(texts) >= durable == 500
    assert not list(spool.glob("*.ndjson"))


def test_recording_takes_the_agent_less_than_a_millisecond(make, log):
    """Processor time of the agent's own thread, the log hanging: 99 of 100 calls far below 1 ms."""
    client = make(queue_events=10_000)
    log.free.clear()
    calls = [{"id": "c", "name": "f", "arguments": {"x": 1}}]
    took = []
    with client.start_run({"id": "t"}) as run:
        for number in range(2000):
            began = time.thread_time_ns()
            run.model(text="some words " * 100, tool_calls=calls, token_ids=list(range(256)), usage={"input_tokens": 3})
            run.tool(call_id="c", output=f"{number} " * 50)
            took.append(time.thread_time_ns() - began)
    assert sorted(took)[int(len(took) * 0.99)] < 1_000_000


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
