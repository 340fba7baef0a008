"""Events: the facts that agents emit, one frozen struct each.

On the wire an event is one JSON object, tagged by ``kind``; a record of ``telemetry`` is one or more
of them as NDJSON, all of one partition. ``schema`` counts incompatible changes; `millstream.codec`
upcasts older ones at read. ``time_ns`` is told by the producer: shown, never used as a timer.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias

from msgspec import Meta, Struct, field

SCHEMA: Final = 1
"""The schema number this version writes."""

MAX_SEQ: Final = 2**31 - 1

EventId = NewType("EventId", str)
TrajectoryId = NewType("TrajectoryId", str)
TaskId = NewType("TaskId", str)

Split: TypeAlias = Literal["train", "held_out", "report"]
FeedbackSource: TypeAlias = Literal["user", "human", "environment", "outcome", "judge"]
EndReason: TypeAlias = Literal["done", "limit", "crash", "cancelled"]
LogprobKind: TypeAlias = Literal["raw", "processed"]
Whole: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number in 64 bits: what state and snapshots can hold. A larger one makes a dead letter."""
Nanoseconds: TypeAlias = Whole
"""Since the epoch; a larger number is no time."""


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the agent was asked to do. ``reference`` is the known right answer, if any."""

    id: TaskId = TaskId("")
    question: str = ""
    reference: str | float | None = None
    split_key: str = ""
    family: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


class Interface(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Hashes of what the policy was shown; empty where unknown.

    Two interfaces mismatch when a part is known on both sides and differs.
    """

    tools: str = ""
    system: str = ""
    template: str = ""
    tokenizer: str = ""

    def mismatch(self, other: Interface) -> str:
        """The name of the first part that is known on both sides and differs, else ''."""
        for part in ("tools", "system", "template", "tokenizer"):
            mine, theirs = getattr(self, part), getattr(other, part)
            if mine and theirs and mine != theirs:
                return part
        return ""


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call the policy asked for. ``arguments`` is None when ``arguments_raw`` is not a JSON object."""

    id: str = ""
    name: str = ""
    arguments: dict[str, Any] | None = None
    arguments_raw: str = ""
    malformed: bool = False


class Priced(Struct, frozen=True, kw_only=True, gc=False):
    """The price that a cost was reckoned with: the table's version, the day since which it holds, its currency."""

    table: str
    since: str
    currency: str


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens and money of one model call. Cached tokens are part of the input, reasoning tokens of the output.
    ``cost`` is what the producer told (0: nothing), unless ``priced`` says by which price it was reckoned.
    """

    input_tokens: Whole = 0
    output_tokens: Whole = 0
    cached_tokens: Whole = 0
    reasoning_tokens: Whole = 0
    cost: float = 0.0
    priced: Priced | None = None


class Truncated(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a bounded text was before it was cut. ``blob``: the SHA-256 under which all of it lies in the blob
    directory, as it was after redaction; '' when it was not kept.
    """

    length: Whole
    sha256: str
    blob: str = ""


class Link(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Identity and order of an event from a span dialect (the linked mode of assembly).

    ``key`` names the thing (trace and span, plus the part within it); of several versions of one key
    the highest (``finality``, content hash) wins. ``parent`` and ``after`` are keys this one hangs
    under and follows. ``root`` marks the root span; a root with ``finality`` > 0 has ended. ``alias`` is
    a second key, under which others tell of the thing (a model's answer in the next prompt): an event
    whose key is the alias of another is a worse version of that one.
    """

    key: str
    parent: str = ""
    after: str = ""
    finality: Whole = 0
    root: bool = False
    alias: str = ""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """The envelope every event carries."""

    id: Annotated[EventId, Meta(min_length=1)]
    trajectory_id: Annotated[TrajectoryId, Meta(min_length=1)]
    producer: str = ""
    seq: Annotated[int, Meta(ge=0, le=MAX_SEQ)] | None = None
    time_ns: Nanoseconds = 0
    agent: str = ""
    subject: str = ""
    schema: Literal[1] = SCHEMA
    link: Link | None = None
    flags: tuple[str, ...] = ()


class TrajectoryStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """A run began. ``propensity`` is the probability with which this policy version was assigned."""

    task: Task = field(default_factory=Task)
    lineage: str = ""
    policy_version: Whole | None = None
    interface: Interface = field(default_factory=Interface)
    split: Split | None = None
    group: str = ""
    attempt: Whole = 0
    group_size: Whole = 1
    propensity: float | None = None
    tools: tuple[dict[str, Any], ...] = ()
    source: str = ""


class MessageReceived(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """A message from the system, a user or another agent reached the policy."""

    role: Literal["system", "user", "agent"] = "user"
    content: str = ""
    name: str = ""
    truncated: Truncated | None = None


class ModelResponded(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """The policy acted. Token ids and log-probs are optional; ``prompt_token_ids`` is the whole prompt.

    ``lineage`` and ``policy_version``: whose step it is, where another policy than that of the start acted.
    ``sampling``: the other settings that shaped the answer (seed, penalties, token limits, …), as the API names them.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    model: str = ""
    response_id: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: Whole | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    lineage: str = ""
    policy_version: Whole | None = None
    prompt_token_ids: tuple[Whole, ...] | None = None
    token_ids: tuple[Whole, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    logprob_kind: LogprobKind | None = None
    truncated: Truncated | None = None


class ToolReturned(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """A tool answered a call. ``error`` is set when it failed."""

    call_id: str = ""
    name: str = ""
    output: str = ""
    error: str = ""
    duration_ns: Nanoseconds = 0
    truncated: Truncated | None = None


class FeedbackGiven(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """Somebody or something judged the run; may come before the run or days after it."""

    source: FeedbackSource = "user"
    name: str = ""
    value: float | None = None
    label: str = ""
    comment: str = ""
    response_id: str = ""
    valid_time_ns: Nanoseconds = 0


class TrajectoryEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """A run ended. ``last_seq`` maps each producer to the last seq it sent (this event's included)."""

    reason: EndReason = "done"
    final_answer: str | None = None
    last_seq: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Tick(Event, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """Time passed on an idle partition: appended by its owner so that timers fire from the log alone."""


HISTORY = "history"
"""The flag of a response that was given before the run: context of the policy's steps, none of its own."""

CLOSE_OPEN = "close_open"
"""The flag of a tick after which nothing more is waited for (`millstream up --close-open`)."""

NO_RUN = TrajectoryId("-")
"""What a tick has for a trajectory id: it belongs to no run, and no id may be empty."""

AnyEvent: TypeAlias = (
    TrajectoryStarted | MessageReceived | ModelResponded | ToolReturned | FeedbackGiven | TrajectoryEnded | Tick
)

EVENT_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        TrajectoryStarted,
        MessageReceived,
        ModelResponded,
        ToolReturned,
        FeedbackGiven,
        TrajectoryEnded,
        Tick,
    )
}


def new_id() -> str:
    """A fresh UUIDv7 (RFC 9562): time-ordered, so a trajectory id also tells when it was born."""
    import os
    import time

    ms = time.time_ns() // 1_000_000
    value = (ms << 80) | int.from_bytes(os.urandom(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def born_ms(trajectory_id: str) -> int | None:
    """Milliseconds since the epoch inside a UUIDv7 id, or None when the id is not one."""
    if len(trajectory_id) != 36 or trajectory_id[14] != "7":
        return None
    try:
        return int(trajectory_id[:8] + trajectory_id[9:13], 16)
    except ValueError:
        return None
