"""Reaching a Kafka cluster: addresses, names, secrets; no broker needed."""

from __future__ import annotations

import pytest

from millstream.adapters.kafka_cluster import Cluster, addresses_of
from millstream.errors import SettingsError
from millstream.loading import load
from millstream.logs import mask


def loaded(tmp_path, text, **environ):
    (tmp_path / "millstream.toml").write_text(f'[storage]\nlog = "kafka://a:1,b"\n[kafka]\n{text}')
    return load(tmp_path / "millstream.toml", environ=environ)


def test_addresses_have_a_port_each():
    """Several brokers are told apart by commas; 9092 is Kafka's own port."""
    assert addresses_of("kafka://a:1,b") == ("a:1", "b:9092")


@pytest.mark.parametrize("url", ["kafka://", "kafka://a/b", "kafka://me:secret@a:1", "kafka://a:x"])
def test_what_is_no_address_is_told_with_the_mend(url):
    """Names and passwords don't belong in the URL."""
    with pytest.raises(SettingsError, match="write kafka://HOST:9092"):
        addresses_of(url)


def test_a_namespace_prefixes_topics(tmp_path):
    """Two namespaces never meet, and an own name is found again."""
    cluster = Cluster.of(loaded(tmp_path, 'namespace = "one"'))
    assert cluster.topic("telemetry") == "one.telemetry"
    assert cluster.own("one.telemetry") == "telemetry"
    assert cluster.own("two.telemetry") is None


def test_the_password_comes_from_the_environment_or_a_file(tmp_path):
    """Both ways give it; neither is shown."""
    sasl = 'security_protocol = "SASL_PLAINTEXT"\nusername = "me"\n'
    assert Cluster.of(loaded(tmp_path, sasl, MILLSTREAM_KAFKA__PASSWORD="p")).password == "p"
    (tmp_path / "secret").write_text("q\n")
    assert Cluster.of(loaded(tmp_path, sasl + 'password_file = "secret"')).password == "q"
    assert mask("p", "kafka.password") == "***"


def test_sasl_without_a_password_is_told(tmp_path):
    """Where the password can be given is in the message."""
    with pytest.raises(SettingsError, match="MILLSTREAM_KAFKA__PASSWORD"):
        Cluster.of(loaded(tmp_path, 'security_protocol = "SASL_SSL"\nusername = "me"'))


def test_a_trajectory_must_fit_a_record(tmp_path):
    """Else a worker would seal what it can never publish."""
    with pytest.raises(SettingsError, match=r"\[assembly\] max_bytes = 32000000 does not fit"):
        Cluster.of(loaded(tmp_path, "max_batch_bytes = 10_000_000"))
    assert Cluster.of(loaded(tmp_path, "max_batch_bytes = 10_000_000\n[assembly]\nmax_bytes = 8_000_000"))


def test_a_file_that_is_not_there_is_told(tmp_path):
    """The key and the path are named."""
    with pytest.raises(SettingsError, match=r"ca_file.*no file at"):
        Cluster.of(loaded(tmp_path, 'security_protocol = "SSL"\nca_file = "ca.pem"'))
