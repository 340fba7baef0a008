"""The format of an installation: one number for what its stages write, into the state and onto the topics.

A build reads the formats from `OLDEST` to `NEWEST`, and writes the one that stands in the store, so that builds
of two versions work side by side. A new installation gets the newest of the build that makes it; an older one is
raised by a person (`millstream format raise`) when no build is left that can't read the next. It reaches a worker
with its next commit: one that can write the new format goes on in it, one that can't read it stops.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from millstream.errors import SettingsError, Stuck
from millstream.version import __version__


class Format(Struct, frozen=True):
    """A format's number, and the first version of Millstream that reads it."""

    number: int
    needs: str

    def __str__(self) -> str:
        return f"{self.number} {self.needs}"


FORMATS: Final = (Format(1, "0.1.0"),)
"""Every format that this build reads and writes, oldest first. What differs between two of them asks for the
`millstream.ports.Assignment.format` it is written in."""
OLDEST, NEWEST = FORMATS[0], FORMATS[-1]


class Owner(Struct, frozen=True, kw_only=True, order=True):
    """Who took a stage's partition last: its version, and the newest format that it reads."""

    stage: str
    partition: int
    version: str
    reads: int


def parsed(told: str) -> Format:
    """The format of a store's header, ``NUMBER NEEDS``."""
    number, _, needs = told.partition(" ")
    return Format(int(number), needs)


def check(found: Format, place: str) -> None:
    """Raises `Stuck` for a format that this build doesn't read. ``place``: where it was found."""
    if found.number > NEWEST.number:
        raise Stuck(
            f"{place}: what the stages write has format {found.number}; this is millstream {__version__}, which reads "
            f"up to {NEWEST.number}: install millstream {found.needs} or later"
        )
    if found.number < OLDEST.number:
        raise Stuck(
            f"{place}: what the stages write has format {found.number}; this is millstream {__version__}, which reads "
            f"from {OLDEST.number} on: install the version before, `millstream format raise`, then this one"
        )


def check_owners(owners: tuple[Owner, ...], to: Format) -> None:
    """Raises `SettingsError` where a stage belongs to a build that would not read the format ``to``."""
    behind = [one for one in owners if one.reads < to.number]
    if behind:
        told = ", ".join(f"{one.stage}:{one.partition} (millstream {one.version})" for one in behind)
        raise SettingsError(
            f"format {to.number} is not read by who has {told}: upgrade these workers first; --force where they are "
            "gone for good"
        )
