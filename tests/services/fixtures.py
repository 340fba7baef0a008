"""Fixtures: one Kafka node and one Redis server for a whole session; tests share them by prefixes of their own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.kafka_node import KafkaNode, missing_for_kafka
from services.mlflow_server import MlflowServer
from services.redis_server import RedisServer, missing_for_redis


def need(missing: str) -> None:
    """Skip the test for what is missing; a failure where everything must be there (``CI`` is set)."""
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A Kafka node that runs for the whole session: never stop it, start a `KafkaNode` of your own for that."""
    need(missing_for_kafka())
    node = KafkaNode(Path(tmp_path_factory.mktemp("kafka")))
    node.start()
    yield node
    node.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis server that runs for the whole session: never stop it, start a `RedisServer` of your own for that."""
    need(missing_for_redis())
    server = RedisServer(Path(tmp_path_factory.mktemp("redis")))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """An MLflow server that runs for the whole session; a lineage of its own keeps a test apart."""
    server = MlflowServer(Path(tmp_path_factory.mktemp("mlflow-server")))
    server.start(90)
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """A namespace of this test's own for topics, groups and keys."""
    return f"t{uuid.uuid4().hex[:12]}"
