"""Recalls: evidence that was taken back. A recall names grades of one grader (by epoch, perhaps only those
known since a time) or one trajectory; what it covers is no reward any more, from whatever time it is.

An epoch that is recalled without an end stays recalled: runs that its grader goes on to grade are covered
as well, until another epoch grades them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from millstream.policy_event import PolicyEvent


class Recall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recall: of ``grader`` in ``epochs`` for grades known at ``since_ms`` or later and before ``until_ms``
    (0: whenever), or of a ``trajectory_id``, in every revision.
    """

    id: str
    grader: str = ""
    epochs: tuple[str, ...] = ()
    since_ms: int = 0
    until_ms: int = 0
    trajectory_id: str = ""
    reason: str = ""
    log_ms: int = 0

    def holds_at(self, known_ms: int) -> bool:
        """Whether a grade known at a time lies in the recall's span."""
        return self.since_ms <= known_ms and (not self.until_ms or known_ms < self.until_ms)


class Recalls(Struct, kw_only=True):
    """Every recall that stands, as `covers` and `takes` ask for them."""

    graders: dict[str, dict[str, Recall]] = field(default_factory=dict)
    """grader → recall id → recall"""
    trajectories: dict[str, Recall] = field(default_factory=dict)

    def add(self, recall: Recall) -> bool:
        """Take a recall in; False when it is known."""
        if recall.trajectory_id:
            return self.trajectories.setdefault(recall.trajectory_id, recall) is recall
        return self.graders.setdefault(recall.grader, {}).setdefault(recall.id, recall) is recall

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all recalls that stand."""
        graders = (identity for mine in self.graders.values() for identity in mine)
        return tuple(dict.fromkeys([*graders, *(recall.id for recall in self.trajectories.values())]))

    def lift(self, recall_id: str) -> bool:
        """Let a recall go; False when none of that id stands."""
        found = [mine for mine in self.graders.values() if mine.pop(recall_id, None) is not None]
        runs = [run for run, recall in self.trajectories.items() if recall.id == recall_id]
        for run in runs:
            del self.trajectories[run]
        self.graders = {grader: mine for grader, mine in self.graders.items() if mine}
        return bool(found or runs)

    def covers(self, grader: str, epoch: str, known_ms: int) -> Recall | None:
        """The recall that covers a grade, or None."""
        for recall in self.graders.get(grader, {}).values():
            if epoch in recall.epochs and recall.holds_at(known_ms):
                return recall
        return None

    def takes(self, trajectory_id: str) -> Recall | None:
        """The recall of a whole run, or None."""
        return self.trajectories.get(trajectory_id)


class EvidenceRecalled(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Evidence was taken back: grades of ``grader`` in ``epochs`` (known at ``since_ms`` or later, and before
    ``until_ms`` unless that is 0), or a whole ``trajectory_id``. It holds for every lineage and namespace;
    ``versions`` of this ``lineage`` learned from it, themselves or through the version that they started
    from, and ``trainings`` were asked to. The events of one recall, one a lineage, share ``recall_id``.
    """

    recall_id: str = ""
    grader: str = ""
    epochs: tuple[str, ...] = ()
    since_ms: int = 0
    until_ms: int = 0
    trajectory_id: str = ""
    versions: tuple[int, ...] = ()
    trainings: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""

    @property
    def recall(self) -> Recall:
        """What stands after it."""
        return Recall(
            id=self.recall_id or self.id,
            grader=self.grader,
            epochs=self.epochs,
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            trajectory_id=self.trajectory_id,
            reason=self.reason,
            log_ms=self.log_ms,
        )


class RecallLifted(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A recall was a mistake: what it took back is evidence again, and its quarantines end in this lineage."""

    recall_id: str
    reason: str = ""
    by: str = ""


NONE: Final = Recalls()
"""Nothing is recalled; never added to."""
