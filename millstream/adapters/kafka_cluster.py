"""What a process must know to reach a Kafka cluster; each client library is given its own words for it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.loading import Loaded
from millstream.settings import KafkaSettings
from millstream.topics import TELEMETRY

SCHEME = "kafka://"
PORT = 9092
ROOM = 1.2
"""How much larger a trajectory may be than its events."""


class Cluster(Struct, frozen=True, kw_only=True):
    """A cluster's addresses and the ``[kafka]`` settings, files resolved and the password read."""

    addresses: tuple[str, ...]
    settings: KafkaSettings
    password: str = ""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @classmethod
    def of(cls, loaded: Loaded) -> Cluster:
        """The cluster of ``[storage] log``. Raises `SettingsError`."""
        kafka = loaded.settings.kafka
        _fits(loaded)
        return cls(
            addresses=addresses_of(loaded.settings.storage.log),
            settings=kafka,
            password=_password(loaded),
            ca_file=_file(loaded, "ca_file"),
            cert_file=_file(loaded, "cert_file"),
            key_file=_file(loaded, "key_file"),
        )

    @property
    def url(self) -> str:
        """For messages; holds no secret."""
        return SCHEME + ",".join(self.addresses)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.settings.security_protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether a name and a password are given."""
        return self.settings.security_protocol.startswith("SASL")

    def topic(self, name: str) -> str:
        """A topic's (or a consumer group's) name in the cluster: the namespace, a dot, its own name; of
        telemetry, the generation that was grown last.
        """
        if name == TELEMETRY.name and self.settings.telemetry_generation > 1:
            name = f"{name}.{self.settings.telemetry_generation}"
        return f"{self.settings.namespace}.{name}" if self.settings.namespace else name

    def own(self, name: str) -> str | None:
        """The name without the namespace; None when it is not of this namespace."""
        if not self.settings.namespace:
            return name
        head = f"{self.settings.namespace}."
        return name.removeprefix(head) if name.startswith(head) else None

    def tls_context(self) -> ssl.SSLContext:
        """For clients that take a context. Raises `SettingsError` for files that are none."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"[kafka] ca_file, cert_file or key_file can't be used: {error}") from None
        return context

    def kafka_python(self) -> dict[str, Any]:
        """Options of every kafka-python client."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.addresses),
            "client_id": "millstream",
            "security_protocol": self.settings.security_protocol,
            "reconnect_backoff_max_ms": 1000,
            "request_timeout_ms": int(self.settings.timeout_s * 500),
            "bootstrap_timeout_ms": int(self.settings.timeout_s * 1000),
        }
        if self.tls:
            options["ssl_context"] = self.tls_context()
        if self.sasl:
            options |= {
                "sasl_mechanism": self.settings.sasl_mechanism,
                "sasl_plain_username": self.settings.username,
                "sasl_plain_password": self.password,
            }
        return options


def addresses_of(url: str) -> tuple[str, ...]:
    """``kafka://host:9092,host2`` → ``host:9092``, ``host2:9092``. Raises `SettingsError`."""
    found = []
    for part in url.removeprefix(SCHEME).rstrip("/").split(","):
        host, colon, port = part.rpartition(":") if ":" in part else (part, "", "")
        if not host or "/" in part or "@" in part or (colon and not port.isdigit()):
            raise SettingsError(
                f"[storage] log = {url!r} is no kafka URL; write kafka://HOST:9092 (several: kafka://A:9092,B:9092), "
                "names and passwords under [kafka]"
            )
        found.append(f"{host}:{port or PORT}")
    return tuple(found)


def _fits(loaded: Loaded) -> None:
    """A sealed trajectory is one record: the events that it may hold, and what is known of them."""
    most, holds = loaded.settings.kafka.max_batch_bytes, loaded.settings.assembly.max_bytes
    if holds * ROOM > most:
        raise SettingsError(
            f"[assembly] max_bytes = {holds} does not fit [kafka] max_batch_bytes = {most}: a run is one record; "
            f"lower the one to {int(most / ROOM)} or raise the other"
        )


def _file(loaded: Loaded, key: str) -> str | None:
    value: str = getattr(loaded.settings.kafka, key)
    if not value:
        return None
    path = loaded.path(value)
    if not path.is_file():
        raise SettingsError(f"[kafka] {key} = {value!r}: no file at {path}")
    return str(path)


def _password(loaded: Loaded) -> str:
    kafka = loaded.settings.kafka
    path = _file(loaded, "password_file")
    if kafka.password and path:
        raise SettingsError("[kafka] password and password_file are both set; keep one")
    found = Path(path).read_text(encoding="utf-8").strip("\r\n") if path else kafka.password
    if kafka.security_protocol.startswith("SASL") and not (kafka.username and found):
        raise SettingsError(
            f"[kafka] security_protocol = {kafka.security_protocol!r} needs username and password "
            "(MILLSTREAM_KAFKA__PASSWORD in the environment, or password_file)"
        )
    return found
