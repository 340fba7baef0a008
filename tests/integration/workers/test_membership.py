"""Whose turn it is: a member that nobody knows, and a group that gave the partition to nobody, are noticed in time."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.consumer import ConsumerProtocolAssignment

from millstream.adapters.kafka_cluster import Cluster
from millstream.adapters.kafka_membership import Membership

pytestmark = pytest.mark.services

SESSION_S = 6.0


class Nothing(RangePartitionAssignor):
    """Assigns nothing to anybody, as a leader does that has not heard of the topic."""

    @classmethod
    def assign(cls, cluster, members):
        del cluster
        return {one.member_id: ConsumerProtocolAssignment(0, [], b"") for one in members}


@pytest.fixture
def cluster(works):
    return Cluster.of(works().runtime.loaded)


@pytest.fixture
def member(cluster):
    """Makes members of one group; all leave."""
    made = []

    def make(instance="me"):
        made.append(Membership(cluster, "millstream-train", "policy-events", instance, SESSION_S))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_member_knows_whether_the_brokers_know_it(member, wait):
    """Its own name is found in the group once it leads; another name is not, and neither is it in another group."""
    one = member()
    wait(lambda: one.leads)
    assert one._astray() == ""
    one._instance = "somebody else"
    assert one._astray() == "has no member of this name"
    one._instance, one._group = "me", "millstream-gate"
    assert one._astray() == "has no member of this name"
    one._group = "millstream-train"


def test_a_member_that_is_thrown_out_leads_again_within_a_session(member, wait):
    """By whatever: the brokers have forgotten it, and it may not have heard."""
    one = member()
    wait(lambda: one.leads)
    one._leave()
    assert one._astray()
    began = time.monotonic()
    wait(lambda: one._astray() == "" and one.leads)
    assert time.monotonic() - began < SESSION_S


def test_a_partition_that_nobody_was_given_is_shared_out_anew(cluster, member, wait):
    """A static member comes back and gets what its predecessor had: nothing. It leads within a session all the
    same.
    """
    before = KafkaConsumer(
        cluster.topic("policy-events"),
        **cluster.kafka_python(),
        group_id=cluster.topic("millstream-train"),
        group_instance_id="me",
        session_timeout_ms=int(SESSION_S * 1000),
        partition_assignment_strategy=[Nothing],
        enable_auto_commit=False,
    )
    wait(lambda: before.poll(timeout_ms=200) or before._coordinator.stable())
    before.close(autocommit=False)  # a static member does not leave
    began = time.monotonic()
    one = member()
    wait(lambda: one.leads)
    assert time.monotonic() - began < SESSION_S
