"""The runs of a framework that tells what it does by callbacks: each beginning and end has an id and a parent's id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from millstream.capture import scope
from millstream.capture.conversation import Request
from millstream.capture.recorder import Run

if TYPE_CHECKING:
    from millstream.capture.client import Client


class Part(Struct, kw_only=True):
    """Something under way. ``owned``: the run ends with it. ``agent``: who acts in it, '' the run's own agent."""

    run: Run
    owned: bool = False
    agent: str = ""
    request: Request | None = None
    name: str = ""
    arguments: Any = None
    began_ns: int = 0
    call_id: str = ""


class Parts:
    """What is under way, by the framework's ids. Safe to share between threads."""

    def __init__(self, client: Callable[[], Client], fields: Mapping[str, Any]) -> None:
        self._client, self._fields = client, dict(fields)
        self._lock = threading.Lock()
        self._parts: dict[str, Part] = {}

    def begin(self, identity: str, parent: str, inputs: Any, told: Mapping[str, Any]) -> Part:
        """A part of its parent's run; without a known parent of the current run; else of a new one, which it owns.

        ``told``: fields of `record` where the caller of the handler gave none; his may be functions of ``inputs``.
        """
        with self._lock:
            above = self._parts.get(parent) if parent else None
        here = scope.current()
        if above is not None:
            part = Part(run=above.run, agent=above.agent)
        elif here is not None:
            part = Part(run=here.run, agent=here.acting.agent if here.acting else "")
        else:
            given = {name: value(inputs) if callable(value) else value for name, value in self._fields.items()}
            part = Part(run=self._client().start_run(**{**told, **given}), owned=True)
        self.put(identity, part)
        return part

    def put(self, identity: str, part: Part) -> None:
        """Remember a part by its id."""
        with self._lock:
            self._parts[identity] = part

    def get(self, identity: str) -> Part | None:
        """The part of an id, if it is under way."""
        with self._lock:
            return self._parts.get(identity)

    def take(self, identity: str) -> Part | None:
        """The part of an id, which is over."""
        with self._lock:
            return self._parts.pop(identity, None)

    def acting(self, part: Part) -> scope.Scope:
        """The scope in which a part tells things."""
        return scope.Scope(part.run, scope.Acting(agent=part.agent) if part.agent else None)
