"""Publishing: the outputs of a commit as batches of the log's topics, in the order of their numbers.

Every batch is of one partition, so a reader of it sees the numbers of a source rise, whatever is
repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.errors import TooLarge
from millstream.partition import partition_of
from millstream.ports import Log, Message, Output
from millstream.streams.dead_letters import unwritable
from millstream.topics import DEAD_LETTERS

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


def append(log: Log, place: Place, messages: list[Message]) -> None:
    """Append a batch; a message that the log will never take becomes a dead letter, the rest goes on.
    Raises `Unavailable`.
    """
    try:
        log.append(place[0], messages, place[1])
    except TooLarge as error:
        if len(messages) > 1:
            middle = len(messages) // 2
            append(log, place, messages[:middle])
            append(log, place, messages[middle:])
        else:
            letter = unwritable(*place, messages[0], str(error))
            partition = partition_of(letter.key, log.partitions(DEAD_LETTERS.name))
            log.append(DEAD_LETTERS.name, [Message(letter.key, letter.value, letter.headers)], partition)
