"""The blob directory: whole or not at all, once, found again, and pruned when nothing refers to it any more."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time

import pytest

from millstream.capture.blobs import Blobs
from millstream.capture.edge import Edge
from millstream.capture.raw import RawEdge
from millstream.capture.shared import Shared
from millstream.codec import decode_lines
from millstream.dialects.cuts import measured
from millstream.errors import SettingsError
from millstream.events import EventId, ModelResponded, ToolReturned, TrajectoryId
from millstream.settings import Capture


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path / "blobs")


def files(blobs):
    return sorted(str(path.relative_to(blobs.folder)) for path in blobs.folder.rglob("*") if path.is_file())


def test_bytes_lie_under_their_hash_once(blobs):
    """Put twice is there once, and touched; only the owner may look."""
    data = b"x" * 5000
    name = blobs.put(data)
    assert name == hashlib.sha256(data).hexdigest()
    assert blobs.get(name) == data
    place = blobs.folder / name[:2] / name[2:]
    os.utime(place, (1, 1))
    assert blobs.put(data) == name
    assert place.stat().st_mtime > 1
    assert files(blobs) == [f"{name[:2]}/{name[2:]}"]
    assert place.stat().st_mode & 0o077 == 0


def test_many_at_once(blobs):
    """Threads that put the same bytes leave one blob and nothing beside it."""
    threads = [threading.Thread(target=blobs.put, args=(bytes([n % 3]) * 100_000,)) for n in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(files(blobs)) == 3


def test_a_disk_that_takes_nothing_costs_the_blob_and_not_the_event(tmp_path):
    """The name is empty, and the event tells what it always tells."""
    (tmp_path / "blobs").write_text("a file where the folder should be")
    shared = Shared(Blobs(tmp_path / "blobs"))
    assert shared.keep(b"x") == ""
    output = "x" * 200_000
    made = decode_lines(
        Edge(Capture(), shared).encode(ToolReturned(id=EventId("e"), trajectory_id=TrajectoryId("t"), output=output))
    )[0][0]
    assert (made.truncated.length, made.truncated.blob) == (200_000, "")


@pytest.mark.parametrize("name", ["../../etc/passwd", "0" * 63, "", "0" * 64])
def test_a_name_that_is_none_is_refused(blobs, name):
    """No path leads out of the directory."""
    with pytest.raises(SettingsError):
        blobs.get(name)


def test_a_blob_that_has_changed_is_refused(blobs):
    """A hash that does not fit says so."""
    name = blobs.put(b"right")
    (blobs.folder / name[:2] / name[2:]).write_bytes(b"wrong")
    with pytest.raises(SettingsError, match="has changed"):
        blobs.get(name)


def test_pruning_takes_what_is_old_and_leavings(blobs):
    """By the time of the last event that referred to it."""
    old, new = blobs.put(b"old"), blobs.put(b"new")
    leaving = blobs.folder / old[:2] / ".making-x"
    leaving.write_bytes(b"torn")
    then = time.time() - 100
    os.utime(blobs.folder / old[:2] / old[2:], (then, then))
    os.utime(leaving, (then, then))
    assert blobs.prune(50) == (1, 3)
    assert [name for name, _, _ in blobs.names()] == [new]
    assert not leaving.exists()
    assert Blobs(blobs.folder / "none").prune(0) == (0, 0)


class UsedMeanwhile(Blobs):
    """A directory in which each blob is put again, by another, right after it was looked at."""

    def names(self):
        found = list(super().names())
        for name, _, _ in found:
            Blobs(self.folder).put(Blobs(self.folder).get(name))
        yield from found


def test_pruning_keeps_what_an_event_refers_to_meanwhile(tmp_path):
    """Between the look and the deletion: the blob stays, and nothing is left beside it."""
    blobs = UsedMeanwhile(tmp_path / "blobs")
    name = blobs.put(b"old")
    os.utime(blobs.folder / name[:2] / name[2:], (1, 1))
    assert blobs.prune(50) == (0, 0)
    assert blobs.get(name) == b"old"
    assert files(blobs) == [f"{name[:2]}/{name[2:]}"]


def test_blobs_that_go_while_they_are_listed_are_left_out(blobs):
    """Another process prunes: no error, neither in a list nor in a second pruning."""
    names = sorted(blobs.put(bytes([n])) for n in range(20))
    listed = blobs.names()
    assert next(listed)[0] == names[0]
    Blobs(blobs.folder).prune(-1)
    assert list(listed) == []
    assert blobs.prune(-1) == (0, 0)


def test_putting_and_pruning_at_once_loses_nothing_that_was_put_last(blobs):
    """Whatever the interleaving: after the last pruning everything put since its time is there, whole."""
    data = [bytes([n]) * 1000 for n in range(4)]
    names = [blobs.put(one) for one in data]
    going = threading.Event()

    def age():
        while not going.is_set():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.utime(blobs.folder / name[:2] / name[2:], (1, 1))
            blobs.prune(1000)

    thread = threading.Thread(target=age)
    thread.start()
    for _ in range(300):
        assert [blobs.put(one) for one in data] == names
    going.set()
    thread.join()
    assert [blobs.put(one) for one in data] == names
    assert [blobs.get(name) for name in names] == data
    assert len(files(blobs)) == 4


@pytest.mark.parametrize("torn", [b"", b"rig", "link"])
def test_a_blob_that_lies_there_torn_is_put_anew(blobs, tmp_path, torn):
    """What a crash of the machine left, or a link to somewhere else, is replaced and not believed."""
    name = blobs.put(b"right")
    place = blobs.folder / name[:2] / name[2:]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"other")
    if torn == "link":
        place.unlink()
        place.symlink_to(elsewhere)
    else:
        place.write_bytes(torn)
    assert blobs.put(b"right") == name
    assert blobs.get(name) == b"right"
    assert elsewhere.read_bytes() == b"other"


def through(capture, shared, one):
    return decode_lines(Edge(capture, shared).encode(one))[0][0]


def test_a_long_output_is_kept_whole_and_without_its_secrets(blobs):
    """The event holds head, tail, length and hash of what was told; the blob all of it, redacted."""
    output = "head " + "word " * 40_000 + "password=hunter22 " + "word " * 40_000 + "tail"
    shared = Shared(blobs)
    made = through(Capture(), shared, ToolReturned(id=EventId("e"), trajectory_id=TrajectoryId("t"), output=output))
    assert len(made.output.encode()) <= 65_536
    assert made.output.startswith("head ")
    assert made.output.endswith("tail")
    assert made.truncated.length == len(output)
    assert made.truncated.sha256 == hashlib.sha256(output.encode()).hexdigest()
    whole = blobs.get(made.truncated.blob).decode()
    assert whole == output.replace("hunter22", "[REDACTED:password]")
    assert shared.tally.counts == {"password": 1}


def test_other_long_texts_name_their_blob_in_the_mark(blobs):
    """Arguments and reasoning: the mark tells length and hash, also after a second cut."""
    reasoning = "r" * 90_000
    made = through(
        Capture(max_text_bytes=30_000, max_event_bytes=9000),
        Shared(blobs),
        ModelResponded(id=EventId("e"), trajectory_id=TrajectoryId("t"), reasoning=reasoning),
    )
    told = measured(made.reasoning)
    assert told.length == 90_000
    assert blobs.get(told.sha256).decode() == reasoning
    assert len(files(blobs)) == 1


def test_long_texts_of_spans_are_kept_whole(blobs):
    """Under the hash that the mark in the span tells; a text in JSON in a text, too."""
    line = RawEdge(Capture(max_text_bytes=5000, max_event_bytes=4000), Shared(blobs)).line(
        {"span": {"attributes": {"output.value": '{"rows": "' + "x" * 40_000 + '"}', "n": 1}}}
    )
    told = measured(line.decode())
    assert told.length == 40_000
    assert blobs.get(told.sha256) == b"x" * 40_000
    assert len(files(blobs)) == 1
