"""The recorder: it looks on while calls pass, and records them in a thread of its own.

In the server's loop a piece of a body is put into a list, and nothing else happens; what is read, matched and told
happens after the call. When there is no room for a call it goes on unrecorded, and is counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from millstream import metrics
from millstream.capture.proxy.conversations import Conversations, Run
from millstream.capture.proxy.keeping import keep, take
from millstream.capture.proxy.labels import labels_of, policies_of
from millstream.capture.proxy.reading import Seen, keys_of, read
from millstream.capture.proxy.telling import Call, Telling, ended
from millstream.dialects.openai_calls import api_of
from millstream.errors import Undecodable
from millstream.events import AnyEvent, new_id
from millstream.forwarding import Ending, Headers
from millstream.metrics import Meter
from millstream.settings import Settings

_log = logging.getLogger("millstream.serve")
_LOOK_S: Final = 1.0
_DONE: Final = b"data: [DONE]\n\n"


class Sink(Protocol):
    """Where events go: `millstream.capture.client.Client`."""

    def put(self, event: AnyEvent, size: int) -> bool:
        """Take an event of about ``size`` bytes; False when there is no room."""
        ...

    def close(self) -> bool:
        """Bring everything to the log or the spool."""
        ...


class Recorder:
    """Watches calls (it is a `millstream.forwarding.Watcher`) and tells the sink what they were.

    ``folder``: where open runs are kept over a restart (none: nowhere). ``clock`` counts seconds, ``now_ns`` is the
    time.
    """

    def __init__(
        self,
        sink: Sink,
        settings: Settings,
        meter: Meter | None = None,
        *,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Raises `SettingsError` for a bad ``[proxy] policies``."""
        self._sink, self._rules, self._shares, self._meter = sink, settings.proxy, settings.capture.shares, meter
        self._policies = policies_of(settings.proxy.policies)
        kind = settings.proxy.logprob_kind
        self._logprob_kind = None if kind == "unknown" else kind
        self._clock, self._now_ns, self._folder = clock, now_ns, folder
        self.conversations = Conversations(settings.proxy.remember)
        self._queue: SimpleQueue[Seen | None] = SimpleQueue()
        self._held = 0
        self._lock = threading.Lock()
        self._under_way: dict[int, float] = {}
        self._thread = threading.Thread(target=self._work, name="millstream-proxy", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Record from now on; runs that were open when the last proxy of the folder ended go on."""
        if self._folder is not None:
            take(self.conversations, self._folder, self._clock(), self._now_ns())
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """Record what waits, and stop; runs stay open, for the next proxy of the folder."""
        self._stopping = True
        self._queue.put(None)
        self._thread.join(timeout)
        if self._folder is not None and not self._thread.is_alive():
            try:
                keep(self.conversations, self._folder, self._clock(), self._now_ns())
            except OSError as error:
                _log.warning("open runs can't be kept in %s: %s", self._folder, error.strerror)
        self._sink.close()

    def begin(self, method: str, path: str, headers: Headers) -> Passing | None:
        """What looks at a call of the chat or the Responses API; None for any other request."""
        api = api_of(path) if method == "POST" else None
        if api is None:
            return None
        passing = Passing(self, Seen(api=api, headers=_kept(headers), began_ns=self._now_ns(), keys=keys_of(headers)))
        self._under_way[id(passing)] = self._clock()
        return passing

    def hold(self, size: int) -> bool:
        """Make room for a piece; whether there is some."""
        with self._lock:
            if self._held + size > self._rules.queue_bytes:
                return False
            self._held += size
            return True

    def let_go(self, size: int) -> None:
        """Give room back."""
        with self._lock:
            self._held -= size

    @property
    def most(self) -> int:
        """Bytes of a body that are recorded."""
        return self._rules.max_recorded_bytes

    def now_ns(self) -> int:
        """The time."""
        return self._now_ns()

    def hand(self, seen: Seen) -> None:
        """A call is over: it is recorded when its turn comes."""
        self._queue.put(seen)

    def unrecorded(self, why: str) -> None:
        """Count a call that goes on unrecorded."""
        if self._meter is not None:
            self._meter.add(metrics.PROXY_UNRECORDED, (why,))

    def over(self, passing: Passing) -> None:
        """A call is no longer under way."""
        self._under_way.pop(id(passing), None)

    def _work(self) -> None:
        looked = self._clock()
        while True:
            try:
                seen = self._queue.get(timeout=_LOOK_S)
            except Empty:
                seen = None
            if seen is not None:
                self.record(seen)
                self.let_go(_size(seen))
            elif self._stopping:
                return
            if self._clock() - looked >= _LOOK_S:
                looked = self._clock()
                self.look()

    def record(self, seen: Seen) -> None:
        """One call into events. Never raises, and no words of it are logged."""
        try:
            self._record(seen)
        except Undecodable:
            self.unrecorded("unreadable")
        except Exception as error:  # noqa: BLE001 — a call that can't be told must not end the recording
            self.unrecorded("error")
            _log.error("a call could not be recorded: %s", type(error).__name__)

    def _record(self, seen: Seen) -> None:
        found = read(seen, self._rules.max_recorded_bytes)
        asked, book = found.asked, self.conversations
        labels = labels_of(seen.headers, asked.metadata, asked.model, self._policies)
        call = Call(
            id=new_id(),
            asked=asked,
            answered=found.answered,
            labels=labels,
            began_ns=seen.began_ns,
            ended_ns=seen.ended_ns,
            failure=found.failure,
            trouble=found.trouble,
            logprob_kind=self._logprob_kind,
        )
        place = book.find(asked, labels.trajectory)
        run, before = place.run, place.run.size
        self._tell(Telling(run, call, self._shares, whole=place.whole).all())
        if found.failure:
            book.failed(place)
        else:
            book.answered(place, asked, found.answered.messages, found.answered.response_id)
        run.touched_s = self._clock()
        for gone in book.grown(run, before):
            if not gone.named:  # a named one can still go on
                self._end(gone)
        if labels.end is not None:
            book.over(run)
        if self._meter is not None:
            self._meter.add(metrics.PROXY_CALLS, (seen.api, found.failure.partition("_")[0] or "answered"))

    def look(self) -> None:
        """End the runs that had no call for too long. None is ended while a call is under way that may be its."""
        oldest = min(self._under_way.copy().values(), default=float("inf"))
        for run in self.conversations:
            due = run.touched_s + self._rules.idle_s
            if due <= self._clock() and due < oldest:
                self.conversations.over(run)
                self._end(run)
        if self._meter is not None:
            self._meter.show(metrics.PROXY_OPEN, {(): float(len(self.conversations))})

    def _end(self, run: Run) -> None:
        self._tell([ended(run, self._now_ns(), "cancelled" if run.unanswered and not run.error else None)])

    def _tell(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            self._sink.put(event, _weight(event))


class Passing:
    """One call as it passes by."""

    def __init__(self, recorder: Recorder, seen: Seen) -> None:
        self._recorder, self._seen = recorder, seen
        self._held = 0
        self._sizes = [0, 0]
        self._lost = ""
        self._handed = False

    def sent(self, piece: bytes) -> None:
        """A piece of the request."""
        self._keep(self._seen.sent, 0, piece)

    def answered(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        self._seen.status, self._seen.answer_headers = status, _kept(headers)

    def came(self, piece: bytes) -> None:
        """A piece of the answer. The last one of a stream ends the call, so that it is recorded before the next."""
        if self._handed:
            return
        self._keep(self._seen.came, 1, piece)
        if piece.endswith(_DONE):
            self._hand("whole")

    def over(self, ending: Ending) -> None:
        """The call is over."""
        self._recorder.over(self)
        if not self._handed:
            self._hand(ending)

    def _hand(self, ending: Ending) -> None:
        self._handed = True
        seen = self._seen
        seen.ending, seen.ended_ns = ending, self._recorder.now_ns()
        if self._lost:
            self._recorder.unrecorded(self._lost)
            self._recorder.let_go(self._held)
        else:
            self._recorder.hand(seen)

    def _keep(self, pieces: list[bytes], side: int, piece: bytes) -> None:
        if self._lost:
            return
        self._sizes[side] += len(piece)
        if self._sizes[side] > self._recorder.most:
            self._lose("too_large")
        elif not self._recorder.hold(len(piece)):
            self._lose("no_room")
        else:
            self._held += len(piece)
            pieces.append(piece)

    def _lose(self, why: str) -> None:
        """From here on the call passes unseen."""
        self._lost = why
        self._seen.sent, self._seen.came = [], []
        self._recorder.let_go(self._held)
        self._held = 0


_HEADERS: Final = (b"content-encoding", b"content-type")


def _kept(headers: Headers) -> Headers:
    """The headers that say how to read a body, and ours: no key is ever among them."""
    own = b"x-millstream-"
    return [
        (n, v)
        for n, v in headers
        if n.lower() in _HEADERS or (n.lower().startswith(own) and n.lower() != b"x-millstream-token")
    ]


_TEXTS: Final = ("content", "text", "reasoning", "output")


def _weight(event: AnyEvent) -> int:
    """About what an event weighs in the queue."""
    ids = getattr(event, "token_ids", None) or ()
    prompt = getattr(event, "prompt_token_ids", None) or ()
    return 400 + sum(len(getattr(event, name, "")) for name in _TEXTS) + 8 * (len(ids) + len(prompt))


def _size(seen: Seen) -> int:
    return sum(map(len, seen.sent)) + sum(map(len, seen.came))
