"""What the grading process and its child say to each other: JSON, both ways, since trajectories came as
JSON and may hold what other codecs can't (whole numbers of any size).
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct, field

from millstream.grade import Grade
from millstream.graders.registry import Source
from millstream.trajectory import Trajectory

HANDLER = "millstream.graders.child"
"""The module that the child process serves."""


class Caller(Protocol):
    """A child process that answers calls and is replaced when it hangs or dies."""

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call. Raises TimeoutError at the deadline and `Unavailable` when the process ended (both
        times the next call meets a fresh one), `GraderError` when the handler raised.
        """
        ...

    def close(self) -> None:
        """End the process."""
        ...


class Load(Struct, frozen=True, kw_only=True):
    """Load these files, and those of ``wanted`` that installed packages offer."""

    files: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


class Declared(Struct, frozen=True, kw_only=True):
    """A grader as its child knows it."""

    name: str
    low: float
    high: float
    epoch: str
    source: Source


class Loaded(Struct, frozen=True, kw_only=True):
    """What was loaded, or why nothing was."""

    graders: tuple[Declared, ...] = ()
    problem: str = ""


class Work(Struct, frozen=True, kw_only=True):
    """Grade each trajectory with each grader, named with the epoch that its grades will bear. ``load`` lets
    a fresh child load what its forerunner had. A trajectory is the JSON of a `Trajectory`: each grader
    gets one of its own, which it may change.
    """

    load: Load
    graders: tuple[tuple[str, str], ...]
    trajectories: tuple[Raw, ...]


class Done(Struct, frozen=True, kw_only=True):
    """Grades by trajectory and then by grader, in the order asked; nanoseconds likewise."""

    grades: tuple[tuple[Grade, ...], ...]
    latencies: tuple[tuple[int, ...], ...]


encode = msgspec.json.Encoder().encode
decode_load = msgspec.json.Decoder(Load).decode
decode_loaded = msgspec.json.Decoder(Loaded).decode
decode_work = msgspec.json.Decoder(Work).decode
decode_done = msgspec.json.Decoder(Done).decode
decode_trajectory = msgspec.json.Decoder(Trajectory).decode
decode_grade = msgspec.json.Decoder(Grade).decode
