"""Several children with the same graders, side by side: for graders that wait more than they work.

The window is bounded (what one call of each child takes), and answers leave in the order of the questions.
A trajectory waits for its own graders at most: deadline times attempts, and for those that were asked with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from millstream.graders.registry import Grader
from millstream.graders.running import Crew, Given
from millstream.trajectory import Trajectory

_trajectory = msgspec.json.Decoder(Trajectory).decode


class Crews:
    """Like a `Crew`, of several. One caller at a time."""

    def __init__(self, crews: Sequence[Crew]) -> None:
        self._crews = tuple(crews)
        self._threads = ThreadPoolExecutor(len(self._crews), thread_name_prefix="crew")

    @property
    def graders(self) -> tuple[Grader, ...]:
        """The same in each."""
        return self._crews[0].graders

    @graders.setter
    def graders(self, graders: tuple[Grader, ...]) -> None:
        for crew in self._crews:
            crew.graders = graders

    @property
    def ahead(self) -> int:
        """How many trajectories are worth asking for together now."""
        return len(self._crews) * min(crew.ahead for crew in self._crews)

    def foresee(self, raw: Sequence[bytes]) -> list[list[list[Given]]] | None:
        """The grades of trajectories (as JSON) that come next, each child asked for a part of them."""
        size = -(-len(raw) // len(self._crews))
        parts = [raw[start : start + size] for start in range(0, len(raw), size)]
        rows = self._threads.map(_rows, self._crews, parts)
        return [row for part in rows for row in part]

    def grade(
        self, trajectories: Sequence[Trajectory], graders: Sequence[Grader] | None = None
    ) -> list[list[list[Given]]]:
        """See `Crew.grade`; by one child."""
        return self._crews[0].grade(trajectories, graders)

    def close(self) -> None:
        """End the children."""
        self._threads.shutdown(cancel_futures=True)
        for crew in self._crews:
            crew.close()


def _rows(crew: Crew, part: Sequence[bytes]) -> list[list[list[Given]]]:
    """One child's part; one at a time where together is slow or has failed."""
    rows = crew.foresee(part) if len(part) > 1 else None
    return [crew.grade([_trajectory(one)])[0] for one in part] if rows is None else rows
