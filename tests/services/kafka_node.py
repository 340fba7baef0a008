"""Apache Kafka, one node (KRaft), from its own jars on the JVM that is there.

Maven copies the jars once into the environment (``<environment>/services/``); after that nothing is fetched.
The node listens on loopback: plainly, and with SASL (PLAIN, SCRAM-SHA-512) over TLS.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from services.processes import Server, ServiceFailed, free_port

VERSION = "4.1.1"
CACHE = Path(sys.prefix) / "services" / f"kafka-{VERSION}"
USER, PASSWORD = "millstream", "millstream-secret"
STORE_PASSWORD = "changeit"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.location={keystore}
ssl.keystore.password={store_password}
ssl.keystore.type=PKCS12
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=1000
log.retention.check.interval.ms=1000
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=8388608
"""


def missing_for_kafka() -> str:
    """What the machine lacks to run it; empty when nothing."""
    lacking = [] if shutil.which("java") else ["java is not installed (Debian: default-jre-headless)"]
    if not CACHE.is_dir() and not shutil.which("mvn"):
        lacking.append("mvn is not installed (Debian: maven)")
    return "; ".join(lacking)


def jars() -> Path:
    """The folder of Kafka's jars and of a certificate for loopback, made when first asked for."""
    CACHE.parent.mkdir(exist_ok=True)
    with (CACHE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not CACHE.is_dir():
            partly = CACHE.with_suffix(".part")
            shutil.rmtree(partly, ignore_errors=True)
            partly.mkdir()
            _fetch(partly)
            _certificate(partly)
            partly.rename(CACHE)
    return CACHE


def _fetch(folder: Path) -> None:
    pom = folder / "pom.xml"
    shutil.copy(Path(__file__).with_name("pom.xml"), pom)
    _run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime",
         f"-DoutputDirectory={folder}")  # fmt: skip


def _certificate(folder: Path) -> None:
    store = ("-keystore", str(folder / "server.p12"), "-storepass", STORE_PASSWORD, "-alias", "node")
    _run("keytool", "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "RSA", "-keysize", "2048",
         "-validity", "3650", "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost",
         "-ext", "bc:c=ca:true")  # fmt: skip
    _run("keytool", "-exportcert", *store, "-rfc", "-file", str(folder / "ca.pem"))


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceFailed(f"{' '.join(command[:6])} … failed:\n{(done.stdout + done.stderr)[-2000:]}")


class KafkaNode:
    """One node in ``folder``: `start` it, `stop` or `kill` it, `start` it again on the same data and ports."""

    user, password = USER, PASSWORD

    def __init__(self, folder: Path, *, heap: str = "512m", port: int = 0) -> None:
        """``port`` 0: one that is free."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port, self.secure_port = port or free_port(), free_port()
        self.address, self.secure_address = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.secure_port}"
        self.url, self.secure_url = f"kafka://{self.address}", f"kafka://{self.secure_address}"
        self.ca = CACHE / "ca.pem"
        self._java = ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-cp", f"{CACHE}/*"]
        command = [*self._java, "kafka.Kafka", str(self._properties)]
        self.server = Server(command, folder / "kafka.out", self._started)
        self.stop, self.kill = self.server.stop, self.server.kill

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def start(self, patience_s: float = 60.0) -> None:
        """Start it and wait until it serves; the first time its storage is formatted."""
        jars()
        if not self._properties.exists():
            self._format()
        self.server.start(patience_s)

    def _format(self) -> None:
        text = PROPERTIES.format(
            plain=self.port,
            secure=self.secure_port,
            controller=free_port(),
            user=USER,
            password=PASSWORD,
            keystore=CACHE / "server.p12",
            store_password=STORE_PASSWORD,
            data=self.folder / "data",
        )
        partly = self._properties.with_suffix(".part")
        partly.write_text(text, encoding="utf-8")
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        _run(*self._java, "kafka.tools.StorageTool", "format", "-t", "MillstreamTestsAAAAAAA", "-c", str(partly),
             "--add-scram", scram)  # fmt: skip
        partly.rename(self._properties)

    def _started(self) -> bool:
        return b"Kafka Server started" in self.server.told.read_bytes()
