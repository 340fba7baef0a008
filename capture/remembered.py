"""What is remembered of the conversations of a run, by agent, so that each message is told once.

A place is the hash of a message and of all before it: a request goes on at the last of its places that is known. Not
thread-safe: `Conversation` holds the lock.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from millstream import values
from millstream.codec import content_digest, digest
from millstream.dialects.openai_calls import Asked
from millstream.dialects.told import Message
from millstream.events import ToolCall

_MOST_BODIES = 4


class Prefix(Struct, frozen=True):
    """The first bytes of a list of messages that were told before, and the place after them."""

    length: int
    place: str


class Remembered:
    """Places and messages of each agent, the places after responses, and the last requests by a hash."""

    def __init__(self) -> None:
        self._places: defaultdict[str, set[str]] = defaultdict(set)
        self._keys: defaultdict[str, set[str]] = defaultdict(set)
        self._given: set[str] = set()
        self._after: dict[str, str] = {}
        self._bodies: OrderedDict[int, tuple[str, str]] = OrderedDict()

    def goes_on(self, agent: str, head: bytes, listed: bytes) -> Prefix | None:
        """What of a list of messages, as JSON, an earlier request of the agent had whole; ``head``: what stands before
        the list. An agent's next request mostly is its last one and some more: so much need not be read.
        """
        for length, (told, place) in reversed(self._bodies.items()):
            more = length < len(listed) and listed[length : length + 1] in b",]"
            if more and told == _hash(agent, head, listed[:length]):
                return Prefix(length, place)
        return None

    def places_of(self, asked: Asked, keys: Sequence[str], start: str = "") -> list[str]:
        """The place of each message, after ``start`` or what the request says it goes on with; at least one."""
        place = start or self._after.get(asked.previous) or self._after.get(asked.conversation) or ""
        return [place := digest(place, key) for key in keys] or [place]

    def known(self, agent: str, places: Sequence[str]) -> int:
        """How many of the first messages the agent has had."""
        return max((n for n, place in enumerate(places, 1) if place in self._places[agent]), default=0)

    def had(self, agent: str, key: str) -> bool:
        """Whether the agent has had this message."""
        return key in self._keys[agent]

    def was_given(self, key: str) -> bool:
        """Whether a model of this run gave this message."""
        return key in self._given

    def told(self, agent: str, key: str, place: str = "", *, given: bool = False) -> None:
        """The agent has had a message; ``given``: by its model."""
        self._keys[agent].add(key)
        if place:
            self._places[agent].add(place)
        if given:
            self._given.add(key)

    def asked(self, agent: str, places: Sequence[str], head: bytes = b"", listed: bytes = b"") -> None:
        """The agent's request was told, up to these places; ``listed`` is its list of messages, if it may be gone on
        with.
        """
        self._places[agent].update(places)
        if listed:
            self._bodies[len(listed) - 1] = (_hash(agent, head, listed[:-1]), places[-1])
            if len(self._bodies) > _MOST_BODIES:
                self._bodies.popitem(last=False)

    def ends(self, name: str, place: str) -> None:
        """A response, or a conversation that the server keeps, has come to a place."""
        if name:
            self._after[name] = place


def _hash(agent: str, head: bytes, listed: bytes) -> str:
    return content_digest(agent.encode("utf-8", "replace"), head, listed)


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The calls of an assistant's message, of the old form too."""
    found = message.get("tool_calls")
    if not isinstance(found, list) or not found:
        one = message.get("function_call")
        return values.tool_calls([{"function": one}] if isinstance(one, dict) else ())
    return values.tool_calls(found)


def key_of(message: Message) -> str:
    """What two tellings of one message have in common: who says what, and which calls are asked or answered."""
    text, _ = values.text_of(message.get("content") or message.get("refusal"))
    parts = [values.word(message.get("role")), text, values.word(message.get("tool_call_id"))]
    asked = message.get("tool_calls")
    ids = [values.word(call.get("id")) if isinstance(call, dict) else "" for call in asked or ()]
    if not all(ids) or message.get("function_call"):
        ids = [f"{call.name} {call.arguments_raw or call.arguments!r}" for call in calls_of(message)]
    return digest(*parts, *ids)
