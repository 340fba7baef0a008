"""The topics: a closed, typed list. All else is a projection that can be dropped and rebuilt."""

from __future__ import annotations

from msgspec import Struct


class Topic(Struct, frozen=True):
    """A topic of the log: its name, what a record of it is, and whether it has just one partition."""

    name: str
    holds: str
    single: bool = False


TELEMETRY = Topic("telemetry", "raw events as producers sent them, NDJSON, by trajectory")
TRAJECTORIES = Topic("trajectories", "sealed trajectories, and feedback on its way to the grades")
GRADES = Topic("grades", "GradeGiven and GradingFinished")
BUFFER_EVENTS = Topic("buffer-events", "every decision about a rollout", single=True)
POLICY_EVENTS = Topic("policy-events", "every decision about a policy version", single=True)
DEAD_LETTERS = Topic("dead-letters", "what could not be used, with where it came from and why")

ALL = (TELEMETRY, TRAJECTORIES, GRADES, BUFFER_EVENTS, POLICY_EVENTS, DEAD_LETTERS)
BY_NAME = {topic.name: topic for topic in ALL}
