"""The tool calls of a run that wait for their results, and which result answers which of them.

Some servers count their calls from 0 in every answer, some give no ids: each call gets one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from millstream.events import ToolCall


class Open(Struct, frozen=True):
    """A call without a result: its id as the model told it, the call under its own id, and whose it is.

    ``by_hand``: the agent tells the conversation itself.
    """

    told: str
    call: ToolCall
    agent: str = ""
    by_hand: bool = False


class Calls:
    """Takes calls and results in the order in which they were told."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._askers: dict[str, str] = {}
        self._open: list[Open] = []

    def asked(self, call: ToolCall, agent: str = "") -> tuple[ToolCall, bool]:
        """The call under an id of its own, and whether its id had been used before."""
        told = call.id or f"call-{len(self._times) + 1}"
        self._times[told] = times = self._times.get(told, 0) + 1
        unique = told if times == 1 else f"{told}#{times}"
        mine = replace(call, id=unique)
        self._open.append(Open(call.id, mine, agent))
        self._askers[told] = agent
        return mine, times > 1

    def askers(self, calls: Iterable[ToolCall]) -> set[str | None]:
        """Whose models asked for these calls, by the ids they were told with; None for one that nobody did."""
        return {self._askers.get(call.id) for call in calls}

    def asked_by_hand(self, call: ToolCall) -> None:
        """A call that the agent told of itself; one without an id can't be told from another."""
        if call.id and call.id not in self._times and all(one.call.id != call.id for one in self._open):
            self._open.append(Open(call.id, call, by_hand=True))

    def answered_by_hand(self, call_id: str) -> None:
        """A result that the agent told of itself."""
        self._open = [one for one in self._open if not one.by_hand or one.call.id != call_id]

    def answered(self, call_id: str, name: str = "") -> tuple[Open | None, tuple[str, ...]]:
        """The call that a result answers: the first open one of that id, without an id of that name; or why none."""
        for place, one in enumerate(self._open):
            if one.told == call_id if call_id else one.call.name == name:
                return self._open.pop(place), ()
        return None, ("repeated_result" if call_id in self._times else "orphan_result",)

    def running(self, name: str, arguments: object = None, call_id: str = "") -> Open | None:
        """The open call that a tool runs for: of that id; else of that name, with these arguments if there is one."""
        named = [one for one in self._open if (one.told == call_id if call_id else one.call.name == name)]
        return next((one for one in named if one.call.arguments == arguments), named[0] if named else None)

    def close(self, call: Open) -> bool:
        """A call is answered; False when it was already."""
        if call not in self._open:
            return False
        self._open.remove(call)
        return True
