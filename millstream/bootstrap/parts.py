"""Optional parts: said before anything starts, all that are missing in one line."""

from __future__ import annotations

from importlib.util import find_spec

from millstream.console.doctor import EXTRAS
from millstream.errors import MissingExtra


def require(needed_for: str, *extras: str) -> None:
    """Raise `MissingExtra` that names those of the extras which are not (wholly) installed."""
    missing = [extra for extra in extras if any(find_spec(module) is None for module in EXTRAS[extra])]
    if missing:
        raise MissingExtra(",".join(missing), needed_for)
