"""What the grading process and its child say to each other. Work and its answer are msgpack; the trajectories in it
stay JSON, as they came, since that may hold what other codecs can't (whole numbers of any size).
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from millstream.grade import Grade
from millstream.graders.examples import Example
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


class Examples(Struct, frozen=True, kw_only=True):
    """What each grader's examples are."""

    by_grader: dict[str, tuple[Example, ...]] = field(default_factory=dict)


class Work(Struct, frozen=True, kw_only=True):
    """Grade each trajectory with each grader, named with the epoch that its grades will bear. ``load`` lets
    a fresh child load what its forerunner had. A trajectory is the JSON of a `Trajectory`: each grader
    gets one of its own, which it may change.
    """

    load: Load
    graders: tuple[tuple[str, str], ...]
    trajectories: tuple[bytes, ...]


class Done(Struct, frozen=True, kw_only=True):
    """Grades by trajectory and then by grader, in the order asked; nanoseconds likewise."""

    grades: tuple[tuple[Grade, ...], ...]
    latencies: tuple[tuple[int, ...], ...]


encode = msgspec.json.Encoder().encode
decode_load = msgspec.json.Decoder(Load).decode
decode_loaded = msgspec.json.Decoder(Loaded).decode
decode_examples = msgspec.json.Decoder(Examples).decode
pack = msgspec.msgpack.Encoder().encode
unpack_work = msgspec.msgpack.Decoder(Work).decode
unpack_done = msgspec.msgpack.Decoder(Done).decode
decode_trajectory = msgspec.json.Decoder(Trajectory).decode
decode_grade = msgspec.json.Decoder(Grade).decode
