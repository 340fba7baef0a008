"""Graded runs in their groups: who joins which, when a group is decided, and what may be forgotten.

Everything here is state of one namespace. Groups that wait have a timer by log time; groups that have
nothing in the buffer are forgotten after a while, or when there are too many runs, with their runs (a grade
that comes later still is kept in the log and counted).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from msgspec import Struct, field

from millstream.events import TrajectoryId
from millstream.streams.graded_runs import GradedRun
from millstream.streams.groups import Group, group_id


class GroupingState(Struct, kw_only=True):
    """``current``: the latest group of each key and its generation; ``idle``: groups and single runs that
    may be forgotten, with the log time since when, oldest first.
    """

    runs: dict[str, GradedRun] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    current: dict[str, tuple[str, int]] = field(default_factory=dict)
    idle: list[tuple[str, int]] = field(default_factory=list)


class Grouping:
    """The moves. It decides nothing itself: it says which groups are due. ``most``: beyond so many runs the
    oldest of those that may be forgotten are, whatever their age.
    """

    def __init__(self, timeout_ms: int, forget_ms: int, most: int) -> None:
        self.timeout_ms = timeout_ms
        self.forget_ms = forget_ms
        self.most = most
        self.load(GroupingState())

    def load(self, state: GroupingState) -> None:
        """Take a state and build the timers from it."""
        self.runs, self.groups, self.current = state.runs, state.groups, state.current
        self._idle = dict(state.idle)
        self._timers = [(g.deadline_ms, g.id) for g in self.groups.values() if not g.closed]
        heapify(self._timers)

    def state(self) -> GroupingState:
        """What a snapshot has to carry."""
        return GroupingState(runs=self.runs, groups=self.groups, current=self.current, idle=list(self._idle.items()))

    def run(self, trajectory_id: TrajectoryId, now_ms: int) -> GradedRun:
        """The run, made when it is new."""
        run = self.runs.get(trajectory_id)
        if run is None:
            run = self.runs[trajectory_id] = GradedRun(trajectory_id=trajectory_id)
            self._idle[trajectory_id] = now_ms
        return run

    def join(self, run: GradedRun, key: str, now_ms: int) -> Group:
        """Put a run into the group of its key: the current one while it has room, else a new one."""
        self._idle.pop(run.trajectory_id, None)
        found, generation = self.current.get(key, ("", -1))
        group = self.groups.get(found)
        if group is None or group.evicted or len(group.members) >= group.size:
            group = self._open(key, generation + 1, run, now_ms)
        group.members[run.trajectory_id] = None
        group.size = max(group.size, run.facts.group_size)
        group.waiting += run.waiting
        run.group = group.id
        return group

    def reopen(self, group: Group, now_ms: int) -> None:
        """Let a group whose rollouts were withdrawn wait once more: for its members, or for its timer."""
        group.closed, group.by_timer, group.admitted = False, False, ()
        group.deadline_ms = now_ms + self.timeout_ms
        self._idle.pop(group.id, None)
        if group.members:
            heappush(self._timers, (group.deadline_ms, group.id))
        else:
            self._drop(group)

    def _open(self, key: str, generation: int, run: GradedRun, now_ms: int) -> Group:
        deadline, size = now_ms + self.timeout_ms, run.facts.group_size
        alone: tuple[str | int, ...] = (run.revision, *run.grade_ids) if size <= 1 else ()
        name = group_id(key, generation, alone)
        group = Group(id=name, key=key, size=size, opened_ms=now_ms, deadline_ms=deadline)
        self.groups[group.id] = group
        self.current[key] = (group.id, generation)
        heappush(self._timers, (deadline, group.id))
        return group

    def leave(self, run: GradedRun, *, was_waiting: bool) -> Group | None:
        """Take a run out of its group; that group, or None when it is gone or was never there."""
        group = self.groups.get(run.group)
        run.group = ""
        if group is None:
            return None
        del group.members[run.trajectory_id]
        group.waiting -= was_waiting
        if not group.members and not group.admitted:
            self._drop(group)
            return None
        return group

    def members(self, group: Group) -> list[GradedRun]:
        """A group's runs in the order of their ids: a decision does not depend on who came first."""
        return [self.runs[trajectory_id] for trajectory_id in sorted(group.members)]

    def due(self, now_ms: int) -> Iterator[Group]:
        """Open groups whose timer is due, in the order of (deadline, id)."""
        while self._timers and self._timers[0][0] <= now_ms:
            deadline, name = heappop(self._timers)
            if (group := self._waiting(deadline, name)) is not None:
                yield group

    def _waiting(self, deadline: int, name: str) -> Group | None:
        """The group that a timer is of; None when it was decided, is gone or waits for another timer."""
        group = self.groups.get(name)
        return group if group is not None and not group.closed and group.deadline_ms == deadline else None

    def open(self) -> list[Group]:
        """Every group that waits, in the order in which their timers are due."""
        waiting = [group for group in self.groups.values() if not group.closed]
        return sorted(waiting, key=lambda group: (group.deadline_ms, group.id))

    def deadline_ms(self) -> int | None:
        """When the next timer is due."""
        while self._timers:
            if self._waiting(*self._timers[0]) is not None:
                return self._timers[0][0]
            heappop(self._timers)
        return None

    def rest(self, group: Group, now_ms: int) -> None:
        """After a decision: a group without rollouts in the buffer may be forgotten some day."""
        self._idle.pop(group.id, None)
        if not group.members:
            self._drop(group)
            return
        if not group.admitted:
            self._idle[group.id] = now_ms

    def forget(self, now_ms: int) -> None:
        """Drop what has been idle for too long, and the oldest of the rest while there are too many runs."""
        while self._idle:
            name = next(iter(self._idle))
            if self._idle[name] + self.forget_ms > now_ms and len(self.runs) <= self.most:
                return
            del self._idle[name]
            if (group := self.groups.get(name)) is not None:
                self._drop(group)
            else:
                self.runs.pop(name, None)

    def _drop(self, group: Group) -> None:
        del self.groups[group.id]
        for trajectory_id in group.members:
            del self.runs[trajectory_id]
        if group.size <= 1:
            self.current.pop(group.key, None)
