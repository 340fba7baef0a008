"""Millstream's own events, one a line, as the log holds them: what an export or another log gives."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.codec import decode_lines
from millstream.errors import EventError, Undecodable
from millstream.events import AnyEvent, Tick


def is_event(row: Any) -> bool:
    """Whether a row looks like an event, of whatever schema."""
    return isinstance(row, dict) and isinstance(row.get("kind"), str) and "trajectory_id" in row


def event(row: dict[str, Any]) -> AnyEvent:
    """The event of a row; older schemas are upcast. Raises `EventError`."""
    found = decode_lines(msgspec.json.encode(row))[0][0]
    if isinstance(found, EventError):
        raise found
    if isinstance(found, Tick):
        raise Undecodable("a Tick is the log's own and is not imported; drop the row")
    return found
