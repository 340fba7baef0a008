"""What a detector finds, and the letters between which a find may stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias


class Found(NamedTuple):
    """A place in a text, from ``start`` up to ``end``, and the kind of what stands there."""

    start: int
    end: int
    kind: str


Detector: TypeAlias = Callable[[str], Iterator[Found]]


def before(text: str, place: int, letters: int) -> str:
    """The letters that stand before a place."""
    return text[max(0, place - letters) : place]
