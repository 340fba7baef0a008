"""Which task a run is of, and on which side of the split it falls; both decided at capture."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from millstream.codec import digest
from millstream.events import Interface, Split, Task, TaskId
from millstream.repair import sound

_SPLITS: tuple[Split, ...] = ("train", "held_out", "report")


def normalised(text: str) -> str:
    """NFKC, every run of white space one space: what two askings of one task have in common."""
    clean = sound(text)[0]
    return " ".join((clean if clean.isascii() else unicodedata.normalize("NFKC", clean)).split())


def task_id(messages: Iterable[tuple[str, str]], interface: Interface, corpus_version: str = "") -> TaskId:
    """The id of a task that the caller did not name: a hash of its first messages (role, text),
    normalised, of the corpus version and of the interface.
    """
    parts = [part for role, text in messages for part in (role, normalised(text))]
    shown = (interface.tools, interface.system, interface.template, interface.tokenizer)
    return TaskId(digest("task", *parts, corpus_version, *shown))


def tools_hash(tools: Sequence[dict[str, Any]]) -> str:
    """A hash of tool schemas, the same in whatever order their members and the tools are; '' for none."""
    if not tools:
        return ""
    return digest("tools", *sorted(msgspec.json.encode(sound(tool)[0], order="sorted") for tool in tools))


def split_of(split_key: str, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> Split:
    """The side of the split that a world or document falls on: by the hash of its key, in proportion
    to ``shares`` (train, held out, report; their sum need not be 1).
    """
    place = int(digest("split", split_key), 16) / 2**128 * sum(shares)
    for split, share in zip(_SPLITS, shares, strict=True):
        if place < share:
            return split
        place -= share
    return _SPLITS[-1]


def split_for(task: Task, shares: tuple[float, float, float]) -> Split:
    """The split of a task: by its split key, else by its id."""
    return split_of(task.split_key or task.id, shares)
