"""The sessionization of assembly on bytewax: decoded by the same typed decoder, keyed by trajectory,
duplicates dropped, emitted in order of seq when every seq is there. What is emitted is the score of the
trajectory (calls, failures, status), the task on which stream engines were first compared, or with
``same_output`` the bytes of the trajectory with its content hash, which is what assembly puts out. Less
than assembly does in both: no timers, no late events, no dead letters, no snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import bytewax.operators as op
from blake3 import blake3
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from millstream.codec import decode_lines
from millstream.events import ModelResponded, ToolReturned, TrajectoryEnded


class Part(StatelessSourcePartition):
    def __init__(self, records: Iterator[bytes], size: int):
        self.records, self.size = records, size

    def next_batch(self):
        batch = list(islice(self.records, self.size))
        if not batch:
            raise StopIteration
        return batch


class Source(DynamicSource):
    def __init__(self, records: Iterator[bytes], size: int):
        self.part = Part(records, size)

    def build(self, _step_id, _worker_index, _worker_count):
        return self.part


class Counter(DynamicSink, StatelessSinkPartition):
    def __init__(self):
        self.counts = {"events": 0, "trajectories": 0, "duplicates": 0, "score": 0}

    def build(self, _step_id, _worker_index, _worker_count):
        return self

    def write_batch(self, items):
        self.counts["trajectories"] += len(items)
        self.counts["score"] += sum(item for item in items if type(item) is int)


class Session(StatefulBatchLogic):
    def __init__(self, counts, same_output):
        self.counts, self.same_output = counts, same_output
        self.ids, self.held, self.last = set(), {}, -1

    def on_batch(self, values):
        for item in values:
            event = item[0]
            if self.held is None or event.id in self.ids:
                self.counts["duplicates"] += 1
                continue
            self.ids.add(event.id)
            self.held[event.seq] = item
            if type(event) is TrajectoryEnded:
                self.last = event.seq
        if self.held is not None and self.last >= 0 and len(self.held) == self.last + 1:
            whole = [self.held[seq] for seq in sorted(self.held)]
            self.held = None
            return [sealed(whole) if self.same_output else score([event for event, _ in whole])], False
        return [], False

    def snapshot(self):
        return None


def score(events):
    """100 for a run that ended well, less 10 a failed tool and 1 a call."""
    calls = failed = 0
    status = ""
    for event in events:
        if type(event) is ModelResponded:
            calls += len(event.tool_calls)
        elif type(event) is ToolReturned:
            failed += event.error != ""
        elif type(event) is TrajectoryEnded:
            status = event.reason
    return 100 * (status == "done") - 10 * failed - calls


def sealed(items):
    events = b",".join([raw for _, raw in items])
    name = items[0][0].trajectory_id.encode()
    return b'{"id":"%s","events":[%s],"content_hash":"%s"}' % (name, events, blake3(events).hexdigest(16).encode())


def run(records: Iterator[bytes], size: int, *, same_output: bool) -> dict[str, int]:
    """Sessionize the records, ``size`` to a batch; what was counted."""
    sink = Counter()

    def keyed(batch):
        pairs = [(item[0].trajectory_id, item) for value in batch for item in decode_lines(value)]
        sink.counts["events"] += len(pairs)
        return pairs

    flow = Dataflow("sessions")
    stream = op.input("in", flow, Source(records, size))
    stream = op.flat_map_batch("decode", stream, keyed)
    stream = op.stateful_batch("session", stream, lambda _: Session(sink.counts, same_output))
    stream = op.map("value", stream, lambda pair: pair[1])
    op.output("out", stream, sink)
    run_main(flow)
    return sink.counts
