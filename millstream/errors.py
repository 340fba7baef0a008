"""Errors, sorted by what the caller does next.

    MillstreamError
    ├── SettingsError      stop: the configuration or the usage is wrong          exit 2
    ├── EventError         dead-letter the event and go on
    │   ├── Undecodable    not an event: bytes, JSON or fields are wrong
    │   ├── UnknownSchema  a kind or a schema number this version does not know
    │   └── TooLarge       over the size limit and not repairable
    ├── GraderError        becomes a Failed grade, never a number
    ├── Unavailable        something outside is down: retry with backoff           exit 3
    │   ├── Overrun        a child process took more than it may and was replaced: do not retry
    │   └── Stuck          waiting does not mend it, a person must: stop           exit 3
    │       └── PositionLost
    └── Conflict           somebody else moved the state: re-read, then try again

A refused promotion is a decision (an event), not an error.
"""

from __future__ import annotations

import difflib


class MillstreamError(Exception):
    """The root: its message names the input, the place and the mend."""

    exit_code = 70


class SettingsError(MillstreamError):
    """The settings or the command line are wrong; nothing was started."""

    exit_code = 2


class MissingExtra(SettingsError):
    """An optional part is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs an optional part: pip install 'millstream[{extra}]'")


class EventError(MillstreamError):
    """One event is unusable; it becomes a dead letter and the stream goes on."""

    reason = "unusable"
    trajectory_id = ""
    seq = -1
    link = None


class Undecodable(EventError):
    """Bytes that are no JSON, or JSON that is no event."""

    reason = "undecodable"


class UnknownSchema(EventError):
    """A kind or schema number that this version does not know."""

    reason = "unknown_schema"


class TooLarge(EventError):
    """An event over the hard size limit."""

    reason = "too_large"


class GraderError(MillstreamError):
    """A grader could not grade; recorded as a Failed grade."""


class Unavailable(MillstreamError):
    """Something outside (disk, Redis, MLflow, a broker) does not answer; retry with backoff."""

    exit_code = 3


class Stuck(Unavailable):
    """Something outside refuses and will go on refusing (credentials, say): stop, a person must mend it."""


class Overrun(Unavailable):
    """A child process printed, answered or left behind more than it may, and was ended; the same work would do so
    again.
    """


class PositionLost(Stuck):
    """A stage's position lies outside its topic, the topic was replaced, or records are damaged; a
    person must decide. ``resume``: the next offset that can be read, where there is one.
    """

    def __init__(self, message: str, resume: int | None = None) -> None:
        super().__init__(message)
        self.resume = resume


class Conflict(MillstreamError):
    """Another writer moved the state; re-read it before trying again."""


def nearest(word: str, known: list[str]) -> str:
    """`` (did you mean …?)`` with the nearest known word, or nothing."""
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {found[0]!r}?" if found else f"; known: {', '.join(sorted(known))}"
