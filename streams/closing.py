"""Closing what is open: ticks after which stages wait for nothing more (`millstream up --close-open`).

Like every timer it goes through the log, so a replay closes at the same place.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.codec import encode
from millstream.events import CLOSE_OPEN, NO_RUN, EventId, Tick, new_id
from millstream.ports import Log, Message, Processor
from millstream.streams.assembly import DIALECT
from millstream.topics import GRADES, TELEMETRY


def close_open(log: Log, processors: Iterable[Processor], closed: set[str]) -> bool:
    """Append a closing tick for the first processor with a pending timer that is not in ``closed``, and
    put it there; False: none is left.
    """
    for processor in processors:
        if processor.deadline_ms() is None or processor.name in closed:
            continue
        closed.add(processor.name)
        topic = TELEMETRY.name if TELEMETRY.name in processor.inputs else GRADES.name
        tick = Tick(id=EventId(new_id()), trajectory_id=NO_RUN, flags=(CLOSE_OPEN,))
        message = Message("", encode(tick), {"kind": "tick", "dialect": DIALECT})
        for partition in range(log.partitions(topic)):
            log.append(topic, [message], partition)
        return True
    return False
