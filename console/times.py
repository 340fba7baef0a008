"""Times as people write and read them: ISO, with the zone said."""

from __future__ import annotations

from datetime import UTC, datetime

from millstream.errors import SettingsError


def iso(ms: int) -> str:
    """A log time as ``2026-01-31T12:00:00.000Z``."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Milliseconds since the epoch of an ISO time (local where no zone is given). Raises `SettingsError`."""
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise SettingsError(f"{text!r} is no ISO time; write 2026-01-31T12:00 or 2026-01-31T12:00:00Z") from None


def duration(ms: int) -> str:
    """A span in its two largest units: ``3 d 4 h``, ``2 min 5 s``, ``350 ms``."""
    if ms < 1000:
        return f"{ms} ms"
    parts, left = [], ms // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
