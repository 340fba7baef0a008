"""What a room sees of requests that are passed on to another server, without an HTTP library in sight.

The adapter (`millstream.adapters.http_forward`) passes bytes on as they come and shows them to an `Exchange` on the
way. What an exchange does is done in the server's loop between two pieces: it may keep a piece, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names (in whatever case) and values, as they came."""
Ending: TypeAlias = Literal["whole", "broken", "left", "unanswered"]
"""How an exchange ended: answered to its last byte; the upstream broke off; the client left; the upstream could not
be reached, or did not answer, or the request was not let through.
"""
OWN_PREFIX: Final = b"x-millstream-"
"""Headers that are for us: they are never passed on."""
TOKEN_HEADER: Final = "x-millstream-token"  # noqa: S105 — where a token stands
"""Where the token of a forwarding server stands: the caller's own Authorization is for the upstream."""


class Exchange(Protocol):
    """One request and its answer, as the pieces pass by."""

    def sent(self, piece: bytes) -> None:
        """A piece of the request's body."""

    def answered(self, status: int, headers: Headers) -> None:
        """The head of the answer."""

    def came(self, piece: bytes) -> None:
        """A piece of the answer's body, as it was coded on the wire."""

    def over(self, ending: Ending) -> None:
        """Nothing more comes. Called once."""


class Watcher(Protocol):
    """Decides which requests are looked at."""

    def begin(self, method: str, path: str, headers: Headers) -> Exchange | None:
        """What looks at a request; None: it passes unseen. ``path`` is decoded and has no query."""
        ...

    def close(self) -> None:
        """No request comes any more. May take its time."""
