"""The SDK: ``with millstream.record(task=…) as run:`` and plain calls, from any thread or coroutine.

Nothing here breaks or blocks the agent: errors of the SDK are logged and counted, errors of the agent
pass through untouched.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, cast

from millstream import settings
from millstream.capture.client import Client
from millstream.capture.guard import report
from millstream.capture.recorder import Run
from millstream.events import FeedbackSource, Interface, Split
from millstream.ports import Log


@functools.cache
def default_client() -> Client:
    """The client of this process, wired by `millstream.bootstrap` from the settings it finds.

    When that fails (bad settings, an unwritable folder) the agent goes on: the error is logged and
    nothing is recorded.
    """
    try:
        return cast("Client", import_module("millstream.bootstrap").client())
    except Exception as error:  # noqa: BLE001 - see above
        report("default_client", error)
        return Client(cast("Log", None), settings.Capture(queue_events=0))  # refuses and counts


def record(  # noqa: PLR0913 - the fields of the event
    task: Any = None,
    *,
    policy_version: int | None = None,
    lineage: str = "",
    group: str = "",
    attempt: int = 0,
    group_size: int = 1,
    split: Split | None = None,
    interface: Interface | Mapping[str, Any] | None = None,
    tools: Iterable[Mapping[str, Any]] = (),
    subject: str = "",
    agent: str = "",
    propensity: float | None = None,
    trajectory_id: str = "",
) -> Run:
    """Record a run: ``with millstream.record(task="…") as run:``, or call `Run.close` yourself.

    ``task``: a question, a `Task`, or a mapping with its fields. ``group``, ``attempt`` and
    ``group_size`` tell which runs were attempts at one task. ``split``: decided from the task's split
    key when not given. ``subject``: whose data this is. An exception inside the block ends the run as
    ``crash`` and is raised again. Never raises itself.
    """
    return default_client().start_run(
        task,
        policy_version=policy_version,
        lineage=lineage,
        group=group,
        attempt=attempt,
        group_size=group_size,
        split=split,
        interface=interface,
        tools=tools,
        subject=subject,
        agent=agent,
        propensity=propensity,
        trajectory_id=trajectory_id,
    )


start_run = record


def feedback(
    trajectory_id: str,
    *,
    value: float | None = None,
    source: FeedbackSource = "user",
    name: str = "",
    label: str = "",
    comment: str = "",
    response_id: str = "",
    valid_time_ns: int = 0,
) -> None:
    """Judge a run, from any process and at any time, also before it was recorded or days after.

    ``value``: higher is better; with several named judgements each becomes a grade ``feedback.<name>``.
    ``valid_time_ns``: when it was true, if not now (nanoseconds since 1970). Never raises.
    """
    default_client().feedback(
        trajectory_id,
        value=value,
        source=source,
        name=name,
        label=label,
        comment=comment,
        response_id=response_id,
        valid_time_ns=valid_time_ns,
    )


def flush(timeout: float = 5.0) -> bool:
    """Wait (seconds) until the log has everything recorded so far; whether it has."""
    return default_client().flush(timeout)
