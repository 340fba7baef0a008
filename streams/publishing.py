"""Publishing: the outputs of a commit as batches of the log's topics, in the order of their numbers.

Every batch is of one partition, so a reader of it sees the numbers of a source rise, whatever is
repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.partition import partition_of
from millstream.ports import Log, Message, Output

Place = tuple[str, int]


def batches(log: Log, outputs: Iterable[Output], max_bytes: int) -> Iterator[tuple[Place, list[Message]]]:
    """Messages by (topic, partition), each list of ``max_bytes`` or, once, a little more."""
    counts: dict[str, int] = {}
    places: dict[Place, list[Message]] = {}
    sizes: dict[Place, int] = {}
    for out in outputs:
        if out.topic not in counts:
            counts[out.topic] = log.partitions(out.topic)
        place = out.topic, partition_of(out.key, counts[out.topic])
        places.setdefault(place, []).append(Message(out.key, out.value, out.headers))
        sizes[place] = sizes.get(place, 0) + len(out.value)
        if sizes[place] >= max_bytes:
            yield place, places.pop(place)
            sizes[place] = 0
    yield from places.items()
