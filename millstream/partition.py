"""Which partition a key belongs to: Kafka's own rule, so that every client agrees."""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, as in Kafka's ``org.apache.kafka.common.utils.Utils.murmur2`` (unsigned)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_of(key: str, partitions: int) -> int:
    """The partition of a key among ``partitions``: murmur2 of its UTF-8, made positive, modulo."""
    if partitions == 1:
        return 0
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def slot(topic: str, partition: int) -> str:
    """The name of one partition of a topic in positions: ``topic:partition``."""
    return f"{topic}:{partition}"


def unslot(name: str) -> tuple[str, int]:
    """The topic and the partition of a `slot`."""
    topic, _, partition = name.rpartition(":")
    return topic, int(partition)
