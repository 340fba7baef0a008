"""Records of other dialects in assembly: each line is read into linked events, which the fold takes together.

A line is one thing: it is new, or it came before, or it comes too late, or it can't be read, with all the events
that it tells.
"""

from __future__ import annotations

from typing import cast

from millstream.codec import content_digest, encode
from millstream.dialects.reading import Mapped, Place, lines_of, mapped
from millstream.errors import EventError
from millstream.events import NO_RUN, FeedbackGiven
from millstream.ports import Record
from millstream.streams.assembly_fold import Fold, RunEvent
from millstream.streams.assembly_run import INDEX_BITS, Line, Run, new_run


class DialectFold(Fold):
    """The fold with a door for records of a dialect."""

    def read(self, record: Record, *, imported: bool) -> None:
        """Fold in the lines of one record, in order, at one moment."""
        for index, raw in lines_of(record.value or b""):
            line = (raw, record.offset, index)
            try:
                told = mapped(raw, record.headers)
            except EventError as error:
                self.ledger.inputs += 1
                self.ledger.dead += 1
                self.effects.refused(error.reason, str(error), line)
                continue
            self._told(told, line, imported=imported)

    def _told(self, told: Mapped, line: Line, *, imported: bool) -> None:
        name, identity = told.trajectory_id, content_digest(line[0])
        run = self.runs.get(name)
        self.ledger.inputs += 1
        if not told.events:
            self.ledger.unmapped += 1
            if told.place is not None and name not in self.closed.stones:
                run = run or self._opened(name, imported=imported)
                self._hang(name, run, told.span_id, told.place)
                self._settled(name, run)
            return
        if name == NO_RUN:
            for event in told.events:
                self._feedback(cast("FeedbackGiven", event), line, b"")
            return
        if self._came_before(name, run, identity):
            return
        if name in self.closed.stones:
            revision = self.closed.revision(name)
            self._late("sealed", f"trajectory {name} was sealed for good as revision {revision}", line, name)
            return
        run = run or self._opened(name, imported=imported)
        if len(run.identities) < self.most_identities:
            run.identities[identity] = (line[1] << INDEX_BITS) + line[2]
        self.ledger.inputs += len(told.events) - 1
        self._take_in(name, run, told, line)

    def _came_before(self, name: str, run: Run | None, identity: str) -> bool:
        """Whether this very line was seen; then it is counted. A closed trajectory remembers it from now on."""
        closed = name in self.closed.stones and self.closed.knows(name, identity)
        if closed or (run is not None and identity in run.identities):
            self.ledger.duplicate += 1
            if run is not None:
                run.duplicates += not run.reason
            return True
        return False

    def _take_in(self, name: str, run: Run, told: Mapped, line: Line) -> None:
        if told.place is not None:
            self._hang(name, run, told.span_id, told.place)
        for event in told.events:
            raw = encode(event)
            if type(event) is FeedbackGiven:
                self._feedback(event, line, raw)
            elif event.link is not None:
                self._link(name, run, cast("RunEvent", event), event.link, (raw, *line[1:]))
        self._settled(name, run)

    def _hang(self, name: str, run: Run, span_id: str, place: Place) -> None:
        """Learn where a span hangs; a sealed run that misses it is opened again."""
        run.linked, run.plain = True, None
        known = run.hung.get(span_id)
        run.hung[span_id] = place if known is None else max(known, place)
        run.rooted = run.rooted or place.root
        if known is None and run.reason:
            self.reopen(name, run)
        if not run.reason:
            run.last_ms = self.now

    def _settled(self, name: str, run: Run) -> None:
        """See to the run's end, once it has something to end with."""
        if run.rooted and run.end_ms < 0 and not run.silent:
            run.end_ms = self.now
        if not run.reason and not run.silent:
            self.settle(name, run)

    def _opened(self, name: str, *, imported: bool) -> Run:
        if len(self.runs) >= self.most_open:
            self.make_room()
        run = self.runs[name] = new_run("", self.now, None, imported=imported)
        run.linked, run.plain = True, None
        self.sealing.start(name, run)
        self.sealing.arm(name, run)
        return run
