"""The services that tests run: they come up, and keep what they had through kill -9."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import redis
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from services import KafkaNode, RedisServer, missing_for_kafka, missing_for_redis
from services.fixtures import need

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]  # a node takes its time on a busy machine


def test_kafka_keeps_its_topics_through_kill_9(tmp_path):
    """Killed and started again on its data, a node has its topics at its old address."""
    need(missing_for_kafka())
    node = KafkaNode(tmp_path / "kafka")
    node.start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=node.address)
        admin.create_topics([NewTopic("kept", 2, 1)])
        admin.close()
        node.kill()
        node.start()
        admin = KafkaAdminClient(bootstrap_servers=node.address)
        assert admin.list_topics() == ["kept"]
        admin.close()
    finally:
        node.kill()


def test_redis_keeps_its_keys_through_kill_9(tmp_path):
    """What a Redis server answered is there when it was killed and started again, and it evicts nothing."""
    need(missing_for_redis())
    server = RedisServer(tmp_path / "redis", "--appendfsync", "always")
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
            server.kill()
            server.start()
            assert client.get("k") == b"v"
            assert client.info("memory")["maxmemory_policy"] == "noeviction"
    finally:
        server.kill()


def test_services_up_and_down(root, tmp_path):
    """`make services-up` prints settings of servers that answer; `make services-down` leaves nothing."""
    need(missing_for_kafka() or missing_for_redis())
    env = {**os.environ, "PYTHONPATH": str(root / "tests"), "TMPDIR": str(tmp_path)}

    def services(verb):
        command = [sys.executable, "-m", "services", verb]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    said = services("up")
    try:
        url = next(line.split('"')[1] for line in said.splitlines() if line.startswith("buffer"))
        with redis.Redis.from_url(url) as client:
            assert client.ping()
        assert 'log = "kafka://127.0.0.1:' in said
    finally:
        services("down")
    assert list(tmp_path.iterdir()) == []
    with redis.Redis.from_url(url) as client, pytest.raises(redis.ConnectionError):
        client.ping()
