"""Which one of several processes acts: the member of a consumer group that owns a topic's first partition.

The group is polled in a thread of its own, so whatever the process does takes as long as it takes. Nothing
is read: the records are another's business.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from millstream.adapters.kafka_client import KafkaClient, told
from millstream.adapters.kafka_cluster import Cluster
from millstream.errors import MillstreamError, Stuck

POLL_MS: Final = 200
LONGEST_PAUSE_S: Final = 5.0
ASK_AFTER_SESSIONS: Final = 3
"""After how many session timeouts the brokers are asked whether they know us."""
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
                if isinstance(said, Stuck):
                    self.trouble = said
                    return
                logger.warning("%s; trying again in %.1f s", said, pause)
            finally:
                self._leads = False
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _belong(self) -> None:
        consumer = self._consumer()
        asked = time.monotonic()
        try:
            consumer.subscribe([self.cluster.topic(self._topic)])
            while not self._stop.is_set():
                consumer.poll(timeout_ms=POLL_MS)
                owned = consumer.assignment()
                self._leads = any(place.partition == 0 for place in owned)
                if owned:
                    consumer.pause(*owned)
                if time.monotonic() - asked > ASK_AFTER_SESSIONS * self._session_s:
                    asked = time.monotonic()
                    if self._forgotten():
                        logger.warning("%s: the group %s has no member %s; joining anew", *self._who)
                        return
        finally:
            consumer.close(autocommit=False)

    def _forgotten(self) -> bool:
        """Whether the brokers do not count us as a member: seen after a restart under the same name, with a
        consumer that polled on and never joined again.
        """
        _, group, instance = self._who
        try:
            told = self._client.admin().describe_groups([group])[group]
        except (KafkaError, MillstreamError, OSError, KeyError):
            return False  # they do not answer: the consumer tells
        settled = told["group_state"] in ("Empty", "Dead", "Stable")
        return settled and all(member["group_instance_id"] != instance for member in told["members"])

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
            enable_auto_commit=False,
            auto_offset_reset="latest",
            metrics_enabled=False,
        )
