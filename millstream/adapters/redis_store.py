"""The `Store` port on Redis or Valkey: for workers on several machines, beside a Kafka log.

Each step of a stage is one Lua script, so positions, journal, marks, snapshot and outbox are written
together or not at all. All keys of a namespace share a hash tag, so a cluster keeps them together. How
durable a commit is, is the server's ``appendfsync``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from millstream.adapters.redis_connection import Connection, check_namespace
from millstream.adapters.redis_store_scripts import ASSIGN, COMMIT, MEND, PARTS, RAISE
from millstream.errors import Conflict, PositionLost
from millstream.formats import NEWEST, OLDEST, Format, Owner, check, parsed
from millstream.loss import joined, mend, topic_id_of
from millstream.partition import slot, unslot
from millstream.ports import Assignment, Consumed, Gap, Log, Output, StagePosition, StateCommit
from millstream.version import __version__

_output = msgspec.msgpack.Decoder(Output)
_gap = msgspec.json.Decoder(Gap)
_pack, _json = msgspec.msgpack.encode, msgspec.json.encode


class RedisStore:
    """State of stages. ``server`` as for `millstream.adapters.redis.RedisBuffer`."""

    def __init__(self, log: Log, server: str | Callable[[], str], namespace: str) -> None:
        """Nothing is connected yet. Raises `SettingsError` for a namespace that can't be part of a key."""
        check_namespace(namespace, "[storage] namespace")
        self.log = log
        self.namespace = namespace
        self._connection = Connection(
            server, "state", "free some of what lies beside the state", self._inspect, durable=True
        )

    def _key(self, *parts: str) -> str:
        return ":".join((f"millstream:{{{self.namespace}}}:state", *parts))

    def _keys(self, stage: str, partition: int) -> list[str]:
        return [*(self._key(stage, str(partition), part) for part in PARTS), self._key("format")]

    def assign(self, stage: str, partition: int, topic_ids: Mapping[str, str]) -> Assignment:
        """Mint a fence and read everything a worker needs to restore."""
        form, (fence, outbox, positions, journal, snapshot, marks, waiting) = self._take(stage, partition)
        held = _positions(positions)
        for place, (topic_id, _) in held.items():
            topic = unslot(place)[0]
            if topic in topic_ids and topic_ids[topic] != topic_id:
                raise PositionLost(
                    f"{self._place}: {topic!r} is not the topic that stage {stage!r} was reading (it was made again: "
                    f"{topic_ids[topic]}, not {topic_id}); restore the topic, or start over by --accept-loss"
                )
        return Assignment(
            stage=stage,
            partition=partition,
            fence=int(fence),
            positions={place: offset for place, (_, offset) in held.items()},
            topic_ids=dict(topic_ids),
            snapshot=snapshot,
            journal=tuple(map(_run, journal)),
            high_water={source: int(number) for source, number in _pairs(marks)},
            outbox=int(outbox),
            unpublished=tuple(map(_output.decode, waiting)),
            format=form,
        )

    def _take(self, stage: str, partition: int) -> tuple[Format, Sequence[Any]]:
        """Mint a fence, where we read the format; the format, and what the script found."""
        keys = [*self._keys(stage, partition), self._key("stages")]
        range_ = (str(NEWEST), OLDEST.number, NEWEST.number)
        told = self._connection.script(ASSIGN, keys, f"{stage}\n{partition}", *range_, __version__)
        form = parsed(told[0].decode())
        check(form, self._whose)
        return form, told[1:]

    def commit(self, commit: StateCommit) -> tuple[Output, ...]:
        """Write it all in one script, or nothing."""
        held = commit.assignment
        for topic, topic_id in held.topic_ids.items():
            if topic_id_of(self.log, topic) != topic_id:
                raise PositionLost(f"{self._place}: topic {topic!r} was made again under stage {held.stage!r}")
        ends = {slot(run.topic, run.partition): (held.topic_ids[run.topic], str(run.end)) for run in commit.consumed}
        step = {
            "fence": str(held.fence),
            "format": str(held.format),
            "expected": [(place, str(offset)) for place, offset in commit.expected.items()],
            "ends": [(place, _json(end).decode()) for place, end in ends.items()],
            "marks": [(source, str(number)) for source, number in commit.high_water.items()],
            "consumed": [_told(run) for run in joined((), commit.consumed)],
            "snapshot": commit.snapshot is not None,
            "published": commit.published,
        }
        keys = self._keys(held.stage, held.partition)
        outputs = map(_pack, commit.outputs)
        verdict, found, place = self._connection.script(COMMIT, keys, _json(step), commit.snapshot or b"", *outputs)
        self._check(verdict, found.decode(), place.decode(), commit)
        return commit.outputs

    @staticmethod
    def _check(verdict: bytes, found: str, place: str, commit: StateCommit) -> None:
        stage = f"stage {commit.assignment.stage}:{commit.assignment.partition}"
        if verdict == b"fence":
            raise Conflict(f"{stage} was taken by another worker (fence {found})")
        if verdict == b"format":
            raise Conflict(f"{stage}: the format is {found or 'gone'} now, not {commit.assignment.format}")
        if verdict == b"position":
            raise Conflict(f"{stage} stands at {found} of {place}, not {commit.expected[place]}")

    def positions(self) -> tuple[StagePosition, ...]:
        """Every position, sorted."""
        found: list[StagePosition] = []
        for stage, stage_partition in self._stages():
            key = self._key(stage, str(stage_partition), "positions")
            for place, (topic_id, offset) in _positions(self._connection.script(_ALL, [key])).items():
                topic, partition = unslot(place)
                found.append(
                    StagePosition(
                        stage=stage,
                        stage_partition=stage_partition,
                        topic=topic,
                        partition=partition,
                        topic_id=topic_id,
                        offset=offset,
                    )
                )
        return tuple(sorted(found))

    def _stages(self) -> list[tuple[str, int]]:
        key = self._key("stages")
        names = self._connection.call(lambda client: client.smembers(key))
        split = (name.decode().split("\n") for name in names)
        return [(stage, int(partition)) for stage, partition in split]

    def waiting(self) -> dict[str, int]:
        """How much the outbox holds, by stage."""
        found: dict[str, int] = {}
        for stage, partition in self._stages():
            key = self._key(stage, str(partition), "outbox")
            if size := int(self._connection.script(_LENGTH, [key])):
                found[stage] = found.get(stage, 0) + size
        return found

    def gaps(self) -> tuple[Gap, ...]:
        """Every accepted loss, in the order they were accepted."""
        key = self._key("gaps")
        return tuple(map(_gap.decode, self._connection.call(lambda client: client.lrange(key, 0, -1))))

    def accept_loss(self, stage: str, stage_partition: int, topic: str, partition: int) -> tuple[Gap, ...]:
        """See `millstream.loss`. Raises `Conflict` when a worker takes the stage meanwhile."""
        _, told = self._take(stage, stage_partition)
        fence, held, journal = told[0], _positions(told[2]), list(map(_run, told[3]))
        place = slot(topic, partition)
        mended = mend(self.log, (stage, stage_partition), (topic, partition), held.get(place), journal)
        change = {
            "slot": place,
            "position": _json((mended.topic_id, str(mended.offset))).decode(),
            "journal": [_json(_told(run)).decode() for run in mended.journal],
            "gaps": [_json(gap).decode() for gap in mended.gaps],
        }
        places = [self._key(stage, str(stage_partition), part) for part in ("meta", "positions", "journal")]
        if not self._connection.script(MEND, [*places, self._key("gaps")], str(fence), _json(change)):
            raise Conflict(f"stage {stage}:{stage_partition} was taken by a worker: stop it and try again")
        return mended.gaps

    def format(self) -> Format:
        """What the stages of this namespace write in."""
        key = self._key("format")
        found = parsed((self._connection.call(lambda client: client.get(key)) or str(NEWEST).encode()).decode())
        check(found, self._whose)
        return found

    def raise_format(self, to: Format) -> None:
        """One step for all stages: a commit in the format before it is refused from here on."""
        self._connection.script(RAISE, [self._key("format")], str(to))

    def owners(self) -> tuple[Owner, ...]:
        """Who took each partition last."""
        found = []
        for stage, partition in self._stages():
            key = self._key(stage, str(partition), "meta")
            version, reads = self._connection.script(_OWNER, [key])
            if version:
                found.append(Owner(stage=stage, partition=partition, version=version.decode(), reads=int(reads)))
        return tuple(sorted(found))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def _place(self) -> str:
        return self._connection.place

    @property
    def _whose(self) -> str:
        return f"{self._place}, namespace {self.namespace}"

    def _inspect(self, client: Any) -> None:
        """Refuse a namespace that a build we can't read wrote."""
        if told := client.get(self._key("format")):
            check(parsed(told.decode()), self._whose)


_LENGTH: Final = "return redis.call('LLEN', KEYS[1])"
_OWNER: Final = "return redis.call('HMGET', KEYS[1], 'version', 'reads')"
_ALL: Final = "return redis.call('HGETALL', KEYS[1])"


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[str, bytes]]:
    return ((name.decode(), value) for name, value in zip(flat[::2], flat[1::2], strict=True))


def _positions(flat: Sequence[bytes]) -> dict[str, tuple[str, int]]:
    told = ((place, msgspec.json.decode(value)) for place, value in _pairs(flat))
    return {place: (topic_id, int(offset)) for place, (topic_id, offset) in told}


def _told(run: Consumed) -> tuple[str, str, str, str]:
    return run.topic, str(run.partition), str(run.first), str(run.end)


def _run(told: bytes) -> Consumed:
    topic, partition, first, end = msgspec.json.decode(told)
    return Consumed(topic, int(partition), int(first), int(end))
