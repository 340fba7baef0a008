"""The agent comes first: what goes wrong in here is logged and counted, never raised."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec

logger = logging.getLogger("millstream.capture")

P = ParamSpec("P")

failures: dict[str, int] = {}
"""How often each guarded function failed in this process."""


def guarded(function: Callable[P, Any]) -> Callable[P, None]:
    """A function of the SDK that does its work or logs why not; it returns nothing and never raises."""

    @functools.wraps(function)
    def safe(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the agent goes on whatever it handed us
            report(function.__qualname__, error)

    return safe


def report(name: str, error: Exception) -> None:
    """Count a failure; log the 1st, 2nd, 4th, 8th, … of its kind with the traceback."""
    failures[name] = count = failures.get(name, 0) + 1
    if count & (count - 1) == 0:
        logger.warning("millstream: %s failed and recorded nothing (time %d)", name, count, exc_info=error)
