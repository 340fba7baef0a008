"""Feedback: what a user, a person, the environment or an outcome said of a run, as a grade.

It is not computed from the trajectory, so it has no lateness limit: it may come before the run or days
after it, and raises the revision of the reward.
"""

from __future__ import annotations

import math
from typing import Final

from millstream.events import FeedbackGiven
from millstream.grade import Grade, abstain, fail, score

NAME: Final = "feedback"
EPOCH: Final = "feedback@1"
LABELS: Final = {
    **dict.fromkeys(
        ("good", "pass", "passed", "correct", "right", "yes", "thumbs_up", "up", "positive", "success"), 1.0
    ),
    **dict.fromkeys(
        ("bad", "fail", "failed", "incorrect", "wrong", "no", "thumbs_down", "down", "negative", "failure"), 0.0
    ),
}
"""What a label alone is worth."""


def grader_name(event: FeedbackGiven) -> str:
    """``feedback``, or ``feedback.<name>`` for feedback that names what it is about."""
    return f"{NAME}.{event.name}" if event.name else NAME


def grade_feedback(event: FeedbackGiven) -> Grade:
    """The grade a piece of feedback is: its value as it came, or the worth of a known label."""
    reason = ": ".join(part for part in (event.source, event.comment[:200]) if part)
    if event.value is not None:
        if not math.isfinite(event.value):
            return fail(f"feedback value {event.value!r} is not finite", "unparsable")
        return score(event.value, label=event.label, reason=reason)
    worth = LABELS.get(event.label.strip().lower().replace(" ", "_").replace("-", "_"))
    if worth is not None:
        return score(worth, label=event.label, reason=reason)
    return abstain(f"feedback without a value{f', label {event.label[:60]!r}' if event.label else ''}")
