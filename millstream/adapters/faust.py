"""A stage's consumer group in Faust: who owns which partitions, and their records as they come.

One agent on raw bytes, ``concurrency=1``, no tables, no web server, our codec. Only the position in the store
counts: at an assignment the consumer is sent there, and the offsets that Faust commits are never read. No
exception leaves the agent; it only hands records over and waits while the hands are full. The rest of a stage
runs in a thread of its own, so a slow group never keeps the consumer from its heartbeats and polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from millstream.adapters.kafka_cluster import Cluster
from millstream.errors import MillstreamError, MissingExtra, Unavailable
from millstream.ports import Record

FULL_S = 0.01
"""How often a waiting agent looks whether there is room again."""
REJOIN_S = 5.0
"""How long after a first assignment of nothing the partitions are asked to be shared out anew."""
INTERNAL = 70


class Member(Protocol):
    """What a consumer group is run for."""

    def assigned(self, partitions: Iterable[int]) -> None:
        """These partitions are ours now, and no others; must not wait."""
        ...

    def revoked(self, partitions: Iterable[int]) -> None:
        """These are ours no longer; returns when nothing of them goes on."""
        ...

    def positions(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Where to begin reading; empty when that is not known now."""
        ...

    def deliver(self, record: Record) -> None:
        """A record; those of partitions that are not ours are dropped."""
        ...

    @property
    def full(self) -> bool:
        """Whether to wait with the next record."""
        ...

    def run(self) -> None:
        """Work until `end`; raises what went wrong."""
        ...

    def end(self) -> None:
        """Make `run` return."""
        ...


class Group(Struct, frozen=True, kw_only=True):
    """A consumer group: its name in the cluster, the topic (as stages call it) whose partitions are owned,
    who we are in it, and its times in seconds. ``folder``: where Faust may keep files.
    """

    name: str
    topic: str
    instance: str
    folder: Path
    session_s: float
    poll_s: float
    buffer_records: int = 256


def run(cluster: Cluster, group: Group, member: Member) -> None:
    """Be a member of the group until SIGTERM or SIGINT, or until ``member`` ends. Raises what it raises
    where that is a `MillstreamError`; a fault of the program ends the process with 70 at once, so that
    nothing is acknowledged that was not done.
    """
    faust = _library()
    _quiet()
    try:
        group.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"{group.folder}: {error.strerror}; make it a folder that can be written") from None
    app = _app(faust, cluster, group, member)
    worker = faust.Worker(app, quiet=True, override_logging=False, redirect_stdouts=False, loop=app.loop)
    trouble: list[MillstreamError] = []
    hands = threading.Thread(target=_work, args=(member, worker, trouble), name="stage")
    hands.start()
    failed = False
    try:
        worker.execute_from_commandline()
    except SystemExit as ended:
        failed = bool(ended.code)
    finally:
        member.end()
        hands.join()
    if trouble:
        raise trouble[0]
    if app.crash_reason is not None or failed:
        raise _told(app.crash_reason or _why_not_started(worker), cluster)


def _why_not_started(worker: Any) -> BaseException:
    """What kept Faust from starting; it ends its process without a word that can be caught."""
    starting = worker._starting_fut  # noqa: SLF001 — kept nowhere else
    told = starting.exception() if starting is not None and starting.done() and not starting.cancelled() else None
    return told or RuntimeError("the consumer group ended by itself")


def _library() -> Any:
    try:
        import faust
    except ModuleNotFoundError:
        raise MissingExtra("faust", "a worker") from None
    return faust


def _work(member: Member, worker: Any, trouble: list[MillstreamError]) -> None:
    try:
        member.run()
    except MillstreamError as error:
        trouble.append(error)
    except BaseException as error:  # noqa: BLE001 — a fault of the program: nothing of it may be acknowledged
        _die(error)
    with contextlib.suppress(RuntimeError):  # the loop may have ended first
        worker.loop.call_soon_threadsafe(worker._schedule_shutdown, signal.SIGTERM)  # noqa: SLF001


def _die(error: BaseException) -> None:
    if os.environ.get("MILLSTREAM_DEBUG") == "1":
        logging.getLogger(__name__).error("the stage failed", exc_info=error)
    sys.stderr.write(f"millstream: internal error: {type(error).__name__}: {error} (--debug shows where)\n")
    sys.stderr.flush()
    os._exit(INTERNAL)


def _quiet() -> None:
    """What the libraries say of themselves is for `--debug`; errors are told by who asked."""
    if os.environ.get("MILLSTREAM_DEBUG") != "1":
        for name in ("faust", "mode", "aiokafka", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _app(faust: Any, cluster: Cluster, group: Group, member: Member) -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app = _app_type(faust, cluster, group, member)(
        group.name,
        loop=loop,
        broker=[f"kafka://{address}" for address in cluster.addresses],
        broker_credentials=_credentials(faust, cluster),
        broker_session_timeout=group.session_s,
        broker_heartbeat_interval=group.session_s / 4,
        broker_rebalance_timeout=max(60.0, group.session_s),
        broker_max_poll_interval=group.poll_s,
        broker_request_timeout=max(2 * group.session_s, 30.0),
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=group.instance or None,
        stream_buffer_maxsize=group.buffer_records,
        key_serializer="raw",
        value_serializer="raw",
        topic_disable_leader=True,
        topic_allow_declare=False,
        store="memory://",
        web_enabled=False,
        autodiscover=False,
        datadir=str(group.folder),
    )
    topic = app.topic(cluster.topic(group.topic), key_type=bytes, value_type=bytes, allow_empty=True, internal=True)

    async def hand_over(stream: Any) -> None:
        async for event in stream.events():
            while member.full:  # noqa: ASYNC110 — the hands that make room are a thread's
                await asyncio.sleep(FULL_S)
            try:
                member.deliver(_record(group.topic, event.message))
            except Exception as error:  # noqa: BLE001 — Faust would acknowledge the event and start the agent anew
                _die(error)

    app.agent(topic, concurrency=1, name=group.name)(hand_over)
    app.on_partitions_revoked.connect(_revoked(member), weak=False)
    app.on_partitions_assigned.connect(_assigned(app, member), weak=False)
    return app


def _revoked(member: Member) -> Callable[..., Any]:
    async def revoked(_: Any, partitions: Any, **__: Any) -> None:
        gone = [place.partition for place in partitions]
        await asyncio.get_running_loop().run_in_executor(None, member.revoked, gone)

    return revoked


def _assigned(app: Any, member: Member) -> Callable[..., Any]:
    asked = False

    async def assigned(_: Any, partitions: Any, **__: Any) -> None:
        nonlocal asked
        member.assigned([place.partition for place in partitions])
        if not partitions and not asked:
            asked = True
            asyncio.get_running_loop().call_later(REJOIN_S, lambda: asyncio.ensure_future(_join_again(app)))

    return assigned


async def _join_again(app: Any) -> None:
    """Have the partitions shared out anew. A static member that comes back gets what its predecessor had, and
    when that was nothing, because the topic was being made again, nobody would ever have its partitions.
    Once in a member's life: another rebalance is a short pause for the whole group.
    """
    if app.should_stop or app.consumer.assignment():
        return
    thread = app.consumer._thread  # noqa: SLF001 — Faust has no word for it

    async def rejoin() -> None:
        thread._ensure_consumer()._coordinator.request_rejoin()  # noqa: SLF001

    await thread.call_thread(rejoin)


def _record(topic: str, message: Any) -> Record:
    headers = message.headers or {}
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=topic,
        partition=message.partition,
        offset=message.offset,
        log_ms=round(message.timestamp * 1000),
        key=(message.key or b"").decode(errors="replace"),
        value=message.value,
        headers={name: value.decode(errors="replace") for name, value in pairs},
    )


def _app_type(faust: Any, cluster: Cluster, group: Group, member: Member) -> Any:
    """Faust's app, whose consumer goes to the store's positions where Faust's goes to what it committed."""
    from faust.transport.drivers import aiokafka as driver

    class Consumer(driver.Consumer):
        async def seek_to_committed(self) -> Mapping[Any, int]:
            mine = {place.partition: place for place in self.assignment() if place.topic == cluster.topic(group.topic)}
            loop = asyncio.get_running_loop()
            known = await loop.run_in_executor(None, member.positions, list(mine))
            offsets = {mine[partition]: offset for partition, offset in known.items()}
            committed = await super().seek_to_committed() if len(offsets) < len(mine) else {}
            if offsets:
                await self._thread.seek_wait(offsets)
            return {**committed, **offsets}

    class Transport(driver.Transport):
        pass

    Transport.Consumer = Consumer

    class App(faust.App):  # type: ignore[misc]
        def _new_transport(self) -> Any:
            return Transport(self.conf.broker_consumer, self)

    return App


def _credentials(faust: Any, cluster: Cluster) -> Any:
    context = cluster.tls_context() if cluster.tls else None
    if cluster.sasl:
        return faust.SASLCredentials(
            mechanism=cluster.settings.sasl_mechanism,
            username=cluster.settings.username,
            password=cluster.password,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


def _told(reason: BaseException, cluster: Cluster) -> Exception:
    return Unavailable(f"{cluster.url}: {type(reason).__name__}: {reason}")
