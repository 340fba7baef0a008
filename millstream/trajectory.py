"""Trajectories: one whole run, in order, each event once, as `streams.assembly` seals it."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from millstream.events import (
    HISTORY,
    AnyEvent,
    Interface,
    ModelResponded,
    Task,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)

Status: TypeAlias = Literal["complete", "timed_out", "interrupted"]
SealReason: TypeAlias = Literal[
    "complete",
    "idle_timeout",
    "max_age",
    "gap_timeout",
    "overflow",
    "unanswered_call",
    "reported_crash",
    "dangling_link",
]
STATUS_OF: dict[SealReason, Status] = {
    "complete": "complete",
    "idle_timeout": "timed_out",
    "max_age": "timed_out",
    "gap_timeout": "interrupted",
    "overflow": "interrupted",
    "unanswered_call": "interrupted",
    "reported_crash": "interrupted",
    "dangling_link": "interrupted",
}


CALL_FAILED: Final = "call_failed"
"""The flag of a response that never came whole: the model's server failed, or the caller left."""


def acted(response: ModelResponded) -> bool:
    """Whether a response is an action of the run's policy: it came whole, and in this run."""
    return CALL_FAILED not in response.flags and HISTORY not in response.flags


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen while assembling; outside ``content_hash`` (a redelivery changes only this). ``cause``: "replay"
    for a revision that came of reading history again.
    """

    first_log_ms: int = 0
    sealed_ms: int = 0
    duplicates: int = 0
    conflicts: int = 0
    partition: int = 0
    cause: str = ""


class Step(Struct, frozen=True):
    """One policy action and what came back for its calls, in call order."""

    response: ModelResponded
    results: tuple[ToolReturned, ...]


class Trajectory(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A sealed run. The highest revision wins; ``missing`` names the seqs that never came
    (``producer:seq``) or the keys that dangle.
    """

    id: TrajectoryId
    revision: int = 1
    status: Status = "complete"
    reason: SealReason = "complete"
    content_hash: str = ""
    missing: tuple[str, ...] = ()
    events: tuple[AnyEvent, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    mapping_epoch: int = 0

    @cached_property
    def started(self) -> TrajectoryStarted | None:
        """The start event, if it arrived."""
        return next((e for e in self.events if isinstance(e, TrajectoryStarted)), None)

    @cached_property
    def ended(self) -> TrajectoryEnded | None:
        """The end event, if it arrived."""
        return next((e for e in self.events if isinstance(e, TrajectoryEnded)), None)

    @property
    def task(self) -> Task:
        """The task; an empty one when the start never came."""
        return self.started.task if self.started else Task()

    @property
    def interface(self) -> Interface:
        """The interface hashes; all unknown when the start never came."""
        return self.started.interface if self.started else Interface()

    @property
    def responses(self) -> tuple[ModelResponded, ...]:
        """The policy's actions, in order."""
        return tuple(e for e in self.events if isinstance(e, ModelResponded) and acted(e))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Each action with the tool results that answer its calls (by call id, any position)."""
        results: dict[str, list[ToolReturned]] = {}
        for event in self.events:
            if isinstance(event, ToolReturned):
                results.setdefault(event.call_id, []).append(event)
        return tuple(
            Step(r, tuple(found for call in r.tool_calls for found in results.get(call.id, ()))) for r in self.responses
        )

    @cached_property
    def unanswered(self) -> tuple[str, ...]:
        """Ids of calls that no result answers."""
        answered = {e.call_id for e in self.events if isinstance(e, ToolReturned)}
        return tuple(c.id for r in self.responses for c in r.tool_calls if c.id not in answered)

    @cached_property
    def orphans(self) -> tuple[ToolReturned, ...]:
        """Tool results that answer no call of this run or its history; kept, never given to a chat template."""
        asked = {c.id for e in self.events if isinstance(e, ModelResponded) for c in e.tool_calls}
        return tuple(e for e in self.events if isinstance(e, ToolReturned) and e.call_id not in asked)

    @property
    def final_answer(self) -> str | None:
        """The answer the run ended with: the end event's, else the last response without calls."""
        if self.ended is not None and self.ended.final_answer is not None:
            return self.ended.final_answer
        return next((r.text for r in reversed(self.responses) if r.text and not r.tool_calls), None)

    @property
    def hit_limit(self) -> bool:
        """Whether the policy drove the run into a turn, token, tool or size limit."""
        return self.reason == "overflow" or (self.ended is not None and self.ended.reason == "limit")

    @property
    def censored(self) -> bool:
        """Whether telemetry or infrastructure, not the policy, cut the run short."""
        return self.status != "complete" and not self.hit_limit
