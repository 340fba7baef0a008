"""The replay buffer on Redis or Valkey: the `Buffer` port.

A projection of ``buffer-events`` that can be dropped and folded again. Each operation is one Lua script,
so a record of decisions is applied whole or not at all, and once (by its offset). Payloads are compressed.
All keys of a namespace share a hash tag, so a cluster keeps them together.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millstream.adapters.redis_connection import Connection, check_namespace
from millstream.adapters.redis_operations import StoredLease, operations
from millstream.adapters.redis_scripts import APPLY, DUMP, PARTS, STATS
from millstream.delivery import number_of, source_of
from millstream.errors import Stuck, Unavailable
from millstream.ports import BufferStats, Lease
from millstream.rollout import BufferDecision, Rollout, RolloutId

if TYPE_CHECKING:
    from redis import Redis

FORMAT: Final = 1
"""The format number of a namespace; a newer one is refused."""
COMPRESSION: Final = 1
READ_AT_ONCE: Final = 256

_rollout = msgspec.json.Decoder(Rollout)
_lease = msgspec.json.Decoder(StoredLease)


def _fields(key: str, names: Sequence[str]) -> Callable[[Any], list[bytes | None]]:
    return lambda client: client.hmget(key, names)


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


class RedisBuffer:
    """``server``: a ``redis://``, ``rediss://`` or ``unix://`` URL, or a function that makes sure a server
    runs and tells its URL (asked again, once an operation, when the connection is lost).
    """

    def __init__(self, server: str | Callable[[], str], namespace: str, installation: str = "") -> None:
        """Nothing is connected yet. ``installation`` keeps the keys of several apart that share a server. Raises
        `SettingsError` for a namespace that can't be part of a key.
        """
        check_namespace(namespace, "[buffer] namespace")
        self.namespace = namespace
        tag = f"{installation}.{namespace}" if installation else namespace
        self._connection = Connection(server, "buffer", "lower [buffer] max_bytes", self._inspect)
        self._keys = [f"millstream:{{{tag}}}:{part}" for part in PARTS]
        self._key = dict(zip(PARTS, self._keys, strict=True))
        self._seen = 0

    def apply(
        self,
        offset: int,
        decisions: Sequence[BufferDecision],
        payloads: Mapping[RolloutId, bytes],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Apply one record of ``buffer-events``, whole and once; ``payloads`` are `Rollout` JSON. Raises
        `Unavailable` when the server is full, dead, or has lost what it had applied: read `applied` again.
        """
        packed = {key: zlib.compress(value, COMPRESSION) for key, value in payloads.items()}
        steps, carried = operations(offset, decisions, packed)
        told = headers or {}
        arguments = [offset, FORMAT, self._seen, number_of(told), source_of(told), msgspec.json.encode(steps), *carried]
        applied = int(self._script(APPLY, *arguments))
        if applied < self._seen:
            before, self._seen = self._seen, applied
            raise Unavailable(
                f"{self._place}: buffer {self.namespace!r} had applied {before} records of buffer-events and has "
                f"{applied} now: the server lost data; it is filled again from the log"
            )
        self._seen = applied

    def applied(self) -> int:
        """The next offset of ``buffer-events`` to apply."""
        told = self._connection.call(lambda client: client.hget(self._key["meta"], "applied"))
        self._seen = int(told or 0)
        return self._seen

    def lease(self, training_id: str) -> Lease | None:
        """The standing lease of a training, or None."""
        told = self._connection.call(lambda client: client.hget(self._key["leases"], training_id))
        if told is None:
            return None
        lease = _lease.decode(told)
        return Lease(training_id, lease.token, lease.fence, lease.rollout_ids)

    def read(self, ids: Sequence[RolloutId]) -> list[Rollout]:
        """Rollouts in the order asked. Raises `Unavailable` naming those that are not there."""
        found: list[Rollout] = []
        for start in range(0, len(ids), READ_AT_ONCE):
            part = list(ids[start : start + READ_AT_ONCE])
            packed = self._connection.call(_fields(self._key["payloads"], part))
            if gone := [key for key, value in zip(part, packed, strict=True) if value is None]:
                raise Unavailable(
                    f"{self._place}: {len(gone)} of {len(ids)} rollouts are not in the buffer {self.namespace!r} "
                    f"({', '.join(gone[:3])}{', …' if len(gone) > 3 else ''}); `millstream buffer rebuild` brings "
                    "back what was not evicted"
                )
            found += [_rollout.decode(zlib.decompress(value)) for value in packed if value is not None]
        return found

    def stats(self) -> BufferStats:
        """Counts. ``bytes`` are uncompressed, as the byte budget counts them; ``unreadable``: rollouts
        whose payload is gone.
        """
        rollouts, groups, applied, size, unreadable, leases, uses = self._script(STATS)
        return BufferStats(
            rollouts=rollouts,
            groups=groups,
            bytes=size,
            leased=len({i for lease in leases for i in _lease.decode(lease).rollout_ids}),
            consumed=sum(any(held for _, held in msgspec.json.decode(use).values()) for use in uses),
            applied=applied,
            unreadable=unreadable,
        )

    def dump(self) -> dict[str, Any]:
        """The projection without payloads, canonical; equal to `BufferLedger.dump` of the same records."""
        applied, *tables = self._script(DUMP)
        plain = [{name.decode(): msgspec.json.decode(told) for name, told in sorted(_pairs(table))} for table in tables]
        return {"applied": int(applied), **dict(zip(("rollouts", "groups", "leases", "uses"), plain, strict=True))}

    def clear(self) -> None:
        """Drop the projection of this namespace."""
        self._connection.call(lambda client: client.unlink(*self._keys))
        self._seen = 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def _place(self) -> str:
        return self._connection.place

    def _script(self, script: str, *arguments: Any) -> Any:
        return self._connection.script(script, self._keys, *arguments)

    def _inspect(self, client: Redis) -> None:
        """Refuse a namespace that a newer version wrote."""
        told: Any = client.hget(self._key["meta"], "format")
        if int(told or FORMAT) > FORMAT:
            raise Stuck(
                f"{self._place}: buffer {self.namespace!r} has format {int(told)}, this version reads "
                f"{FORMAT}: use the newer millstream that wrote it, or another [buffer] namespace"
            )
