"""Logging: one line a fact on standard error, and secrets masked wherever settings are shown."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

_SECRET = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://)(?P<user>[^:@/\s]*):(?P<secret>[^@/\s]+)@", re.IGNORECASE)
_KEY = re.compile(r"(password|secret|token|api_?key)$", re.IGNORECASE)

NOISY = ("alembic", "kafka", "mlflow", "urllib3", "transformers", "filelock", "sqlalchemy")


def mask(value: Any, key: str = "") -> Any:
    """A value as it may be shown: passwords in URLs and values of secret-sounding keys become ***."""
    if isinstance(value, str):
        return "***" if value and _KEY.search(key) else _SECRET.sub(r"\g<head>\g<user>:***@", value)
    if isinstance(value, dict):
        return {k: mask(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [mask(v, key) for v in value]
    return value


def set_up(level: int = logging.WARNING) -> None:
    """Log to standard error; libraries only from errors on."""
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(name)s: %(message)s")
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
