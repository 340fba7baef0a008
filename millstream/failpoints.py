"""Failpoints: named places at which a process kills itself, for tests of what a death there costs.

``MILLSTREAM_FAILPOINT=NAME:N`` kills this process (SIGKILL, as a crash of the machine would) when it comes to
the place for the N-th time. The variable is read here and nowhere else; without it nothing happens.
"""

from __future__ import annotations

import os
import signal
from typing import Final

BEFORE_COMMIT: Final = "before-commit"
"""A group was fed; nothing of it is in the store."""
IN_COMMIT: Final = "in-commit"
"""In the store's transaction, part of it written (the Redis store's is one script, which a client can't be inside)."""
BEFORE_PUBLISH: Final = "before-publish"
"""The group is in the store; its outputs are in the outbox and not in the log."""
IN_PUBLISH: Final = "in-publish"
"""Some partitions have the outputs, others have not."""
AFTER_PUBLISH: Final = "after-publish"
"""The log has the outputs; the outbox does not know it."""
AFTER_CHECKPOINT: Final = "after-checkpoint"
"""A training has a checkpoint with what it consumed; nothing of it is acknowledged."""
BEFORE_FINISH: Final = "before-finish"
"""A training is done, its checkpoint written and its version registered; the log does not know it."""
BEFORE_DECISION: Final = "before-decision"
"""A gate has judged; the log does not know it."""

ALL: Final = (
    BEFORE_COMMIT, IN_COMMIT, BEFORE_PUBLISH, IN_PUBLISH, AFTER_PUBLISH, AFTER_CHECKPOINT, BEFORE_FINISH,
    BEFORE_DECISION,
)  # fmt: skip

_name, _, _count = os.environ.get("MILLSTREAM_FAILPOINT", "").partition(":")
_left = int(_count) if _count.isdigit() else 1


def reach(name: str) -> None:
    """Die here if it is asked for."""
    global _left  # noqa: PLW0603 — a process dies once
    if name == _name:
        _left -= 1
        if _left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
