"""What hosted graders that reach outside are run with, from the settings."""

from __future__ import annotations

from collections.abc import Callable

from millstream.graders.hosted.means import Means
from millstream.settings import Loaded


def means_of(loaded: Loaded, on_close: Callable[[Callable[[], object]], None]) -> Means:
    """The means that the settings name. ``on_close`` takes what ends them."""
    del loaded, on_close
    return Means()
