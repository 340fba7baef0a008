"""A grader in a file of one's own that fails on part of the runs, as real ones do.

It asks a (pretended) ledger for the company's fiscal calendar before it judges whether a run was tidy, and
the ledger does not answer for some companies. The exception becomes ``Failed(error)``: the run has no reward,
fills its place in its group, and is counted; nothing anywhere becomes 0.
"""

from __future__ import annotations

import hashlib

import millstream as ms

SILENT_SHARE = 0.04


@ms.grader
def steady(t: ms.Trajectory) -> ms.Grade:
    """1 when no tool call failed, else the share of calls that worked."""
    _ask_the_ledger(t.id)
    results = [result for step in t.steps for result in step.results]
    failed = sum(bool(result.error) for result in results)
    return ms.score(1 - failed / len(results) if results else 1.0, reason=f"{failed} of {len(results)} calls failed")


def _ask_the_ledger(run: str) -> None:
    share = int.from_bytes(hashlib.blake2b(run.encode(), digest_size=4).digest(), "big") / 2**32
    if share < SILENT_SHARE:
        raise ConnectionError("the ledger did not answer")
