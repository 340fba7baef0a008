"""A member that the brokers have forgotten joins anew."""

from __future__ import annotations

import pytest

from millstream.adapters import kafka_membership
from millstream.adapters.kafka_cluster import Cluster

pytestmark = pytest.mark.services


def test_a_member_knows_whether_the_brokers_know_it(works, wait):
    """Its own name is found in the group once it leads; another name is not, and neither is it in another group."""
    mill = works()
    cluster = Cluster.of(mill.runtime.loaded)
    member = kafka_membership.Membership(cluster, "millstream-train", "policy-events", "me", 6.0)
    try:
        wait(lambda: member.leads)
        assert not member._forgotten()
        member._instance = "somebody else"
        assert member._forgotten()
        member._instance, member._group = "me", "millstream-gate"
        assert member._forgotten()
    finally:
        member._instance, member._group = "me", "millstream-train"
        member.close()
