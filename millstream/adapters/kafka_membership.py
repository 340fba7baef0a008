"""Which one of several processes acts: the member of a consumer group that owns a topic's first partition.

The group is polled in a thread of its own, so whatever the process does takes as long as it takes. Nothing
is read: the records are another's business.

What kafka-python tells of itself is not enough. It waits for the answer to a join as long as a poll may take (five
minutes by default), and never asks again whether the group still has it. And a static member that comes back gets
what its predecessor had: nothing, when the leader of the group had not heard of the topic yet, and then nobody acts,
ever. Two members were also seen to call each other to join again and again. So a poll may take half a session here,
and the brokers are asked how the group stands, who belongs to it and who owns the partition.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.errors import KafkaError

from millstream.adapters.kafka_client import KafkaClient, told
from millstream.adapters.kafka_cluster import Cluster
from millstream.errors import MillstreamError, Stuck, Unavailable

POLL_MS: Final = 200
FETCH_MS: Final = 100
"""Nothing is read, but the library wants it to be shorter than any answer may take ([kafka] timeout_s)."""
LONGEST_PAUSE_S: Final = 5.0
ASK_SHARE, DOUBTS = 0.3, 2
"""After what share of a session the brokers are asked whether all is well, and how often they must deny it: longer
than a join takes.
"""
logger = logging.getLogger(__name__)


class Membership:
    """A member of ``group``; `leads` says whether it is its turn. ``instance``: who we are, the same after a
    restart; ``session_s``: after how long a silent member loses its turn.
    """

    def __init__(self, cluster: Cluster, group: str, topic: str, instance: str, session_s: float) -> None:
        self.cluster = cluster
        self.trouble: MillstreamError | None = None
        """What a person has to see to, or None."""
        self._group, self._topic, self._instance, self._session_s = group, topic, instance, session_s
        self._client = KafkaClient(cluster)
        self._stop = threading.Event()
        self._leads = False
        self._thread = threading.Thread(target=self._run, name="membership")
        self._thread.start()

    @property
    def leads(self) -> bool:
        """Whether this process acts now."""
        return self._leads

    def close(self) -> None:
        """Leave."""
        self._stop.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        pause = 0.1
        while not self._stop.is_set():
            try:
                self._belong()
            except (KafkaError, OSError) as error:
                said = told(error, self.cluster)
                if not isinstance(said, Unavailable) or isinstance(said, Stuck):
                    self.trouble = said
                    return
                logger.warning("%s; trying again in %.1f s", said, pause)
            finally:
                self._leads = False
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _belong(self) -> None:
        consumer, topic = self._consumer(), self.cluster.topic(self._topic)
        asked, doubts = time.monotonic(), 0
        try:
            consumer.partitions_for_topic(topic)  # a leader that has not heard of it assigns nothing to anybody
            consumer.subscribe([topic])
            while not self._stop.is_set():
                consumer.poll(timeout_ms=POLL_MS)
                owned = consumer.assignment()
                self._leads = any(place.partition == 0 for place in owned)
                if owned:
                    consumer.pause(*owned)
                if time.monotonic() - asked > ASK_SHARE * self._session_s:
                    asked = time.monotonic()
                    why = self._astray()
                    doubts = doubts + 1 if why else 0
                    if doubts >= DOUBTS:
                        logger.warning("%s: the group %s %s; %s joins anew", *self._who[:2], why, self._instance)
                        break
        finally:
            consumer.close(autocommit=False)
        if not self._stop.is_set():
            self._leave()

    def _astray(self) -> str:
        """What is wrong with the group as the brokers see it, by which nobody would ever act; empty: nothing."""
        _, group, instance = self._who
        try:
            told = self._client.admin().describe_groups([group])[group]
        except (KafkaError, MillstreamError, OSError, KeyError):
            return ""  # they do not answer: the consumer tells
        if told["group_state"] not in ("Empty", "Dead", "Stable"):
            return "" if self._leads else "does not settle"
        if all(member["group_instance_id"] != instance for member in told["members"]):
            return "has no member of this name"
        return "" if any(map(_owns, told["members"])) else "has assigned the partition to nobody"

    def _leave(self) -> None:
        """Have the brokers forget the name, so that they share out anew instead of giving back what it had."""
        _, group, instance = self._who
        try:
            self._client.admin().remove_group_members(group, [MemberToRemove(group_instance_id=instance)])
        except (KafkaError, MillstreamError, OSError) as error:
            logger.debug("%s was not removed from %s: %s", instance, group, error)

    @property
    def _who(self) -> tuple[str, str, str]:
        return self.cluster.url, self.cluster.topic(self._group), self._instance

    def _consumer(self) -> Any:
        return KafkaConsumer(
            **self.cluster.kafka_python(),
            group_id=self.cluster.topic(self._group),
            group_instance_id=self._instance,
            session_timeout_ms=int(self._session_s * 1000),
            heartbeat_interval_ms=int(self._session_s * 250),
            max_poll_interval_ms=int(self._session_s * 500),
            fetch_max_wait_ms=FETCH_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            metrics_enabled=False,
        )


def _owns(member: dict[str, Any]) -> bool:
    """Whether a member, as the brokers describe it, has a first partition."""
    assigned = member["member_assignment"] or {}
    return any(0 in place["partitions"] for place in assigned.get("assigned_partitions", ()))
