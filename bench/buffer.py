"""The buffer on real servers: rollouts admitted, leased and read a second, and what one weighs in memory.

Each server (Redis of the operating system, append-only, fsynced each second, or always as compose runs it; the
embedded Valkey) does the same work, and so does its bare store: the same payloads, compressed the same way, in one
hash by one HSET a group. What the buffer costs beside it is its script, its book and its fences.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import chaos_path  # noqa: F401 — before `services`
import msgspec
from redis import Redis
from services import RedisServer, missing_for_redis

from millstream.adapters.redis import COMPRESSION, RedisBuffer
from millstream.adapters.valkey import Valkey
from millstream.rollout import (
    Position,
    Rollout,
    RolloutAdmitted,
    RolloutFacts,
    RolloutId,
    RolloutsLeased,
    RolloutsReleased,
)
from millstream.streams.facts import facts_of

sys.path.insert(0, str(Path(__file__).parent))
made = import_module("graders").made  # the neighbouring file; this folder is no package

GROUPS, GROUP = 2000, 8
LEASED = 128
"""Rollouts in a lease: a training of 16 groups."""
LEASES = 200
NAMESPACE = "bench"


class Case:
    """What is admitted: rollouts like those of the example, a group in a record."""

    def __init__(self) -> None:
        self.facts: list[RolloutFacts] = []
        self.ids: list[RolloutId] = []
        self.payloads: list[bytes] = []
        for number in range(GROUPS * GROUP):
            run = made(number, f"{number % 97:.4f}", float(number % 97))
            facts = facts_of(run, 0)
            rollout = Rollout(id=RolloutId(f"rollout-{number}"), trajectory=run, reward=number % 2, facts=facts)
            payload = msgspec.json.encode(rollout)
            self.ids.append(rollout.id)
            self.facts.append(msgspec.structs.replace(facts, bytes=len(payload)))
            self.payloads.append(payload)

    def records(self) -> Iterator[tuple[list[RolloutAdmitted], dict[RolloutId, bytes]]]:
        """One group each, as the stage decides it."""
        for start in range(0, len(self.ids), GROUP):
            span = range(start, start + GROUP)
            yield [self._admitted(n) for n in span], {self.ids[n]: self.payloads[n] for n in span}

    def _admitted(self, number: int) -> RolloutAdmitted:
        return RolloutAdmitted(
            id=f"admitted-{number}",
            namespace=NAMESPACE,
            log_ms=number,
            rollout_id=self.ids[number],
            trajectory_id=f"run-{number}",  # type: ignore[arg-type]
            trajectory_revision=1,
            content_hash=f"h{number}",
            position=Position("trajectories", 0, number),
            group=f"group-{number // GROUP}",
            reward=float(number % 2),
            advantage=0.5,
            priority=1.0,
            facts=self.facts[number],
        )


def timed(work: Callable[[], object]) -> float:
    """Seconds by the clock: a round trip is what a caller waits for."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def memory(client: Redis) -> int:
    told: Any = client.info("memory")
    return int(told["used_memory"])


def bare(client: Redis, case: Case) -> dict[str, float]:
    """The same payloads without a buffer."""
    before = memory(client)

    def fill() -> None:
        for _, payloads in case.records():
            packed = {key: zlib.compress(value, COMPRESSION) for key, value in payloads.items()}
            client.hset("bare", mapping=packed)  # type: ignore[arg-type]

    spent = timed(fill)
    used = memory(client) - before
    return {"admitted": len(case.ids) / spent, "bytes": used / len(case.ids)}


def buffered(url: str, client: Redis, case: Case) -> dict[str, float]:
    """Through the port: admissions, then leases and their releases, then reads of what they hold."""
    buffer, before = RedisBuffer(url, NAMESPACE), memory(client)
    records = list(case.records())

    def admit() -> None:
        for offset, (decisions, payloads) in enumerate(records):
            buffer.apply(offset, decisions, payloads)

    admitting = timed(admit)
    used = memory(client) - before

    def lease() -> None:
        for number in range(LEASES):
            start = number * LEASED % len(case.ids)
            ids, training = tuple(case.ids[start : start + LEASED]), f"training-{number}"
            held = RolloutsLeased(
                id=f"l{number}", namespace=NAMESPACE, training_id=training, token="a", lineage="policy", parent=1,
                rollout_ids=ids,
            )  # fmt: skip
            free = RolloutsReleased(
                id=f"r{number}", namespace=NAMESPACE, training_id=training, lineage="policy", parent=1,
                rollout_ids=ids, used=False, reason="bench",
            )  # fmt: skip
            buffer.apply(len(records) + 2 * number, [held], {})
            buffer.apply(len(records) + 2 * number + 1, [free], {})

    leasing = timed(lease)
    reading = timed(lambda: [buffer.read(case.ids[n : n + LEASED]) for n in range(0, len(case.ids), LEASED)])
    stats = buffer.stats()
    assert (stats.rollouts, stats.leased) == (len(case.ids), 0), stats
    buffer.clear()
    buffer.close()
    return {
        "admitted": len(case.ids) / admitting,
        "leased": LEASES / leasing,
        "read": len(case.ids) / reading,
        "bytes": used / len(case.ids),
    }


def main() -> int:
    case = Case()
    mean = sum(map(len, case.payloads)) / len(case.payloads)
    packed = sum(len(zlib.compress(value, COMPRESSION)) for value in case.payloads) / len(case.payloads)
    print(f"{len(case.ids):,} rollouts of {mean:,.0f} bytes ({packed:,.0f} compressed), {GROUP} a record")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, url in servers(folder, stack):
            client = stack.enter_context(Redis.from_url(url))
            plain, ours = bare(client, case), buffered(url, client, case)
            print(f"\n{name}")
            print(f"    admitted a second      {ours['admitted']:10,.0f}   bare HSET {plain['admitted']:,.0f}")
            print(f"    leases a second        {ours['leased']:10,.0f}   of {LEASED} rollouts, each given back")
            print(f"    read a second          {ours['read']:10,.0f}   rollouts, decoded")
            print(
                f"    memory a rollout       {ours['bytes']:10,.0f}   bytes: {ours['bytes'] / mean:.2f} of its payload,"
                f" {ours['bytes'] / packed:.2f} of it compressed; bare {plain['bytes']:,.0f}"
            )
    return 0


def servers(folder: Path, stack: ExitStack) -> Iterator[tuple[str, str]]:
    """Name and URL of each server that can be started here."""
    if missing := missing_for_redis():
        print(f"Redis: not measured, {missing}")
    else:
        for when in ("everysec", "always"):
            server = RedisServer(folder / when, "--appendfsync", when)
            server.start()
            stack.callback(server.stop)
            yield f"Redis, appendonly, appendfsync {when}", server.url
    valkey = Valkey(folder / "valkey")
    stack.callback(valkey.close)
    yield "embedded Valkey", valkey.start()


if __name__ == "__main__":
    sys.exit(main())
