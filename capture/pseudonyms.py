"""What stands in place of a value that was taken out: a mark, or with a key a pseudonym.

A pseudonym is ``<kind:0123456789abcdef>``: 64 bits of HMAC-SHA256 over kind and value, so the same value is the same
pseudonym wherever the same key is used, and without the key nobody can try values out. A mark, ``[REDACTED:kind]``,
tells nothing but the kind. Neither has a letter that JSON, HTML attributes or a shell would take for its own end.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from typing import Final

from millstream.errors import SettingsError

SHORTEST_KEY: Final = 16
STANDS_IN: Final = re.compile(r"\[REDACTED:[a-z0-9_]{1,40}\]|<[a-z0-9_]{1,40}:[0-9a-f]{16}>")
"""Every mark and pseudonym; what looks like one is not looked into."""
_BLANKS: Final = str.maketrans("", "", " -.()/")


def key_from(variable: str) -> bytes:
    """The key in an environment variable, b'' when it is not set. Raises `SettingsError` for one too short to keep."""
    key = os.environ.get(variable, "") if variable else ""
    if key and len(key) < SHORTEST_KEY:
        raise SettingsError(f"{variable} holds fewer than {SHORTEST_KEY} letters; make one with `openssl rand -hex 32`")
    return key.encode("utf-8", "surrogateescape")


class Pseudonyms:
    """Marks or, with a key, pseudonyms. The key is in no text that this makes, its own ``repr`` included."""

    def __init__(self, key: bytes = b"") -> None:
        self._hmac = hmac.new(key, digestmod=hashlib.sha256) if key else None

    def instead(self, kind: str, value: str) -> str:
        """What stands in place of a value of a kind."""
        if self._hmac is None:
            return f"[REDACTED:{kind}]"
        made = self._hmac.copy()
        made.update(f"{kind}\0{same(kind, value)}".encode("utf-8", "replace"))
        return f"<{kind}:{made.hexdigest()[:16]}>"


def same(kind: str, value: str) -> str:
    """The form in which two writings of one value are equal: letters' case and the blanks of numbers don't count."""
    if kind == "email":
        return value.casefold()
    if kind in ("card", "iban", "phone"):
        return value.translate(_BLANKS).upper()
    return value
