"""The producer of a chaos run, a process that can be killed in mid-batch: sends what is left of a stream, at a pace.

`chaos_producer.py SETTINGS STREAM PROGRESS RATE`: how far it is stands in PROGRESS, written after each append, so a
batch that was under way when it died is sent again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import chaos_stream

from millstream.bootstrap import Runtime
from millstream.errors import Stuck, Unavailable
from millstream.loading import load
from millstream.topics import TELEMETRY

BATCH = 8
"""Records an append."""


def main(settings: str, stream: str, progress: str, rate: str) -> None:
    """Send to the end; waits while the log is away."""
    told, done = chaos_stream.read(Path(stream)), Path(progress)
    at = int(done.read_text()) if done.exists() else 0
    began, sent = time.monotonic(), 0
    with Runtime(load(Path(settings), environ={})) as runtime:
        while at < len(told):
            batch = told[at : at + BATCH]
            patiently(runtime, batch)
            at += len(batch)
            sent += sum((message.value or b"").count(b"\n") + 1 for _, message in batch)
            partly = done.with_suffix(".part")
            partly.write_text(str(at))
            partly.rename(done)
            time.sleep(max(0.0, sent / float(rate) - (time.monotonic() - began)))


def patiently(runtime: Runtime, batch: list) -> None:
    """Append a batch by partition, again and again until it is in."""
    for partition in sorted({partition for partition, _ in batch}):
        some = [message for place, message in batch if place == partition]
        while True:
            try:
                runtime.log.append(TELEMETRY.name, some, partition)
                break
            except Stuck:
                raise
            except Unavailable:
                time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
