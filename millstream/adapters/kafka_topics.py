"""The topics of a cluster as they should be: made, compared, and checked before a worker starts.

A partition count never changes: it decides where a key lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    KafkaError,
    NoError,
    PolicyViolationError,
    StaleMetadata,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from millstream.adapters.kafka_client import KafkaClient
from millstream.adapters.kafka_cluster import Cluster
from millstream.errors import Stuck
from millstream.ports import TopicDifference, TopicState
from millstream.topics import ALL, TELEMETRY, Topic

REQUIRED = ("message.timestamp.type", "cleanup.policy", "max.message.bytes")
"""Without these the system is wrong, not only different: times that go back, records that vanish or don't fit."""
MEND = "`millstream topics create` mends it"


class KafkaTopics:
    """The topics of one namespace, by the admin client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = KafkaClient(cluster)

    def close(self) -> None:
        """Leave the cluster."""
        self.client.close()

    def wanted(self, topic: Topic) -> tuple[int, dict[str, str]]:
        """The partition count and the configuration of a topic by the settings."""
        kafka = self.cluster.settings
        retention = kafka.telemetry_retention_s if topic is TELEMETRY else kafka.retention_s
        return 1 if topic.single else kafka.partitions, {
            "cleanup.policy": "delete",
            "retention.ms": str(retention * 1000 or -1),
            "retention.bytes": "-1",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(kafka.max_batch_bytes),
            "min.insync.replicas": str(kafka.min_insync),
            "unclean.leader.election.enable": "false",
        }

    def states(self) -> list[TopicState]:
        """Every topic of the closed list, and how it differs from the settings."""
        return self.client.patiently(self._states)

    def _states(self) -> list[TopicState]:
        admin = self.client.admin()
        names = {topic.name: self.cluster.topic(topic.name) for topic in ALL}
        described = {told["name"]: told for told in admin.describe_topics(list(names.values()))}
        for told in described.values():
            error = for_code(told["error_code"])
            if error not in (NoError, UnknownTopicOrPartitionError):
                raise error(told["name"])
        there = [name for name in names.values() if described[name]["error_code"] == 0]
        configs = self._configs(there)
        return [self._state(topic, described[names[topic.name]], configs.get(names[topic.name], {})) for topic in ALL]

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        answer = self.client.admin().describe_configs(asked, config_filter="all")
        topics: dict[str, Any] = next(iter(answer.values()))
        return {name: {key: str(entry["value"]) for key, entry in found.items()} for name, found in topics.items()}

    def _state(self, topic: Topic, told: dict[str, Any], config: dict[str, str]) -> TopicState:
        if told["error_code"]:
            return TopicState(topic=topic.name, name=self.cluster.topic(topic.name))
        partitions, wanted = self.wanted(topic)
        replication = min(len(part["replica_nodes"]) for part in told["partitions"])
        pairs = [
            ("partitions", str(len(told["partitions"])), str(partitions), topic.single),
            ("replication", str(replication), str(self.cluster.settings.replication), False),
            *((key, config.get(key, ""), value, key in REQUIRED) for key, value in wanted.items()),
        ]
        return TopicState(
            topic=topic.name,
            name=told["name"],
            id=str(told["topic_id"]),
            partitions=len(told["partitions"]),
            differences=tuple(
                TopicDifference(key=key, found=found, wanted=value, wrong=wrong)
                for key, found, value, wrong in pairs
                if not _agrees(key, found, value)
            ),
        )

    def create(self, *, apply: bool = False) -> list[TopicState]:
        """Make what is missing and mend what is wrong; with ``apply`` also what only differs. How it stands
        then, ``done`` saying what was changed. Never changes a partition count or a replication.
        """
        before = self.states()
        made = [state.topic for state in before if not state.id]
        if made:
            self.client.patiently(lambda: self._create([topic for topic in ALL if topic.name in made]))
        changes = {
            state.name: {d.key: d.wanted for d in state.differences if "." in d.key and (apply or d.wrong)}
            for state in before
        }
        changes = {name: keys for name, keys in changes.items() if keys}
        if changes:
            self.client.patiently(lambda: self._alter(changes))
        done = {state.topic: tuple(changes.get(state.name, ())) for state in before}
        return [
            TopicState(
                topic=state.topic,
                name=state.name,
                id=state.id,
                partitions=state.partitions,
                differences=state.differences,
                done=("created",) if state.topic in made else done[state.topic],
            )
            for state in self.states()
        ]

    def _create(self, topics: Sequence[Topic]) -> None:
        asked = {}
        for topic in topics:
            partitions, configs = self.wanted(topic)
            asked[self.cluster.topic(topic.name)] = {
                "num_partitions": partitions,
                "replication_factor": self.cluster.settings.replication,
                "configs": configs,
            }
        admin = self.client.admin()
        for told in admin.create_topics(asked, raise_errors=False)["topics"]:
            error = for_code(told["error_code"])
            if error not in (NoError, TopicAlreadyExistsError):
                raise error(told.get("error_message") or told["name"])
        admin.wait_for_topics(list(asked), timeout_ms=int(self.cluster.settings.timeout_s * 1000))

    def _alter(self, changes: dict[str, dict[str, str]]) -> None:
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, keys) for name, keys in changes.items()]
        told: dict[str, str] = self.client.admin().alter_configs(asked)["topic"]
        for name, answer in told.items():
            if answer != "OK":
                raise PolicyViolationError(f"{name}: {answer}")
        if any(not keys.items() <= self._configs([name])[name].items() for name, keys in changes.items()):
            raise StaleMetadata("the brokers have not all heard of it")

    def check(self) -> None:
        """What a worker asks before it starts. Raises `Stuck` with the command that mends it."""
        states = self.states()
        missing = [state.name for state in states if not state.id]
        if missing:
            raise Stuck(f"{self.cluster.url} lacks the topics {', '.join(missing)}; {MEND}")
        for state in states:
            for d in state.differences:
                if d.wrong and d.key == "partitions":
                    raise Stuck(
                        f"{self.cluster.url}: {state.name} has {d.found} partitions, and its one writer knows "
                        f"{d.wanted}; delete it while it is empty, then `millstream topics create`"
                    )
                if d.wrong:
                    raise Stuck(f"{self.cluster.url}: {state.name} has {d.key}={d.found}, not {d.wanted}; {MEND}")

    def delete(self, *names: str) -> None:
        """Delete topics, for tests and for a generation that was drained; a missing one is no error."""

        def act() -> None:
            gone = self.client.admin().delete_topics([self.cluster.topic(name) for name in names], raise_errors=False)
            for told in gone["topics"]:
                error: type[KafkaError] = for_code(told["error_code"])
                if error not in (NoError, UnknownTopicOrPartitionError):
                    raise error(told["name"])

        self.client.patiently(act)


def _agrees(key: str, found: str, wanted: str) -> bool:
    """A topic may take larger records than asked for, and hold more copies."""
    if key in ("max.message.bytes", "min.insync.replicas", "replication") and found.isdigit():
        return int(found) >= int(wanted)
    return found == wanted
