"""The mark in a text that was cut at the edge: what it measured before stands in it, for whoever reads it later."""

from __future__ import annotations

import hashlib
import re

from millstream.events import Truncated

_MARK = re.compile(r"\[… cut: (\d{1,18}) bytes in all, sha256 ([0-9a-f]{64}) …\]")


def cut(text: str, max_bytes: int) -> str:
    """Head and tail in at most ``max_bytes`` bytes of UTF-8 (but never less than the mark), length and SHA-256 between.

    A text that was cut before keeps what its first mark says.
    """
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    known = measured(text)
    length, sha256 = (known.length, known.sha256) if known else (len(data), hashlib.sha256(data).hexdigest())
    mark = f"\n[… cut: {length} bytes in all, sha256 {sha256} …]\n".encode()
    room = max(0, max_bytes - len(mark))
    head, tail = data[: room - room // 2], data[len(data) - room // 2 :]
    return head.decode("utf-8", "ignore") + mark.decode() + tail.decode("utf-8", "ignore")


def measured(text: str) -> Truncated | None:
    """What a cut text was, from its mark; None for a whole one."""
    found = _MARK.search(text) if "[… cut: " in text else None
    return Truncated(length=int(found[1]), sha256=found[2]) if found else None
