"""Senders at the turns of a process's life: forks and exits."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from typing import Protocol

_FORK_WAIT_S = 1.0
_EXIT_S = 5.0


class _Living(Protocol):
    """What is watched: ``turn`` is held while the log is used."""

    turn: threading.Lock
    leaving: bool

    def forked(self) -> None: ...
    def close(self, timeout: float = ...) -> bool: ...


_living: weakref.WeakSet[_Living] = weakref.WeakSet()
_paused: list[threading.Lock] = []


def watch(sender: _Living) -> None:
    """From now on: pause it around forks, begin it anew in children, close it at exit."""
    _living.add(sender)


def watch_child(sender: _Living) -> None:
    """Close it also where a child of multiprocessing ends, which leaves past atexit."""
    if "multiprocessing.util" in sys.modules:
        from multiprocessing.util import Finalize

        Finalize(sender, _leave, args=(weakref.ref(sender),), exitpriority=10)


def _leave(reference: weakref.ref[_Living]) -> None:
    sender = reference()
    if sender is not None:
        with contextlib.suppress(Exception):
            sender.leaving = True
            sender.close(_EXIT_S)


@atexit.register
def _leave_all() -> None:
    for sender in list(_living):
        _leave(weakref.ref(sender))


def _before_fork() -> None:
    """No append is under way while the process is copied: its locks would stay locked in the child."""
    for sender in list(_living):
        turn = sender.turn
        if turn.acquire(timeout=_FORK_WAIT_S):
            _paused.append(turn)


def _in_parent() -> None:
    while _paused:
        _paused.pop().release()


def _in_child() -> None:
    _paused.clear()
    for sender in list(_living):
        sender.forked()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
