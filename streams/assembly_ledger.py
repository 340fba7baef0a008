"""The ledger of assembly: where each thing that came in went. It adds up; `millstream audit` reads it."""

from __future__ import annotations

from msgspec import Struct


class Ledger(Struct, kw_only=True):
    """Counters since the beginning. Each input (an event, a bad line, a null value) is in exactly one of
    the first group; a later event can move an earlier one out of ``accepted`` (the seqs after an end
    turn into ``after_end``, an older version of a link into ``superseded``). A line of a dialect counts as
    the events that it tells, as one when it tells none (``unmapped``), came before or comes too late.
    """

    accepted: int = 0
    duplicate: int = 0
    late: int = 0
    conflict: int = 0
    after_end: int = 0
    superseded: int = 0
    dead: int = 0
    feedback: int = 0
    tick: int = 0
    null: int = 0
    unmapped: int = 0

    inputs: int = 0
    revisions: int = 0
    sealed: int = 0
    purged: int = 0

    @property
    def balance(self) -> int:
        """Inputs that no counter holds: 0, or the fold is wrong."""
        return self.inputs - (
            self.accepted
            + self.duplicate
            + self.late
            + self.conflict
            + self.after_end
            + self.superseded
            + self.dead
            + self.feedback
            + self.tick
            + self.null
            + self.unmapped
        )
