"""A namespace of the session's Kafka node, its topics made."""

from __future__ import annotations

from contextlib import closing

import pytest
from msgspec import structs

from millstream.adapters.kafka_cluster import Cluster, addresses_of
from millstream.adapters.kafka_log import KafkaLog
from millstream.adapters.kafka_topics import KafkaTopics
from millstream.settings import KafkaSettings
from millstream.topics import ALL


@pytest.fixture
def cluster(kafka_node, prefix):
    """Settings of a namespace of this test's own."""
    settings = KafkaSettings(namespace=prefix, replication=1, min_insync=1, partitions=2)
    return Cluster(addresses=addresses_of(kafka_node.url), settings=settings)


@pytest.fixture
def secure(cluster, kafka_node):
    """The same namespace by SASL over TLS."""
    return Cluster(
        addresses=addresses_of(kafka_node.secure_url),
        settings=structs.replace(cluster.settings, security_protocol="SASL_SSL", username=kafka_node.user),
        password=kafka_node.password,
        ca_file=str(kafka_node.ca),
    )


@pytest.fixture
def topics(cluster):
    """The topics of the namespace, made."""
    with closing(KafkaTopics(cluster)) as found:
        found.create()
        yield found
        found.delete(*(topic.name for topic in ALL))


@pytest.fixture
def log(cluster, topics):
    """Its log."""
    with closing(KafkaLog(cluster)) as found:
        yield found
