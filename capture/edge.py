"""The edge: what an event passes on its way into the log, on every door alike.

Lone surrogates are replaced, media become references, secrets are taken out, texts and the whole event are bounded;
each change is flagged on the event. An event that needs none of it is encoded once and scanned once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from millstream import settings
from millstream.capture.bounds import bound_texts, flagged, measured_main, rewritten, shallow
from millstream.capture.media import Extractor, may_hold
from millstream.capture.redaction import Redactor
from millstream.capture.shared import Shared
from millstream.events import AnyEvent, ModelResponded, TrajectoryEnded, TrajectoryStarted
from millstream.repair import sound_event
from millstream.values import word

_MARGIN = 8192
"""Bytes kept beside the final cut until secrets are out, so that none is split by it."""
_LEVELS = 32
"""Levels of lists and objects that stay when an event is nested too deeply."""
_REMEMBERED = 10_000
_encode = msgspec.json.Encoder().encode


class Edge:
    """Turns events into the bytes that may be stored. Not thread-safe: one thread feeds it."""

    def __init__(self, capture: settings.Capture, shared: Shared | None = None) -> None:
        self._shared = shared or Shared()
        self.redactor = Redactor(capture, self._shared.tally, self._shared.finders)
        self._media = Extractor(self._shared.keep)
        self._text_bytes = capture.max_text_bytes
        self._event_bytes = capture.max_event_bytes
        self._redacted: OrderedDict[str, None] = OrderedDict()

    def encode(self, event: AnyEvent) -> bytes:
        """One line of NDJSON without its line break, at most ``max_event_bytes`` long.

        What is nested deeper than this process can walk is kept as a text of JSON, what is no value of JSON as its
        words (flag ``flattened``).
        """
        try:
            return self._encoded(event)
        except (RecursionError, TypeError):
            return self._flattened(event)

    def _flattened(self, event: AnyEvent) -> bytes:
        try:
            plain = msgspec.convert(msgspec.to_builtins(event, enc_hook=word), type(event))
            return self._encoded(flagged(rewritten(plain, lambda told: shallow(told, _LEVELS)), "flattened"))
        except (RecursionError, TypeError, msgspec.ValidationError):
            return _encode(_bare(event, "unreadable_emptied"))

    def _encoded(self, event: AnyEvent) -> bytes:
        try:
            data = _encode(event)
        except UnicodeEncodeError:
            event = cast("AnyEvent", sound_event(event))
            data = _encode(event)
        if may_hold(data):
            event = rewritten(event, self._media.tree)
            data = _encode(event)
        if len(data) > self._text_bytes:
            clean = self._bounded(event, data)
            data = _encode(clean)
        else:
            clean = self._without_secrets(event, data)
            data = data if clean is event else _encode(clean)
        return data if len(data) <= self._event_bytes else self._shrunk(clean)

    def _bounded(self, event: AnyEvent, data: bytes) -> AnyEvent:
        """An event with long texts: redacted, then cut. Where nothing is kept whole only what can be left of them is
        looked into.
        """
        was = measured_main(event, self._text_bytes)
        if self._shared.blobs is None:
            event = bound_texts(event, self._text_bytes + _MARGIN)
            data = _encode(event)
        return bound_texts(self._without_secrets(event, data), self._text_bytes, self._shared.keep, was)

    def _without_secrets(self, event: AnyEvent, data: bytes) -> AnyEvent:
        if self.redactor.suspects(data):
            before = sum(self.redactor.counts.values())
            clean = rewritten(event, self.redactor.tree)
            if sum(self.redactor.counts.values()) > before:
                self._remember(event.trajectory_id)
                event = flagged(_without_own_ids(clean), "redacted")
        if self._redacted and event.trajectory_id in self._redacted:
            event = self._without_prompt_ids(event)
        return event

    def _remember(self, trajectory_id: str) -> None:
        self._redacted[trajectory_id] = None
        if len(self._redacted) > _REMEMBERED:
            self._redacted.popitem(last=False)

    def _without_prompt_ids(self, event: AnyEvent) -> AnyEvent:
        if isinstance(event, TrajectoryEnded):
            self._redacted.pop(event.trajectory_id, None)
        if isinstance(event, ModelResponded) and event.prompt_token_ids is not None:
            return flagged(replace(event, prompt_token_ids=None), "prompt_token_ids_dropped")
        return event

    def _shrunk(self, event: AnyEvent) -> bytes:
        for shrink in _SHRINKS:
            event = bound_texts(event, shrink, self._shared.keep) if isinstance(shrink, int) else shrink(event)
            data = _encode(event)
            if len(data) <= self._event_bytes:
                return data
        return _encode(_bare(event, "too_large_emptied"))


def _bare(event: AnyEvent, flag: str) -> AnyEvent:
    """An event that says no more than what it is and where it stands."""
    bare = type(event)(id=event.id, trajectory_id=event.trajectory_id, producer=event.producer, seq=event.seq)
    return flagged(replace(bare, time_ns=event.time_ns), flag)


def _without_own_ids(event: AnyEvent) -> AnyEvent:
    """Token ids would spell the secret again."""
    if isinstance(event, ModelResponded) and event.token_ids is not None:
        return flagged(replace(event, token_ids=None, logprobs=None, logprob_kind=None), "token_ids_dropped")
    return event


def _drop(kind: type[Any], **values: Any) -> Callable[[AnyEvent], AnyEvent]:
    def shrink(event: AnyEvent) -> AnyEvent:
        changed = {k: v for k, v in values.items() if isinstance(event, kind) and getattr(event, k) != v}
        return flagged(replace(event, **changed), *(f"{name}_dropped" for name in changed)) if changed else event

    return shrink


def _drop_metadata(event: AnyEvent) -> AnyEvent:
    if isinstance(event, TrajectoryStarted) and event.task.metadata:
        return flagged(replace(event, task=replace(event.task, metadata={})), "metadata_dropped")
    return event


_SHRINKS: tuple[Callable[[AnyEvent], AnyEvent] | int, ...] = (
    _drop(ModelResponded, prompt_token_ids=None),
    _drop(ModelResponded, token_ids=None, logprobs=None, logprob_kind=None),
    8192,
    _drop_metadata,
    _drop(ModelResponded, sampling={}),
    _drop(TrajectoryStarted, tools=()),
    _drop(ModelResponded, tool_calls=()),
    256,
)
"""What is given up first when a whole event is too large, dearest last; a number cuts all texts to so many bytes."""
