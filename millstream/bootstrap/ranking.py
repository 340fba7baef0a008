"""``graders rank``: the recorded runs of each task judged against each other, and recorded as feedback if wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.codec import digest
from millstream.console.catalog import whole_trajectories
from millstream.errors import SettingsError, nearest
from millstream.events import EventId, FeedbackGiven
from millstream.graders.judges.groups import GroupJudge, GroupJudged, group_judge, grouped, judged
from millstream.graders.judges.natives import is_judges, read_judges

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime

FLUSH_S = 30.0


def group_judge_named(runtime: Runtime, name: str) -> GroupJudge:
    """The judge of that name among the files of ``[graders] files``. Raises `SettingsError`."""
    loaded = runtime.loaded
    known = {
        judge: native
        for file in loaded.settings.graders.files
        if is_judges(file)
        for judge, native in read_judges(loaded.path(file)).items()
    }
    if name not in known:
        hint = nearest(name, sorted(known)) if known else "; [graders] files names no .toml file of judges"
        raise SettingsError(f"unknown judge {name!r}{hint}")
    return group_judge(known[name], name)


def rank(runtime: Runtime, name: str, *, limit: int | None = None, record: bool = False) -> Iterator[GroupJudged]:
    """Each group of the log, judged; at most ``limit``. ``record``: each run's score becomes feedback of that name.

    Raises `SettingsError` without the judge or its endpoint.
    """
    native, judge = group_judge_named(runtime, name), runtime.judge_model
    if judge is None:
        raise SettingsError(f"judge {name!r} needs an endpoint: set [judge] base_url")
    for group in grouped(whole_trajectories(runtime.log))[:limit]:
        found = judged(judge, native, group)
        if record:
            _record(runtime, name, found)
        yield found


def _record(runtime: Runtime, name: str, found: GroupJudged) -> None:
    """The ids are hashes of the group and its scores: recording the same twice changes nothing."""
    client = runtime.client(producer=f"judge {name}")
    whole = "\n".join(f"{place.trajectory_id} {place.score!r}" for place in found.places)
    for place in found.places:
        event = FeedbackGiven(
            id=EventId(digest("ranked", name, found.model, whole, place.trajectory_id)),
            trajectory_id=place.trajectory_id,
            producer=client.producer,
            time_ns=time.time_ns(),
            source="judge",
            name=name,
            value=place.score,
            comment=f"among {len(found.places)} runs of the task, by {found.model}",
        )
        client.put(event, 600)
    client.flush(FLUSH_S)
