"""Server-sent events, as far as the APIs of models use them: the data of each event, from bytes cut anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_EVENT_BYTES = 16_000_000
"""An event larger than this is left out, and no more than this is held."""

_BREAK = re.compile(rb"\r\n|\n|\r")


class EventStream:
    """Takes the bytes of a stream as they come; gives the data of the events that are whole.

    Lines end in LF, CR LF or CR (HTML standard, 9.2.6). A last event without its empty line is given by `rest`:
    a reader who stops there has seen it.
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self.left_out = 0
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that end in this chunk."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        *lines, rest = _BREAK.split(chunk) if b"\r" in chunk else chunk.split(b"\n")
        for line in lines:
            whole = bytes(self._line) + line
            self._line.clear()
            if (found := self._take(whole)) is not None:
                yield found
        self._hold(rest)

    def rest(self) -> Iterator[bytes]:
        """The data of the event that the stream broke off in, if there is any."""
        line = bytes(self._line)
        self._line.clear()
        for each in (line, b""):
            if (found := self._take(each)) is not None:
                yield found

    def _take(self, line: bytes) -> bytes | None:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._size += len(value) + 1
                if self._size <= self._max_bytes:
                    self._data.append(value.removeprefix(b" "))
                else:
                    self._data = []
            return None
        data, self._data = self._data, []
        size, self._size = self._size, 0
        if size > self._max_bytes:
            self.left_out += 1
            return None
        return b"\n".join(data) if data else None

    def _hold(self, rest: bytes) -> None:
        """Keep the beginning of a line; of one that is too long only so much that it is known for one."""
        if self._size + len(self._line) + len(rest) <= self._max_bytes:
            self._line += rest
        elif self._size <= self._max_bytes:
            self._size, self._data = self._max_bytes + 1, [b""]
            self._line.clear()
