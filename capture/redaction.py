"""Secrets are taken out before anything reaches the log.

Each pattern replaces what it finds by ``[REDACTED:name]``. Almost all events hold no secret, so a
look for a few needles in the encoded event comes first and a pattern runs only where a needle of its
own is found. What the user names in ``[capture] redact`` runs always. This is a net, not a proof: a
secret without a shape (a word in a sentence) goes through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from millstream.errors import SettingsError

_KEYS = (
    r"passw(?:or)?d|passphrase|(?:api|access|private|secret)[_-]?key|(?:access|auth|refresh)[_-]?token"
    r"|client[_-]?secret"
)
"""Names whose values are secrets, in texts (``password=…``, ``"api_key": "…"``) and in JSON objects."""

_BLOCK = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
_QUOTE = r"[\"'\\]{0,3}\s{0,4}"
_ASSIGNED = (
    rf"(?P<keep>(?:(?:{_KEYS}){_QUOTE}[:=]|secret{_QUOTE}=)\s{{0,4}}\\?[\"']?)(?!\[REDACTED)"
    r"(?:(?<=\")[^\"\\\n]{3,200}|(?<=')[^'\n]{3,200}|[^\s\"'\\,;&<>{}()\[\]]{4,200})"
)


class _Pattern(Struct, frozen=True):
    """``needles`` (lower case): one of them is in every text the pattern matches. A group ``keep`` stays."""

    name: str
    needles: tuple[str, ...]
    regex: re.Pattern[str]


def _pattern(name: str, needles: str, regex: str, flags: int = 0) -> _Pattern:
    return _Pattern(name, tuple(needles.split("|")), re.compile(regex, re.DOTALL | flags))


_PATTERNS = (
    _pattern("private_key", "private key", _BLOCK),
    _pattern("openai_key", "sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    _pattern("aws_key", "akia|asia", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    _pattern("github_token", "ghp_|gho_|ghu_|ghs_|ghr_", r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    _pattern("github_token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    _pattern("slack_token", "xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _pattern("google_key", "aiza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    _pattern("huggingface_token", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    _pattern("jwt", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _pattern("bearer", "bearer", r"\b(?P<keep>bearer\s{1,4})[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE),
    _pattern("url_password", "://", r"(?P<keep>://[^\s:/@]{1,100}:)[^\s:/@]{1,200}(?=@)"),
    _pattern("password", "passw|passphrase|secret|key|token", _ASSIGNED, re.IGNORECASE),
)

_RARE = (
    *("sk-", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "aiza", "hf_", "eyj"),
    *("bearer", "passw", "passphrase", "secret", "access", "auth", "refresh", "api", "private"),
)
_SHAPES = re.compile(
    r"sk-|akia|asia|aiza|authorization|bearer|gh[pousr]_|github_pat|xox|hf_|eyj|passw|passphrase|secret"
    r"|private[ _-]?key|(?:api|access)[_-]?key|(?:access|auth|refresh)[_-]?token"
)
_NAMED = re.compile(rf"[\w-]{{0,40}}(?:{_KEYS}|secret|authorization)", re.IGNORECASE)
_GONE = "[REDACTED"


class Redactor:
    """Replaces secrets in texts and JSON values and counts them by pattern name.

    ``extra`` are regular expressions of the user's; a bad one raises `SettingsError`.
    """

    def __init__(self, extra: Sequence[str] = ()) -> None:
        self.counts: dict[str, int] = {}
        self._extra = tuple(_Pattern(f"custom_{n}", (), _compiled(text)) for n, text in enumerate(extra, 1))

    def suspects(self, encoded: bytes) -> bool:
        """Whether an encoded event may hold a secret: cheap, and never wrongly False."""
        if self._extra:
            return True
        lower = encoded.decode("utf-8", "replace").lower()
        if "://" in lower and "@" in lower:
            return True
        return any(needle in lower for needle in _RARE) and _SHAPES.search(lower) is not None

    def text(self, text: str) -> str:
        """The text without secrets; the same object when there is none."""
        lower = text.lower()
        for pattern in _PATTERNS:
            if any(needle in lower for needle in pattern.needles):
                text = self._replaced(pattern, text)
        for pattern in self._extra:
            text = self._replaced(pattern, text)
        return text

    def _replaced(self, pattern: _Pattern, text: str) -> str:
        keeps = "keep" in pattern.regex.groupindex

        def gone(found: re.Match[str]) -> str:
            self._count(pattern.name)
            return f"{found['keep']}{_GONE}:{pattern.name}]" if keeps else f"{_GONE}:{pattern.name}]"

        return pattern.regex.sub(gone, text)

    def named(self, key: str, value: Any) -> Any:
        """The value of an object's member: gone whole when the key says that it is a secret."""
        if isinstance(value, str) and len(value) > 2 and not value.startswith(_GONE) and _NAMED.fullmatch(key):
            self._count("named")
            return f"{_GONE}:named]"
        return value

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise SettingsError(
            f"[capture] redact: {text!r} is no regular expression: {error}; mend or remove it"
        ) from None
