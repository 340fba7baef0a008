"""Tokens without a known form: long, of mixed letters and digits, and too random to be words.

A token is held to be a secret when it has small and capital letters and digits, its letters change their class as
often as random ones do, and its entropy (Shannon, bits a letter over its own letters) is that of a random token
of its length. Hex (hashes, trace ids) and UUIDs are no secrets; what an interface calls an id is none either.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from millstream.capture.detectors.base import Found, before
from millstream.capture.detectors.runs import in_text

SHORTEST: Final = 24
LONGEST: Final = 200
"""What is longer is data, not a key."""
_CLASSES = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_IDS = re.compile(
    r"(?:chatcmpl|cmpl|call|toolu|srvtoolu|tool|resp|msg|fc|rs|ws|ig|run|asst|thread|file|req|request|gen|step|org|proj"
    r"|user|batch|ft|item|evt|event|conv|sess|session|trace|span|ctx|cus|sub|pi|ch|acct|price|prod|in|txn|vs|fp)[-_]+",
)
_HASH = re.compile(r"(?i)sha\d{1,3}[:-]$")
_BITS: Final = 0.82
"""Of the most that so many letters can have: what 99 of 100 random base62 tokens reach."""
_CHANGES: Final = 0.45
"""Class changes a letter: random base62 has 0.6, names of variables are below 0.25."""


def random_tokens(text: str) -> Iterator[Found]:
    """Tokens that look random and stand in no path or URL."""
    for start, end in in_text(text):
        if SHORTEST <= end - start <= LONGEST and is_random(text[start:end]) and not _in_path(text, start):
            yield Found(start, end, "token")


def is_random(token: str) -> bool:
    """Whether a token of letters, digits, ``+/_-`` and ``=`` looks random."""
    body = token.strip("_-/+")
    if not SHORTEST <= len(body) <= LONGEST or not _mixed(body) or _IDS.match(body):
        return False
    changes = len(_CLASSES.findall(body)) - 1
    return changes >= _CHANGES * len(body) and entropy(body) >= _BITS * math.log2(min(len(body), 62))


def entropy(text: str) -> float:
    """Shannon entropy of a text's letters in bits a letter."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())


def _mixed(text: str) -> bool:
    return text.lower() != text and text.upper() != text and any(letter in "0123456789" for letter in text)


def _in_path(text: str, place: int) -> bool:
    last = before(text, place, 1)
    if _HASH.search(before(text, place, 8)):
        return True
    return last in ("/", ".") or (last in ("=", "#") and "://" in before(text, place, 200).rpartition(" ")[2])
