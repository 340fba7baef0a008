"""What the buffer needs to know of a trajectory to decide about it without its text: `RolloutFacts`."""

from __future__ import annotations

from array import array

import msgspec

from millstream.codec import digest
from millstream.events import Interface, MessageReceived, ModelResponded, TaskId
from millstream.rollout import RolloutFacts
from millstream.streams.habits import habits_of
from millstream.streams.signatures import signature
from millstream.trajectory import Trajectory

MAX_TOKENS = 2**53
"""No run has more; told numbers may add up to more than state can hold."""


def facts_of(t: Trajectory, size: int) -> RolloutFacts:
    """The facts of a trajectory whose record is ``size`` bytes long."""
    started = t.started
    responses = t.responses
    text = policy_text(responses)
    return RolloutFacts(
        task_id=task_id_of(t),
        split=started.split if started else None,
        split_key=t.task.split_key,
        family=t.task.family,
        group=started.group if started else "",
        attempt=started.attempt if started else 0,
        group_size=started.group_size if started else 1,
        lineage=started.lineage if started else "",
        policy_version=started.policy_version if started else None,
        interface=t.interface,
        status=t.status,
        reason=t.reason,
        hit_limit=t.hit_limit,
        trainable=bool(text) or any(r.token_ids for r in responses),
        bytes=size,
        policy_tokens=min(sum(map(_tokens, responses)), MAX_TOKENS),
        steps=len(responses),
        token_hash=token_hash(responses, text),
        signature=signature(text),
        habits=habits_of(t, text),
    )


def _tokens(response: ModelResponded) -> int:
    """How many tokens were sampled: counted, else as told."""
    return max(0, response.usage.output_tokens) if response.token_ids is None else len(response.token_ids)


def policy_text(responses: tuple[ModelResponded, ...]) -> str:
    """What the policy itself wrote: its reasoning, texts and calls, a line each."""
    lines = []
    for response in responses:
        lines += [part for part in (response.reasoning, response.text) if part]
        for call in response.tool_calls:
            arguments = call.arguments_raw
            if not arguments and call.arguments is not None:
                arguments = msgspec.json.encode(call.arguments, order="sorted").decode()
            lines.append(f"{call.name} {arguments}")
    return "\n".join(lines)


def task_id_of(t: Trajectory) -> TaskId:
    """The caller's task id, else a hash of the interface and of the messages before the first action,
    white space and case made alike; '' for a run that shows neither task nor message.
    """
    if t.task.id:
        return t.task.id
    first = list(_opening(t))
    if not first and t.task.question:
        first = [f"user:{_normalised(t.task.question)}"]
    if not first:
        return TaskId("")
    return TaskId("task-" + digest(*_known(t.interface), *first))


def _opening(t: Trajectory) -> list[str]:
    opening = []
    for event in t.events:
        if isinstance(event, ModelResponded):
            break
        if isinstance(event, MessageReceived):
            opening.append(f"{event.role}:{_normalised(event.content)}")
    return opening


def _normalised(text: str) -> str:
    return " ".join(text.split()).casefold()


def _known(interface: Interface) -> tuple[str, str, str, str]:
    return interface.tools, interface.system, interface.template, interface.tokenizer


def token_hash(responses: tuple[ModelResponded, ...], text: str) -> str:
    """Equal for identical answers: of the sampled token ids where all are known, else of the text."""
    if responses and all(r.token_ids is not None for r in responses):
        return digest(*(array("q", r.token_ids or ()).tobytes() for r in responses))
    return digest(text) if text else ""
