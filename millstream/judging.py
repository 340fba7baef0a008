"""The port of judges: a chat endpoint that is asked for a verdict, and what is remembered of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from millstream.errors import MillstreamError, Unavailable

Form: TypeAlias = Literal["json_schema", "json_object", "none"]
"""How the endpoint is held to JSON: by a schema, to any object, or by words alone."""


class Ask(Struct, frozen=True, kw_only=True):
    """One question to a chat endpoint. ``messages`` are those of the OpenAI chat API, ``parameters`` the
    sampling's fields by their names there; ``schema`` is what the answer must fit.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    schema: Mapping[str, Any]
    form: Form = "json_schema"
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Reply(Struct, frozen=True, kw_only=True):
    """What came back. ``model`` is the name that the endpoint gave; tokens are −1 when it did not count them.
    ``finish``: why it ended (``stop``, ``length``, ``content_filter``). ``refusal``: the words of a refusal.
    """

    text: str
    model: str = ""
    finish: str = ""
    refusal: str = ""
    input_tokens: int = -1
    output_tokens: int = -1


class Busy(Unavailable):
    """The endpoint is away, overloaded or slow: worth another try, after ``wait_s`` when it said so."""

    def __init__(self, message: str, *, wait_s: float = 0.0, slow: bool = False) -> None:
        super().__init__(message)
        self.wait_s, self.slow = wait_s, slow


class Rejected(MillstreamError):
    """The endpoint won't answer this however often it is asked (a 4xx). ``form``: it said that it can't be held to
    JSON in that form.
    """

    def __init__(self, message: str, *, status: int = 400, body: bytes = b"", form: bool = False) -> None:
        super().__init__(message)
        self.status, self.body, self.form = status, body, form


class Poster(Protocol):
    """Posts JSON to URLs. Safe to call from many threads."""

    def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> bytes:
        """The body of the 200 that answers. Raises `Busy` or `Rejected`."""
        ...


class Endpoint(Protocol):
    """An OpenAI-compatible chat endpoint. Safe to call from many threads."""

    def complete(self, ask: Ask, timeout_s: float) -> Reply:
        """One call. Raises `Busy` or `Rejected`."""
        ...


class Memory(Protocol):
    """What outlives a process: verdicts that were read well, and what was spent on a day (YYYY-MM-DD, UTC)."""

    def recall(self, key: str) -> bytes | None:
        """What was kept under a key."""
        ...

    def keep(self, key: str, value: bytes) -> None:
        """Keep it; the oldest leave when there are too many."""
        ...

    def spend(self, day: str, cost: float) -> None:
        """Add to a day's spending."""
        ...

    def spent(self, day: str) -> float:
        """A day's spending so far, by all processes."""
        ...
