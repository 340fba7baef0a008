"""Real services for tests, benches and `make services-up`: one Kafka node, one Redis server.

`missing()` says what of the machine is lacking; nothing here is installed with the package.
"""

from __future__ import annotations

from services.kafka_node import KafkaNode, missing_for_kafka
from services.processes import ServiceFailed
from services.redis_server import RedisServer, missing_for_redis

__all__ = ["KafkaNode", "RedisServer", "ServiceFailed", "missing_for_kafka", "missing_for_redis"]
