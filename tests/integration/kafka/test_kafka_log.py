"""What only Kafka does: topics that are replaced, brokers that go and come, credentials, clocks."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from kafka import KafkaProducer
from msgspec import structs
from services import KafkaNode, missing_for_kafka
from services.fixtures import need

from millstream.adapters.kafka_cluster import Cluster, addresses_of
from millstream.adapters.kafka_log import KafkaLog
from millstream.adapters.kafka_topics import KafkaTopics
from millstream.errors import PositionLost, Stuck, TooLarge, Unavailable
from millstream.ports import Message
from millstream.settings import KafkaSettings

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]  # a node takes its time on a busy machine


def test_records_of_a_topic_made_again_are_never_read_for_the_old_ones(log, topics):
    """A reader of a topic that was deleted and made again is told, though the offsets would fit."""
    log.append("telemetry", [Message("a", b"a")])
    assert log.read("telemetry", 0, 0)
    topics.delete("telemetry")
    topics.create()
    with pytest.raises(PositionLost, match="deleted and made again"):
        log.read("telemetry", 0, 0)
    first = log.topic_id("telemetry")
    assert log.topic_id("telemetry") == first
    assert list(log.read("telemetry", 0, 0)) == []


def test_time_is_the_broker_s_whatever_the_producer_says(log, cluster, kafka_node):
    """A foreign producer whose clock is a day ahead does not move the log's time."""
    producer = KafkaProducer(bootstrap_servers=kafka_node.address)
    ahead = int(time.time() * 1000) + 86_400_000
    producer.send(cluster.topic("telemetry"), b"x", b"k", partition=0, timestamp_ms=ahead).get(10)
    producer.close()
    (record,) = log.read("telemetry", 0, 0)
    assert record.log_ms < ahead - 80_000_000
    log.append("telemetry", [Message("k", b"y")])
    assert abs(log.now_ms() - log.read("telemetry", 0, 1)[0].log_ms) < 5_000


def test_an_append_of_megabytes_is_whole_or_absent_after_kill_9(log, cluster):
    """Killed in the middle of 2 MB appends of 200 records, a writer leaves whole appends."""
    code = (
        "from millstream.adapters.kafka_cluster import Cluster\n"
        "from millstream.adapters.kafka_log import KafkaLog\n"
        "from millstream.ports import Message\n"
        "from millstream.settings import KafkaSettings\n"
        f"log = KafkaLog({cluster!r})\n"
        "while True:\n"
        "    log.append('telemetry', [Message('k', b'x' * 10_000)] * 200)\n"
        "    print('.', flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        writer.stdout.readline()
    writer.kill()
    writer.communicate()
    count = log.bounds("telemetry")[1]
    assert count >= 600
    assert count % 200 == 0


def test_a_fork_has_connections_of_its_own(log, cluster):
    """A process that forked after it used the log (a web server, say) goes on, and so does its child."""
    code = (
        "import os\n"
        "from millstream.adapters.kafka_cluster import Cluster\n"
        "from millstream.adapters.kafka_log import KafkaLog\n"
        "from millstream.ports import Message\n"
        "from millstream.settings import KafkaSettings\n"
        f"log = KafkaLog({cluster!r})\n"
        "log.append('telemetry', [Message('before', b'')])\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    log.append('telemetry', [Message('child', b'')])\n"
        "    os._exit(len(log.read('telemetry', 0, 0)))\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2\n"
        "log.append('telemetry', [Message('after', b'')])\n"
        "log.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [r.key for r in log.read("telemetry", 0, 0)] == ["before", "child", "after"]


def test_a_record_that_never_fits_is_refused_before_anything_is_sent(log):
    """Too large is an error of the event, not of the broker; nothing of the append is written."""
    most = log.cluster.settings.max_batch_bytes
    with pytest.raises(TooLarge, match="max_batch_bytes"):
        log.append("telemetry", [Message("a", b"a"), Message("b", b"x" * most)])
    assert log.bounds("telemetry") == (0, 0)
    log.append("telemetry", [Message("c", b"x" * (most - 1000))])
    assert len(log.read("telemetry", 0, 0)[0].value) == most - 1000


def test_several_appends_go_in_one_round_trip(log):
    """Outputs for many places are written together, each in its order."""
    sent = {("telemetry", p): [Message(f"{p}{n}", b"v") for n in range(3)] for p in range(2)}
    sent["grades", 1] = [Message("g", b"v")]
    assert log.append_all(sent) == {("telemetry", 0): 0, ("telemetry", 1): 0, ("grades", 1): 0}
    assert [r.key for r in log.read("telemetry", 1, 0)] == ["10", "11", "12"]


def test_sasl_over_tls_reads_and_appends(topics, secure):
    """The credentials and the certificate of the settings are enough, for topics and for the log."""
    with closing(KafkaTopics(secure)) as found:
        assert all(state.id for state in found.create())
    with closing(KafkaLog(secure)) as log:
        log.append("telemetry", [Message("a", b"a")])
        assert [r.value for r in log.read("telemetry", 0, 0)] == [b"a"]
        assert log.wait({"telemetry:0": 0}, 5)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_refused_credentials_are_told_at_once(secure, mechanism):
    """A wrong password is an answer, not a silence: nothing is tried again."""
    wrong = structs.replace(
        secure, password="wrong", settings=structs.replace(secure.settings, sasl_mechanism=mechanism)
    )
    with closing(KafkaLog(wrong)) as log, pytest.raises(Stuck, match="refuses the credentials of 'millstream'"):
        log.read("telemetry", 0, 0)
    with closing(KafkaLog(wrong)) as log, pytest.raises(Stuck, match="refuses the credentials"):
        log.append("telemetry", [Message("a", b"a")])


def impatient(cluster, **changes):
    return structs.replace(cluster, settings=structs.replace(cluster.settings, timeout_s=1.0, **changes))


def test_a_certificate_that_is_not_trusted_is_told(secure):
    """Not as silence: the certificate and the setting are named."""
    log = KafkaLog(structs.replace(impatient(secure), ca_file=None))
    with closing(log), pytest.raises(Unavailable, match=r"not trusted.*ca_file"):
        log.bounds("telemetry")


def test_a_broker_that_speaks_plainly_is_told(cluster, kafka_node):
    """TLS towards a plain listener is a matter of settings."""
    log = KafkaLog(impatient(cluster, security_protocol="SSL"))
    with closing(log), pytest.raises(Unavailable, match=r"check \[kafka\] security_protocol"):
        log.bounds("telemetry")


def test_a_node_that_goes_and_comes_is_waited_for(tmp_path, prefix):
    """Killed, the node is `Unavailable` in one line; started again, the same handle goes on and nothing is lost."""
    need(missing_for_kafka())
    node = KafkaNode(tmp_path / "kafka")
    node.start()
    settings = KafkaSettings(namespace=prefix, replication=1, min_insync=1, timeout_s=2)
    cluster = Cluster(addresses=addresses_of(node.url), settings=settings)
    try:
        with closing(KafkaTopics(cluster)) as topics, closing(KafkaLog(cluster)) as log:
            topics.create()
            log.append("telemetry", [Message("a", b"a")])
            node.kill()
            for act in (
                lambda: log.read("telemetry", 0, 0),
                lambda: log.append("telemetry", [Message("lost", b"?")]),
                lambda: log.bounds("telemetry"),
            ):
                with pytest.raises(Unavailable, match=rf"{node.address} does not answer: Connection refused"):
                    act()
            assert not log.wait({"telemetry:0": 1}, 0.1)
            starting = threading.Thread(target=node.start)
            starting.start()
            _eventually(lambda: log.append("telemetry", [Message("b", b"b")]))
            starting.join()
            assert [r.key for r in log.read("telemetry", 0, 0)] == ["a", "b"]
    finally:
        node.kill()


def _eventually(act, patience_s=60):
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return act()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
