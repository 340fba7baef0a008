"""What the library raises, as one line with the mend: what heals is waited for, what does not ends the process."""

from __future__ import annotations

import pytest
from kafka import errors
from services.old_broker import OldBroker

from millstream.adapters.kafka_client import heals, told
from millstream.adapters.kafka_cluster import Cluster
from millstream.adapters.kafka_log import KafkaLog
from millstream.adapters.kafka_topics import KafkaTopics
from millstream.errors import SettingsError, Stuck, Unavailable
from millstream.ports import Message
from millstream.settings import KafkaSettings

NOWHERE = Cluster(addresses=("127.0.0.1:1",), settings=KafkaSettings(username="me"))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.SaslAuthenticationFailedError("no"), "refuses the credentials of 'me'"),
        (errors.UnsupportedSaslMechanismError("no"), "check [kafka] username, password and sasl_mechanism"),
        (errors.TopicAuthorizationFailedError("telemetry"), "does not allow this to 'me'"),
        (errors.IncompatibleBrokerVersion("Fetch"), "speaks too old a protocol"),
        (errors.InvalidReplicationFactorError("3 > 1"), "see [kafka] replication"),
    ],
)
def test_what_does_not_heal_is_stuck(error, says):
    """Nothing is tried again, and the address is named."""
    found = told(error, NOWHERE)
    assert not heals(error)
    assert type(found) is Stuck
    assert str(found).startswith("kafka://127.0.0.1:1 ") or str(found).startswith("kafka://127.0.0.1:1: ")
    assert says in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    "error", [errors.KafkaTimeoutError("bootstrap"), errors.NotLeaderForPartitionError("x"), OSError("reset")]
)
def test_what_heals_is_told_by_its_cause(error):
    """Nobody listens there: that is said, not the library's words for it."""
    assert heals(error)
    found = told(error, NOWHERE)
    assert type(found) is Unavailable
    assert "Connection refused; is it running, and is [storage] log right?" in str(found)


def test_settings_that_the_library_refuses_are_settings():
    """Exit 2, not 3."""
    assert isinstance(told(errors.KafkaConfigurationError("x"), NOWHERE), SettingsError)


def test_a_broker_of_long_ago_is_refused_at_the_door():
    """Whatever is asked of it first: one line with the address and both versions, and nothing is left open."""
    with OldBroker() as broker:
        cluster = Cluster(addresses=(broker.address,), settings=KafkaSettings(timeout_s=2))
        log, topics = KafkaLog(cluster), KafkaTopics(cluster)
        for ask in (
            lambda: log.bounds("telemetry"),
            lambda: log.append("telemetry", [Message("k", b"v")]),
            topics.check,
        ):
            with pytest.raises(Stuck) as found:
                ask()
            assert str(found.value) == (
                f"kafka://{broker.address} speaks too old a protocol (UnsupportedVersionError: that of Kafka 0.10.0); "
                "Kafka 3.1 or later is needed"
            )
        log.close()
        topics.close()
