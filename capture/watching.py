"""A client of an OpenAI-compatible API, watched where its bytes pass: ``client = millstream.wrap(OpenAI())``.

The HTTP client inside of it has hooks (`httpx` and `httpx2` alike); what the agent gets is what it would have got,
whichever way it asks: create, parse, stream, raw responses, retries, other settings by ``with_options``. A streamed
answer is put together while the agent reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from millstream import values
from millstream.capture import scope
from millstream.capture.guard import guarded, report
from millstream.capture.loose import Loose
from millstream.capture.recorder import Run
from millstream.capture.remembered import Prefix
from millstream.dialects.openai_calls import Answered, Api, Asked, answered, api_of, asked, stream_reader
from millstream.events import LogprobKind

if TYPE_CHECKING:
    from millstream.capture.client import Client

C = TypeVar("C")

_MARK = "_millstream_watched"
_BEFORE = ("instructions", "previous_response_id", "conversation")
_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def watch(client: C, loose: Callable[[], Client], logprob_kind: LogprobKind | None = None) -> C:
    """Record every call of a client from now on; the same client. Raises TypeError for what has no hooks."""
    http = _http_client(client)
    if getattr(http, _MARK, False):
        return client
    watcher = Watcher(loose, logprob_kind)
    http.event_hooks["response"].append(watcher.seen_async if hasattr(http, "aclose") else watcher.seen)
    setattr(http, _MARK, True)
    return client


def _http_client(client: Any) -> Any:
    """The HTTP client inside of a client, of one of its resources, or of the module itself."""
    found = [client.chat if inspect.ismodule(client) else client]
    while len(found) < 4:
        found.append(getattr(found[-1], "_client", None))
    for one in reversed(found):
        hooks = getattr(one, "event_hooks", None)
        if isinstance(hooks, Mapping) and isinstance(hooks.get("response"), list):
            return one
    raise TypeError(f"{type(client).__name__} holds no httpx client; wrap an OpenAI or AsyncOpenAI client")


class Watcher:
    """Sees the responses of one HTTP client. Nothing here raises into it."""

    def __init__(self, client: Callable[[], Client], logprob_kind: LogprobKind | None) -> None:
        self._client, self._logprob_kind = client, logprob_kind

    def seen(self, response: Any) -> None:
        """A response has begun."""
        call = self._begun(response)
        if call is not None and not _told_whole(response, call):
            _Tap(response, call, "iter_bytes", "close").put()

    async def seen_async(self, response: Any) -> None:
        """The same of an async client."""
        call = self._begun(response)
        if call is not None and not _told_whole(response, call):
            _Tap(response, call, "aiter_bytes", "aclose").put()

    def _begun(self, response: Any) -> Call | None:
        try:
            api = api_of(response.request.url.path)
            if api is None or response.request.method != "POST" or response.status_code >= 400:
                return None
            return self._call(api, _members(response.request.content), response)
        except Exception as error:  # noqa: BLE001 - the agent's call goes on
            report("wrap", error)
            return None

    def _call(self, api: Api, members: dict[str, msgspec.Raw], response: Any) -> Call:
        listed = bytes(members.pop("messages" if api == "chat" else "input", msgspec.Raw(b"[]")))
        head = b"\n".join(bytes(members.get(name, msgspec.Raw())) for name in _BEFORE)
        here = scope.current()
        loose = self._client().loose if here is None else None
        run = here.run if here is not None else self._client().loose.run_of(*_fitting(api, head, listed))
        prefix = run.conversation.goes_on(head, listed)
        told = _asked(api, members, _after(listed, prefix), known=prefix is not None)
        request = run.conversation.asked(told, prefix=prefix, head=head, listed=listed)
        streamed = "text/event-stream" in response.headers.get("content-type", "")
        return Call(api, run, request, loose, self._logprob_kind, streamed=streamed)


def _asked(api: Api, members: Mapping[str, msgspec.Raw], listed: Any, *, known: bool) -> Asked:
    """The request, with these messages or items; the instructions stand before them only where they are not known."""
    names = [name for name in members if not (known and name == "instructions")]
    body = {name: _decode(members[name]) for name in names}
    return asked(api, {**body, "messages" if api == "chat" else "input": listed})


def _after(listed: bytes, prefix: Prefix | None) -> Any:
    """What a list of messages holds after its prefix; of one that goes on with nothing known, all of it."""
    if prefix is None:
        return _decode(listed)
    rest = listed[prefix.length :]
    return [] if rest == b"]" else _decode(b"[" + rest[1:])


def _fitting(api: Api, head: bytes, listed: bytes) -> tuple[list[str], Callable[[Run], int]]:
    """The calls whose results the last messages bring, and how well a run fits."""
    try:
        raws = _items(listed)
    except msgspec.MsgspecError:  # a bare text
        raws = []
    call_ids: list[str] = []
    for raw in reversed(raws):
        item = values.mapping(_decode(raw))
        if item.get("role") == "assistant" or item.get("type") in ("reasoning", "function_call", "custom_tool_call"):
            break
        call_ids.append(values.word(item.get("tool_call_id" if api == "chat" else "call_id")))

    def depth(run: Run) -> int:
        prefix = run.conversation.goes_on(head, listed)
        return 0 if prefix is None else prefix.length

    return list(filter(None, call_ids)), depth


class Call:
    """One call of a model, from its request until its answer is whole or given up."""

    def __init__(
        self, api: Api, run: Run, request: Any, loose: Loose | None, kind: LogprobKind | None, *, streamed: bool
    ) -> None:
        self._api, self._run, self._request, self._loose, self._kind = api, run, request, loose, kind
        self._reader = stream_reader(api) if streamed else None
        self._pieces: list[bytes] = []
        self._over = False

    @guarded
    def feed(self, piece: bytes) -> None:
        """The next bytes of the answer."""
        if self._reader is not None:
            self._reader.feed(piece)
        else:
            self._pieces.append(piece)

    @guarded
    def finish(self, *, whole: bool) -> None:
        """No more bytes are read. ``whole``: because there are none; else the agent stopped, or the line broke."""
        if self._over:
            return
        self._over = True
        body = self._reader.finish() if self._reader is not None else self._decoded(whole=whole)
        if not body and not whole:
            return
        answer = answered(self._api, body)
        done = whole or (self._reader is not None and self._reader.done) or (answer.finish_reason and answer.over)
        if answer.over or not done:
            self._tell(answer, () if done else ("stream_cut",))

    def _decoded(self, *, whole: bool) -> dict[str, Any]:
        """The body, if it is whole and a JSON object; an answer that is none tells nothing but that it came."""
        try:
            body = _decode(b"".join(self._pieces)) if whole else {}
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return {}
        return body if isinstance(body, dict) else {}

    def _tell(self, answer: Answered, flags: tuple[str, ...]) -> None:
        self._run.conversation.answered(self._request, answer, logprob_kind=self._kind, flags=flags)
        if self._loose is not None:
            last = answer.messages[-1]
            calls = [values.word(call.get("id")) for call in last.get("tool_calls") or ()]
            self._loose.answered(self._run, calls, values.text_of(last.get("content"))[0])


def _told_whole(response: Any, call: Call) -> bool:
    """Whether the body is there already, from a cache or a recording: then it is told at once."""
    try:
        body = response.content
    except RuntimeError:  # it has not been read
        return False
    call.feed(body)
    call.finish(whole=True)
    return True


class _Tap:
    """Methods of one response that tell a call what passes through them; they go when it is over."""

    def __init__(self, response: Any, call: Call, *names: str) -> None:
        self._response, self._call, self._names = response, call, names
        self._read, self._close = (getattr(response, name) for name in names)
        self._reading = False

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        whole = False
        try:
            self._reading = True
            for piece in self._read(chunk_size):
                self._reading = False
                self._call.feed(piece)
                yield piece
                self._reading = True
            whole = True
        finally:
            self._over(whole=whole)

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        whole = False
        try:
            self._reading = True
            async for piece in self._read(chunk_size):
                self._reading = False
                self._call.feed(piece)
                yield piece
                self._reading = True
            whole = True
        finally:
            self._over(whole=whole)

    def close(self) -> None:
        if not self._reading:
            self._over(whole=False)
        self._close()

    async def aclose(self) -> None:
        if not self._reading:
            self._over(whole=False)
        await self._close()

    def put(self) -> None:
        for name in self._names:
            setattr(self._response, name, getattr(self, name))

    def _over(self, *, whole: bool) -> None:
        """Reading closes a response by itself at its end: then `iter_bytes` knows whether it was whole."""
        self._reading = False
        self._call.finish(whole=whole)
        for name in self._names:
            vars(self._response).pop(name, None)
