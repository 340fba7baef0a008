"""The garbage collector of a process that streams: many small frozen objects, hardly a cycle."""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 50)
"""Young objects are looked through 70 times less often than by default: 6 % of the embedded path."""


def collect_seldom() -> None:
    """Collect cycles seldom, and never look at what start-up made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
