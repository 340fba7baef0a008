"""The transitions of assembly that an event brings: what it does to its trajectory, or why it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, TypeAlias, cast

from millstream.codec import content_digest, decode
from millstream.errors import EventError
from millstream.events import (
    CLOSE_OPEN,
    MAX_SEQ,
    NO_RUN,
    AnyEvent,
    FeedbackGiven,
    Link,
    MessageReceived,
    ModelResponded,
    Tick,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
    born_ms,
)
from millstream.streams.assembly_lifetimes import Lifetimes
from millstream.streams.assembly_node import answers, asks
from millstream.streams.assembly_run import INDEX_BITS, INDEX_MASK, Line, Run, last_after, new_run
from millstream.streams.dead_letters import UNJOINED

RunEvent: TypeAlias = TrajectoryStarted | MessageReceived | ModelResponded | ToolReturned | TrajectoryEnded
_COMMON: dict[type, type] = {kind: kind for kind in (ToolReturned, ModelResponded, MessageReceived, TrajectoryEnded)}
"""Kinds that the hot path knows: those that go on with a run."""
_RARE: dict[type, type] = {}
"""The same for imports, which take the long way."""
_name_of = attrgetter("trajectory_id")


class Fold(Lifetimes):
    """The transitions of one partition's trajectories."""

    def take(
        self, events: Sequence[AnyEvent | EventError], lines: Sequence[bytes], offset: int, *, imported: bool
    ) -> None:
        """Fold in the lines of one record, in order, at one moment.

        This is the hot path, and that is why it is long: an event in the middle of an open sequenced
        run that takes a free slot, and an end that makes it whole, are dealt with here, all else in
        `_take`. Runs are looked up in C, lazily, a line at a time; kinds are compared by class, since
        ``isinstance`` on a msgspec struct goes through `abc` and costs 0.5 µs when it fails; and as long
        as every seq is small no cap can be reached.
        """
        now, light, slow = self.now, self.light, 0
        kind_of = _RARE.get if imported else _COMMON.get
        runs = map(self.runs.get, map(_name_of, events))
        event: Any
        for place, event, raw, run in zip(count(offset << INDEX_BITS), events, lines, runs):
            if (
                run is not None
                and (kind := kind_of(type(event))) is not None
                and event.producer == run.plain
                and (seq := event.seq) is not None
                and event.link is None
                and seq not in (lane := run.lane)
                and (identity := event.id) not in (identities := run.identities)
                and (kind is not TrajectoryEnded or _last_of(run, event))
            ):
                identities[identity] = place
                lane[seq] = raw
                run.last_ms = now
                if kind is ToolReturned:
                    run.answered.append(event.call_id)
                elif kind is ModelResponded:
                    for call in event.tool_calls:
                        run.asked.append(call.id)
                elif kind is TrajectoryEnded:
                    run.end_reason = event.reason
                    self.seal_run(event.trajectory_id, run, "complete", now)
                    continue
                if seq > light or run.heavy:
                    self._weigh(event.trajectory_id, run, len(raw))
            else:
                slow += 1
                self._take(event, (raw, offset, place & INDEX_MASK), imported=imported)
        self.ledger.accepted += len(events) - slow

    def _weigh(self, name: str, run: Run, size: int) -> None:
        """Keep count of the bytes of a run that may be large enough for a cap."""
        run.weight = run.size if run.weight < 0 else run.weight + size
        run.heavy = True
        self.settle(name, run)

    def _take(self, event: AnyEvent | EventError, line: Line, *, imported: bool) -> None:
        """Anything that a record may hold."""
        if isinstance(event, EventError):
            self.ledger.dead += 1
            self.effects.refused(event.reason, str(event), line)
        elif type(event) is FeedbackGiven:
            self._feedback(event, line, line[0])
        elif type(event) is Tick:
            self.ledger.tick += 1
            if CLOSE_OPEN in event.flags:
                self.close_open()
        else:
            self._fold(cast("RunEvent", event), line, imported=imported)

    def _feedback(self, event: FeedbackGiven, line: Line, raw: bytes) -> None:
        """Feedback (``raw``, told by ``line``) goes on its way; what names no run is a letter."""
        if event.trajectory_id != NO_RUN:
            self.ledger.feedback += 1
            self.effects.feedback(event.trajectory_id, raw)
            return
        self.ledger.dead += 1
        named = f"names response {event.response_id!r}" if event.response_id else "names no response either"
        self.effects.refused(UNJOINED, f"feedback without a trajectory, it {named}", line)

    def _fold(self, event: RunEvent, line: Line, *, imported: bool) -> None:
        """Fold in an event of a trajectory."""
        name, link = event.trajectory_id, event.link
        if link is None and event.seq is None:
            self._unplaceable(event, line)
            return
        identity = event.id if link is None else content_digest(line[0])
        run = self.runs.get(name) or self._begin(event, identity, line, imported=imported)
        if run is None:
            return
        if identity in run.identities:
            self.ledger.duplicate += 1
            run.duplicates += not run.reason
            return
        if len(run.identities) < self.most_identities:
            run.identities[identity] = (line[1] << INDEX_BITS) + line[2]
        if imported:
            run.imported = True
        if type(event) is TrajectoryEnded:
            self._end(name, run, event)
        if link is not None:
            self._link(name, run, event, link, line)
        else:
            self._place(name, run, event, line)
        if not run.reason:
            self.settle(name, run)

    def _unplaceable(self, event: RunEvent, line: Line) -> None:
        self.ledger.dead += 1
        detail = f"event {event.id!r} of trajectory {event.trajectory_id!r} has neither a seq nor a link: give it one"
        self.effects.refused("unplaceable", detail, line, event.trajectory_id)

    def _begin(self, event: RunEvent, identity: str, line: Line, *, imported: bool) -> Run | None:
        """A new run for the event to go into; None when the event was dealt with: its trajectory is
        closed or too old, or it is a plain start.
        """
        name = event.trajectory_id
        if name in self.closed.stones:
            if self.closed.knows(name, identity):
                self.ledger.duplicate += 1
            else:
                revision = self.closed.revision(name)
                self._late("sealed", f"trajectory {name} was sealed for good as revision {revision}", line, name)
            return None
        born = born_ms(name)
        if born is not None and not imported and born + self.timers.retain <= self.now:
            self._late("too_old", f"trajectory {name} is older than [assembly] retain_s", line, name)
            return None
        if len(self.runs) >= self.most_open:
            self.make_room()
        run = self.runs[name] = new_run(event.producer, self.now, born, imported=imported)
        self.sealing.start(name, run)
        if type(event) is not TrajectoryStarted or event.link is not None or (event.seq or 0) > self.light:
            return run
        run.identities[identity] = (line[1] << INDEX_BITS) + line[2]
        run.lane[event.seq or 0] = line[0]
        self.ledger.accepted += 1
        return None

    def _late(self, why: str, detail: str, line: Line, name: str) -> None:
        self.ledger.late += 1
        self.effects.refused(f"late:{why}", detail, line, name)

    def _end(self, name: str, run: Run, event: TrajectoryEnded) -> None:
        """Learn where the producers ended; what lies after it goes."""
        last = last_after(run.last, event)
        if run.last == last:
            return
        if run.reason:
            self.reopen(name, run)
        run.last, run.end_ms, run.plain = last, self.now, None
        if run.others or run.linked or max(run.lane, default=-1) > last.get(run.producer, MAX_SEQ):
            self._cut(name, run, last)

    def _cut(self, name: str, run: Run, last: Mapping[str, int]) -> None:
        """Take out what lies after its producer's end."""
        for producer, lane in run.lanes.items():
            for seq in sorted(seq for seq in lane if seq > last.get(producer, MAX_SEQ)):
                self._take_out(run)
                raw = lane.pop(seq)
                self._after_end(name, producer, seq, run.line(decode(raw).id, raw))

    def _take_out(self, run: Run) -> None:
        self.ledger.accepted -= 1
        run.weight = -1
        run.disturbed = True

    def _after_end(self, name: str, producer: str, seq: int, line: Line) -> None:
        self.ledger.after_end += 1
        detail = f"seq {seq} of producer {producer!r} lies after the end of trajectory {name}"
        self.effects.refused("late:after_end", detail, line, name)

    def _place(self, name: str, run: Run, event: RunEvent, line: Line) -> None:
        """Put a sequenced event into its slot, or decide whose slot it is: the smallest id's."""
        producer, seq = event.producer, event.seq
        assert seq is not None
        if run.last is not None and seq > run.last.get(producer, MAX_SEQ):
            self._after_end(name, producer, seq, line)
            return
        lane = run.lane_of(producer)
        held = lane.get(seq)
        if held is None:
            self._accept(name, run, event)
            lane[seq] = line[0]
            return
        self.ledger.conflict += 1
        kept, lost = decode(held).id, event.id
        if not run.reason:
            run.conflicts += 1
            if lost < kept:
                kept, lost = lost, kept
                self._take_out(run)
                self._accept(name, run, event)
                lane[seq], line = line[0], run.line(lost, held)
        detail = f"trajectory {name} has two events at {producer}:{seq}: {kept!r} is kept, not {lost!r}"
        self.effects.refused("late:conflict", detail, line, name)

    def _link(self, name: str, run: Run, event: RunEvent, link: Link, line: Line) -> None:
        """Put a version of a linked event into its slot if it outranks the one that is there."""
        if run.aliases.get(link.key, link.key) != link.key:
            self.ledger.superseded += 1
            return
        if link.alias:
            self._known_as(name, run, link)
        held = run.spans.get(link.key)
        if held is not None:
            self.ledger.superseded += 1
            if _rank(link, line[0]) < _rank(decode(held).link, held):
                return
            self._take_out(run)
        self._accept(name, run, event)
        run.spans[link.key] = line[0]
        if not run.linked:
            run.linked, run.plain = True, None
            run.graced = 0 <= run.end_ms <= self.now - self.timers.grace
        if run.end_ms < 0 and link.root and link.finality > 0:
            run.end_ms = self.now

    def _known_as(self, name: str, run: Run, link: Link) -> None:
        """Learn a second key; what was told under it is a worse version of the same."""
        run.aliases[link.alias] = link.key
        if run.spans.pop(link.alias, None) is not None:
            if run.reason:
                self.reopen(name, run)
            self.ledger.superseded += 1
            self._take_out(run)

    def _accept(self, name: str, run: Run, event: RunEvent) -> None:
        """Note an event that is about to get a slot."""
        if run.reason:
            self.reopen(name, run)
        self.ledger.accepted += 1
        run.weight = -1
        run.heavy = run.heavy or (event.seq or 0) > self.light
        run.last_ms = self.now
        if type(event) is TrajectoryEnded:
            run.disturbed = run.disturbed or bool(run.end_reason)
            run.end_reason = event.reason
        else:
            run.asked += asks(event)
            run.answered += answers(event)


def _last_of(run: Run, event: TrajectoryEnded) -> bool:
    """Whether this end is the one event that a run of one producer still lacks."""
    seq = event.seq
    return (
        not run.others
        and len(run.lane) == seq
        and max(run.lane, default=-1) < seq
        and (not event.last_seq or event.last_seq == {event.producer: seq})
    )


def _rank(link: Link | None, raw: bytes) -> tuple[int, str]:
    """Of several versions of a linked event the highest wins, in whatever order they come."""
    return (link.finality if link is not None else 0, content_digest(raw))
