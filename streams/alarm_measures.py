"""What the alarms watch in a run: ways out of its grade, and figures that drift.

**Avoidance**: kinds of runs that are left out of the grades, or could be: a policy that expects to fail learns
to end in one of them. **Drift**: how long its words, how many its calls, how much it repeats itself.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from millstream.grader_events import AlarmKind
from millstream.rollout import RolloutFacts


class Measure(Struct, frozen=True):
    """A share of runs that is watched: what kind of alarm it raises, and in words what such a run did.
    ``value`` names the figure and ``above`` its side, for drift.
    """

    name: str
    alarm: AlarmKind
    told: str
    value: str = ""
    above: bool = True


AVOIDANCE: Final = (
    Measure("broken_calls", "avoidance", "broke a tool call"),
    Measure("timed_out", "avoidance", "ran out of time"),
    Measure("asked", "avoidance", "ended in a question instead of doing anything"),
    Measure("limit", "avoidance", "ran into a limit"),
    Measure("ungraded", "avoidance", "left a grader without a score"),
)
DRIFT: Final = (
    Measure("longer", "drift", "wrote more than nine in ten", "chars"),
    Measure("shorter", "drift", "wrote less than nine in ten", "chars", above=False),
    Measure("more_calls", "drift", "made more calls than nine in ten", "calls"),
    Measure("fewer_calls", "drift", "made fewer calls than nine in ten", "calls", above=False),
    Measure("more_repetition", "drift", "repeated itself more than nine in ten", "repetition"),
)
FOOLED: Final = Measure("fooled", "hack", "were paid though gold failed them")
DISAGREES: Final = Measure("disagrees", "disagreement", "were judged otherwise by gold than by the reward")
VALUES: Final = ("chars", "calls", "repetition")


class Sample(Struct, frozen=True, array_like=True):
    """One run as it is watched: which ways out it took, and its figures."""

    trajectory_id: str
    task: str
    hits: tuple[str, ...] = ()
    values: dict[str, float] = {}


def sample_of(trajectory_id: str, facts: RolloutFacts, *, ungraded: bool, timed_out: bool) -> Sample:
    """A run's sample. ``ungraded``: a grader that was asked gave no score; ``timed_out``: one of them hung."""
    habits = facts.habits
    told = {
        "broken_calls": habits.broken > 0,
        "timed_out": timed_out or facts.status == "timed_out",
        "asked": habits.asked,
        "limit": facts.hit_limit,
        "ungraded": ungraded,
    }
    values = {"chars": float(habits.chars), "calls": float(habits.calls), "repetition": habits.repetition}
    hits = tuple(name for name, hit in told.items() if hit)
    return Sample(trajectory_id, facts.task_id or trajectory_id, hits, values)
