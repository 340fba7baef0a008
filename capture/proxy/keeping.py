"""Open runs over a restart: what `Conversations` knows, in a file without a word of what was said.

A proxy that ends writes one file; the next one on the folder takes what it finds. Names of messages are hashes, and ids
of calls and responses; the words of answers and errors are left out.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from millstream.capture.proxy.conversations import Answer, Conversations, Run
from millstream.events import EndReason, new_id

_log = logging.getLogger("millstream.serve")
_SCHEMA: Final = 1


class _Run(Struct, kw_only=True, omit_defaults=True):
    """``touched_ns``: when its last call ended, since 1970. ``answers``: the names of each, and whether it was gone on
    from. ``failed``: hashes of requests.
    """

    id: str
    touched_ns: int
    named: bool = False
    flags: tuple[str, ...] = ()
    times: dict[str, int] = field(default_factory=dict)
    last: str = ""
    unanswered: list[str] = field(default_factory=list)
    reason: EndReason = "done"
    answers: list[tuple[list[str], bool]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)


class _Kept(Struct, kw_only=True):
    schema: int = 0
    runs: list[_Run] = field(default_factory=list)


def keep(book: Conversations, folder: Path, clock_s: float, now_ns: int) -> None:
    """Write the open runs into the folder; nothing when there is none. Raises `OSError`."""
    runs = [_kept(book, run, now_ns - round((clock_s - run.touched_s) * 1e9)) for run in book if run.begun]
    if not runs:
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"open-{new_id()}.json"
    handle = os.open(path.with_suffix(".tmp"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(_Kept(schema=_SCHEMA, runs=runs)))
        os.fsync(file.fileno())
    path.with_suffix(".tmp").replace(path)


def _kept(book: Conversations, run: Run, touched_ns: int) -> _Run:
    answers: dict[int, tuple[list[str], bool]] = {}
    for name in sorted(run.known_by):
        for one in book.answers.get(name, ()):
            if one.run is run:
                answers.setdefault(id(one), ([], one.taken))[0].append(name)
    return _Run(
        id=run.id,
        touched_ns=touched_ns,
        named=run.named,
        flags=run.flags,
        times=run.times,
        last=run.last,
        unanswered=sorted(run.unanswered),
        reason=run.reason,
        answers=list(answers.values()),
        failed=[name for name, one in book.failures.items() if one is run],
        conversations=[name for name, one in book.named.items() if one is run],
    )


def take(book: Conversations, folder: Path, clock_s: float, now_ns: int) -> int:
    """Bring back what was kept in the folder, which is gone from it then; how many runs. A file that can't be read is
    told and left out: its runs end by the idle time of assembly.
    """
    count = 0
    for path in sorted(folder.glob("open-*.json")) if folder.is_dir() else ():
        mine = path.with_suffix(f".{os.getpid()}")
        try:
            path.rename(mine)
            kept = msgspec.json.decode(mine.read_bytes(), type=_Kept)
            mine.unlink()
        except FileNotFoundError:
            continue  # another proxy that begins has taken it
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("open runs in %s can't be read: %s", path.name, type(error).__name__)
            continue
        for one in kept.runs if kept.schema == _SCHEMA else ():
            _restore(book, one, clock_s - (now_ns - one.touched_ns) / 1e9)
            count += 1
    return count


def _restore(book: Conversations, kept: _Run, touched_s: float) -> None:
    run = Run(
        id=kept.id,
        named=kept.named,
        flags=kept.flags,
        begun=True,
        times=kept.times,
        last=kept.last,
        unanswered=set(kept.unanswered),
        touched_s=touched_s,
        reason=kept.reason,
    )
    names = [name for names, _ in kept.answers for name in names]
    run.known_by.update(names, kept.failed, kept.conversations)
    book.restore(run, [(known, Answer(run, taken)) for known, taken in kept.answers], kept.failed, kept.conversations)
