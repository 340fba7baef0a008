"""Suspect: which step of a run most likely went wrong, without a judge. A hint for people, no reward.

A step is suspect by three signs, each counting one: what came back for it was an error (a failed tool, a terminal's
traceback); it makes something up (``assume``, ``hypothetical``, ``simulate``); it admits that it could not. The score
is the share of steps without any sign. The steps are graded, too, and the first of those with most signs is labelled
``suspect``, the others ``sign``.

On 60 failed multi-agent runs whose wrong step people had found (Who&When) it names that step in 33 %, and one within
a step of it in 58 %; always naming the second does it in 32 %, naming any at random in 15 %. So it is hardly better
than a guess by place: read what it says, and train on nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from millstream.events import MessageReceived, ModelResponded, ToolReturned
from millstream.grade import Grade, abstain, score, step
from millstream.trajectory import Trajectory

VERSION: Final = 1
MAX_LENGTH: Final = 20_000

_ERROR = re.compile(r"exitcode: [1-9]|traceback|\w+error\b|exception", re.IGNORECASE)
_SIGNS: Final = {
    "makes something up": re.compile(
        r"\b(assum\w+|hypothetical\w*|simulat\w+|placeholder|for illustration|for example purposes|mock|presum\w+)\b",
        re.IGNORECASE,
    ),
    "could not": re.compile(
        r"\b(sorry|apologi\w+|unable|cannot|can't|couldn't|could not|not able|failed|no results?|not found|"
        r"unfortunately)\b",
        re.IGNORECASE,
    ),
}


def suspect() -> Callable[[Trajectory], Grade]:
    """The grader ``suspect``; abstains without a step."""

    def grade(t: Trajectory) -> Grade:
        found = list(_signs(t))
        if not found:
            return abstain("the policy never acted")
        most = max(map(len, found))
        if not most:
            return score(1.0, label="nothing", reason="no sign of trouble")
        first = next(n for n, signs in enumerate(found, 1) if len(signs) == most)
        steps = [
            step(n, "suspect" if n == first else "sign", 0.0, reason=", ".join(signs))
            for n, signs in enumerate(found, 1)
            if signs
        ]
        reason = f"step {first} of {len(found)}: {', '.join(found[first - 1])}"
        return score(1 - len(steps) / len(found), label="suspect", reason=reason, steps=steps)

    return grade


def _signs(t: Trajectory) -> Iterator[list[str]]:
    """For each action of the policy the signs of trouble in it and in what followed it."""
    events = t.events
    for at, event in enumerate(events):
        if isinstance(event, ModelResponded):
            text = f"{event.reasoning}\n{event.text}"[:MAX_LENGTH]
            signs = [sign for sign, pattern in _SIGNS.items() if pattern.search(text)]
            yield [*signs, *(["came back as an error"] if _failed(t, at) else [])]


def _failed(t: Trajectory, at: int) -> bool:
    """Whether what came back for an action was an error: of its calls, or as the message after it."""
    event = t.events[at]
    assert isinstance(event, ModelResponded)
    asked = {call.id for call in event.tool_calls}
    following = t.events[at + 1] if at + 1 < len(t.events) else None
    told = following.content if isinstance(following, MessageReceived) and following.role == "agent" else ""
    if _ERROR.search(told[:MAX_LENGTH]):
        return True
    return any(isinstance(e, ToolReturned) and bool(e.error) and e.call_id in asked for e in t.events[at + 1 :])
