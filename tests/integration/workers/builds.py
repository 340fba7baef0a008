"""The next version of Millstream, made from this one: a source tree of its own whose stages write another format.

What it changes is what a format number is for. From format 2 on snapshots are compressed in the store, and so are
the values of what stages append: a build that does not know of it reads rubbish. It reads both formats.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from millstream.version import __version__

VERSION = "9.0.0"
MARK = "squeezed"
"""The header of what was written in the next format."""
EDITS = (
    ("version.py", f'__version__ = "{__version__}"', f'__version__ = "{VERSION}"'),
    ("formats.py", "\nOLDEST,", f'\nFORMATS = (*FORMATS, Format(FORMATS[-1].number + 1, "{VERSION}"))\nOLDEST,'),
    # snapshots
    ("streams/runner.py", "return msgspec.msgpack.encode(Kept(state, self._marks.taken))",
     "return squeezed(msgspec.msgpack.encode(Kept(state, self._marks.taken)), self._held.format)"),
    ("streams/runner.py", "msgspec.msgpack.decode(held.snapshot, type=Kept)",
     "msgspec.msgpack.decode(unsqueezed(held.snapshot), type=Kept)"),
    # what stages append
    ("streams/runner.py", "numbered(out, self.processor.name, self.partition, n) for n",
     "squeezed_output(numbered(out, self.processor.name, self.partition, n), self._held.format) for n"),
    ("streams/runner.py", "\nT = TypeVar(", "\nfrom millstream.squeezing import *\n\nT = TypeVar("),
    ("adapters/kafka_records.py", "def _record(record: Any, topic: str, partition: int) -> Record:\n    return Record(",
     "def _record(record: Any, topic: str, partition: int) -> Record:\n    return unsqueezed_record("),
    ("adapters/kafka_records.py", "def _record(",
     "from millstream.squeezing import unsqueezed_record\n\n\ndef _record("),
    ("adapters/faust.py", "    return Record(", "    return unsqueezed_record("),
    ("adapters/faust.py", "def _record(", "from millstream.squeezing import unsqueezed_record\n\n\ndef _record("),
)  # fmt: skip
"""File, what stands there, what shall stand there."""

SQUEEZING = """
import zlib
from msgspec.structs import replace
from millstream.formats import NEWEST
from millstream.ports import Record

MARK = "squeezed"

def squeezed(data, form):
    return zlib.compress(data) if form == NEWEST else data

def unsqueezed(data):
    return zlib.decompress(data) if data[:1] == b"x" else data

def squeezed_output(out, form):
    if form != NEWEST:
        return out
    return replace(out, value=zlib.compress(out.value), headers={**out.headers, MARK: "1"})

def unsqueezed_record(*args, **kwargs):
    found = Record(*args, **kwargs)
    return replace(found, value=zlib.decompress(found.value)) if MARK in found.headers else found
"""


def next_build(root: Path, folder: Path) -> Path:
    """Make it in ``folder``, from the tree at ``root``; the folder, for PYTHONPATH."""
    package = folder / "millstream"
    shutil.copytree(root / "millstream", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "squeezing.py").write_text(SQUEEZING, encoding="utf-8")
    for name, before, after in EDITS:
        text = (package / name).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{name} has {text.count(before)} times {before!r}"
        (package / name).write_text(text.replace(before, after), encoding="utf-8")
    return folder
