"""The child's side of `millstream.adapters.children`: ``python -m millstream.adapters.child_serving MODULE``."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import threading
import time
import traceback
from typing import Protocol

from millstream.adapters.children import ERROR, HEAD, OK, OVERRUN
from millstream.errors import Overrun

ORPHAN_S = 0.5
"""How soon a child notices that its parent was killed."""


class Handler(Protocol):
    """What a child's module offers."""

    def handle(self, method: str, payload: bytes) -> bytes:
        """Answer one call."""
        ...


def _serve(module: str, answers: int) -> None:
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    me = os.getpid()
    os.set_inheritable(answers, False)
    with os.fdopen(_private_input(), "rb") as source, os.fdopen(answers, "wb") as sink:
        handler = importlib.import_module(module)
        while len(head := source.read(HEAD.size)) == HEAD.size:
            length, name_length = HEAD.unpack(head)
            body = source.read(length)
            method, payload = body[:name_length].decode(), body[name_length + 1 :]
            try:
                status, answer = OK, handler.handle(method, payload)
            except Overrun as error:
                status, answer = OVERRUN, str(error).encode("utf-8", "replace")
            except (Exception, SystemExit) as error:  # noqa: BLE001 — whatever a handler raises goes back as text
                text = "".join(traceback.format_exception_only(error)).strip()
                status, answer = ERROR, text.encode("utf-8", "replace")
            if os.getpid() != me:
                os._exit(0)  # a fork that the handler made and let run on: the answer is its parent's to give
            sink.write(HEAD.pack(len(answer), status) + answer)
            sink.flush()


def _private_input() -> int:
    """Where calls come from; what a handler or a process it starts reads as standard input is empty."""
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return source


def _leave_with(parent: int) -> None:
    """End when the parent is gone, also in the middle of a call: nobody would read the answer."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os._exit(1)


def _limit(memory_bytes: int) -> None:
    """Bound this process's private memory; a system without that bound has none."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if int(sys.argv[3]):
        _limit(int(sys.argv[3]))
    _serve(sys.argv[1], int(sys.argv[2]))
