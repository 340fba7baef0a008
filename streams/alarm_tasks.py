"""Tasks as they are looked at, and the watch over a share of their runs.

Attempts at one task succeed and fail together, so single runs are no independent news: a hard task tried eight
times would be eight hits in a row. The runs of a task are one observation, the share of them that are hits. The
last eight tasks stay open, since attempts at several may run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from millstream.betting import Bet
from millstream.streams.alarm_measures import Sample

OPEN_TASKS = 8
KEPT_IDS = 50
"""How many of the runs that raised an alarm are named."""

Attempts: TypeAlias = Sequence[Sample]
"""The runs of one task."""
Hit: TypeAlias = Callable[[Sample], bool]


def share(attempts: Attempts, hit: Hit) -> float:
    """The share of a task's runs that are hits."""
    return sum(map(hit, attempts)) / len(attempts)


class OpenTasks(Struct, kw_only=True):
    """The last tasks, each with its runs so far."""

    tasks: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, sample: Sample) -> Attempts | None:
        """Take a run in. The runs of the oldest task, when this run's task is the ninth."""
        self.tasks.setdefault(sample.task, []).append(sample)
        return self.tasks.pop(next(iter(self.tasks))) if len(self.tasks) > OPEN_TASKS else None


class Watch(Struct, kw_only=True):
    """One share, the bet against it, and the runs that were hits. ``reference`` says against whom."""

    bet: Bet
    reference: str
    runs: int = 0
    hits: int = 0
    ids: list[str] = field(default_factory=list)
    told: bool = False

    def take(self, attempts: Attempts, hit: Hit, threshold: float) -> bool:
        """One more task; True when this one raises the alarm."""
        found = [run.trajectory_id for run in attempts if hit(run)]
        self.runs += len(attempts)
        if found:
            self.hits += len(found)
            self.ids += found
            del self.ids[:-KEPT_IDS]
        raised = self.bet.take(len(found) / len(attempts)) >= threshold and not self.told
        self.told = self.told or raised
        return raised

    def again(self) -> None:
        """Begin anew, after somebody cleared the alarm."""
        self.bet = Bet(expected=self.bet.expected, restarts=self.bet.restarts)
        self.runs = self.hits = 0
        self.ids.clear()
        self.told = False


class Track(Struct, kw_only=True):
    """The audits of one version (or of all): the open tasks, and the watch over the others. Without a watch
    the first ones are counted: (sum of their shares, tasks).
    """

    open: OpenTasks = field(default_factory=OpenTasks)
    watch: Watch | None = None
    counted: tuple[float, int] = (0.0, 0)
