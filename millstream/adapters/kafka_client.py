"""One connection to a Kafka cluster: requests with patience, and what went wrong in one line.

kafka-python's admin client carries it (it bootstraps, follows the brokers and runs a thread of its own).
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

from kafka import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    InvalidReplicationFactorError,
    KafkaConfigurationError,
    KafkaError,
    PolicyViolationError,
    RetriableError,
    SaslAuthenticationFailedError,
    UnknownBrokerIdError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import FetchRequest

from millstream.adapters.kafka_cluster import Cluster
from millstream.errors import MillstreamError, SettingsError, Stuck, Unavailable

T = TypeVar("T")
_NUMBER = re.compile(r"^\[Error -?\d+\] ")
_forkable: WeakSet[Any] = WeakSet()
"""What has threads of the library: a fork has none of them."""
os.register_at_fork(after_in_child=lambda: [one.forked() for one in _forkable])
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
FETCH_BY_ID = 13
"""The first version of fetching, that of Kafka 3.1, which names a topic by its id."""
MOST_BYTES = 100_000_000
"""The largest answer that is read; a broker's own limit for requests is the same."""
KNOCKS, KNOCK_PAUSE_S = 3, 0.1
HUNG_UP = "socket disconnected"
"""What the library says of refused credentials when the broker's answer and its hanging up arrive together."""
LOOK_S = 2.0
"""How long to look for the reason when a cluster does not answer."""


class KafkaClient:
    """Requests to the brokers of a cluster; connected when first used. May be used from any thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._admin: KafkaAdminClient | None = None
        self._lock = threading.Lock()
        quiet()
        forks(self)

    def forked(self) -> None:
        """In the child of a fork: connect anew; the connection is the parent's."""
        self._admin, self._lock = None, threading.Lock()

    def close(self) -> None:
        """Leave the cluster; used again, it connects again."""
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def admin(self) -> KafkaAdminClient:
        """The library's client. Raises `KafkaError`."""
        with self._lock:
            if self._admin is None:
                options = {**self.cluster.kafka_python(), "receive_message_max_bytes": MOST_BYTES}
                self._admin = modern(opened(KafkaAdminClient, options))
            return self._admin

    def ask(self, request: Any, node: int | None = None, patience_s: float = 0.0) -> Any:
        """The answer of a broker (by default of any). ``patience_s`` is added to the usual time limit.
        Raises `KafkaError`.
        """
        manager = self.admin()._manager  # noqa: SLF001 — the door to requests that no client of it makes
        limit_ms = (self.cluster.settings.timeout_s / 2 + patience_s) * 1000

        async def send() -> Any:
            return await manager.wait_for(manager.send(request, node_id=node), limit_ms)

        return manager.run(send)

    def patiently(self, act: Callable[[], T]) -> T:
        """Do it, again while what is in the way can heal, for ``[kafka] timeout_s``. Raises `Stuck` when
        it can't, else `Unavailable`.
        """
        deadline = time.monotonic() + self.cluster.settings.timeout_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                return act()
            except (KafkaError, OSError, RuntimeError) as error:
                if not heals(error) or time.monotonic() + pause > deadline:
                    self.close()
                    raise told(error, self.cluster) from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def forks(one: Any) -> None:
    """Have ``one.forked()`` called in the child of every fork, as long as it lives."""
    _forkable.add(one)


def opened(kind: Callable[..., T], options: dict[str, Any]) -> T:
    """A client of the library. One that can't be made leaves no thread and no socket behind."""
    nets: list[KafkaNetClient] = []

    def network(**configs: Any) -> KafkaNetClient:
        nets.append(KafkaNetClient(**configs))
        if configs["security_protocol"].startswith("SASL"):
            knock(nets[0])
        return nets[0]

    try:
        return kind(**options, kafka_client=network)
    except BaseException:
        for net in nets:
            net.close()
            net._net.stop()  # noqa: SLF001 — what the constructor would have left running
        raise


def modern(admin: KafkaAdminClient) -> KafkaAdminClient:
    """The client itself, where the brokers name topics by their ids. Raises `UnsupportedVersionError` (closed)."""
    told = admin._manager.broker_version_data  # noqa: SLF001 — as above
    if told.api_version(FetchRequest) >= FETCH_BY_ID:
        return admin
    admin.close()
    raise UnsupportedVersionError(f"that of Kafka {'.'.join(map(str, told.broker_version))}")


def knock(net: KafkaNetClient) -> None:
    """Connect once: the library's own start tries refused credentials again and again, and tells of a silence
    in the end. Raises `SaslAuthenticationFailedError`; what else goes wrong is left to that start.
    """
    manager = net._manager  # noqa: SLF001 — as above
    node = manager.cluster.bootstrap_brokers()[0].node_id

    async def connect() -> None:
        await manager.get_connection(node, pop_on_close=True, refresh_metadata_on_err=False)

    for _ in range(KNOCKS):
        try:
            manager.run(connect)
        except (SaslAuthenticationFailedError, UnsupportedSaslMechanismError):
            raise
        except (KafkaError, OSError) as error:
            if HUNG_UP not in str(error):
                return
        else:
            return
        time.sleep(KNOCK_PAUSE_S)
    raise SaslAuthenticationFailedError(HUNG_UP)


def heals(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return isinstance(error, RetriableError | UnknownBrokerIdError)
    return True


def told(error: Exception, cluster: Cluster) -> MillstreamError:
    """The error as one line: the address, the cause, the mend."""
    if isinstance(error, KafkaConfigurationError):
        return SettingsError(f"[kafka]: {_text(error)}")
    if heals(error):
        why = reason(cluster) or f"{_text(error)}; are these its brokers, and is [storage] log right?"
        return Unavailable(f"{cluster.url} does not answer: {why}")
    no = _refusal(error, cluster)
    return Stuck(no) if no else Unavailable(f"{cluster.url}: {_text(error)}")


def _refusal(error: Exception, cluster: Cluster) -> str:
    name = cluster.settings.username
    if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
        return (
            f"{cluster.url} refuses the credentials of {name!r} by {cluster.settings.sasl_mechanism}; "
            "check [kafka] username, password and sasl_mechanism"
        )
    if isinstance(error, AuthorizationError):
        return f"{cluster.url} does not allow this to {name!r} ({_text(error)}); grant it there"
    if isinstance(error, UnsupportedVersionError):
        return f"{cluster.url} speaks too old a protocol ({_text(error)}); Kafka 3.1 or later is needed"
    if isinstance(error, InvalidReplicationFactorError | PolicyViolationError):
        return f"{cluster.url}: {_text(error)}; see [kafka] replication"
    return ""


def _text(error: Exception) -> str:
    name = type(error).__name__
    message = _NUMBER.sub("", " ".join(str(error).split())).removeprefix(f"{name}: ")
    return f"{name}: {message[:300]}" if message else name


def reason(cluster: Cluster) -> str:
    """Why no broker answers, found by knocking; empty when one can be connected to."""
    found = []
    for address in cluster.addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), LOOK_S) as knock:
                if not cluster.tls:
                    return ""
                found.append(_no_tls(cluster, knock, host))
        except OSError as error:
            found.append(f"{error.strerror or error}; is it running, and is [storage] log right?")
    return "" if "" in found else found[0]


def _no_tls(cluster: Cluster, knock: socket.socket, host: str) -> str:
    try:
        with cluster.tls_context().wrap_socket(knock, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not trusted ({error.verify_message}); check [kafka] ca_file"
    except OSError as error:
        return f"no TLS there ({error}); check [kafka] security_protocol"


def quiet() -> None:
    """The library's own running commentary is for `--debug`; errors are told by who asked."""
    if logging.getLogger().getEffectiveLevel() > logging.DEBUG:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
