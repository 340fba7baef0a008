"""HTML that is escaped by construction: plain text is data, only `Markup` is markup.

Traces hold whatever a model, a tool or a user wrote. Here it can be read and nothing else: it is
escaped, control characters and direction overrides are made visible, and long texts are cut with a
count.
"""

from __future__ import annotations

import html
import re
from typing import TypeAlias

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """A piece of finished HTML."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | float | list[Markup] | tuple[Markup, ...] | None"
Attribute: TypeAlias = str | float | bool | None


def clean(text: str) -> str:
    """The text with every control character, direction override and lone surrogate made visible."""
    return _CONTROL.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text.replace("\r\n", "\n"))


def clip(text: str, limit: int) -> str:
    """At most ``limit`` characters, and how many were cut."""
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit:,} more characters)"


def escape(text: str) -> Markup:
    """Plain text as markup."""
    return Markup(html.escape(clean(text), quote=True))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. ``class_`` becomes class, underscores become dashes; None and False leave an
    attribute out, True writes it bare.
    """
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{head}>")
    return Markup(f"<{head}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other, plain text escaped."""
    return Markup("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, list | tuple):
        return join(*child)
    if isinstance(child, Markup):
        return child
    return escape(str(child))


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{escape(str(value))}"'
