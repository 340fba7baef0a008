"""What a run came to, and whether that is what an undisturbed one comes to: nothing lost, nothing doubled."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from chaos_cluster import RULES

from millstream.bootstrap import Runtime
from millstream.console.audit import audit
from millstream.ledger import read_all
from millstream.loading import load
from millstream.ndjson import filled
from millstream.ports import Log, Message, Record
from millstream.topics import BUFFER_EVENTS, DEAD_LETTERS, GRADES, TELEMETRY, TRAJECTORIES


class Outcome(NamedTuple):
    """Facts with how often each is told. All of them are independent of order, offsets and log times."""

    trajectories: Counter[tuple[Any, ...]]
    grades: Counter[tuple[Any, ...]]
    decisions: Counter[tuple[Any, ...]]
    dead_letters: Counter[tuple[Any, ...]]


def records(log: Log, topic: str) -> Iterator[Record]:
    """What readers take of a topic: repetitions of the outbox are left out, as everywhere."""
    for partition in range(log.partitions(topic)):
        yield from read_all(log, topic, partition)


def lines(log: Log, topic: str) -> Iterator[dict[str, Any]]:
    """Every line of a topic."""
    for record in records(log, topic):
        yield from (msgspec.json.decode(line) for line in filled(record.value))


def outcome(log: Log) -> Outcome:
    """What the log says came of it."""
    found = Outcome(Counter(), Counter(), Counter(), Counter())
    for one in lines(log, TRAJECTORIES.name):
        if "events" in one:
            found.trajectories[
                one["id"], one.get("revision", 1), one["content_hash"], one.get("status", "complete")
            ] += 1
    found.grades.update(_graded(one) for one in lines(log, GRADES.name) if one["kind"] != "Tick")
    found.decisions.update(fact for one in lines(log, BUFFER_EVENTS.name) if (fact := _decided(one)))
    for one in lines(log, DEAD_LETTERS.name):
        original = hashlib.sha256(one["original"].encode()).hexdigest()
        found.dead_letters[one["stage"], one["reason"], one["size"], original] += 1
    return found


def _graded(one: dict[str, Any]) -> tuple[Any, ...]:
    if one["kind"] == "GradingFinished":
        return one["trajectory_id"], one["revision"], "finished"
    grade = tuple(sorted((key, str(value)) for key, value in one["grade"].items()))
    return one["trajectory_id"], one["revision"], one["epoch"], one.get("attempt", 1), grade


def _decided(one: dict[str, Any]) -> tuple[Any, ...]:
    """What was decided; () for what comes later (evictions, leases)."""
    kind = one["kind"]
    if kind == "RolloutAdmitted":
        return one["trajectory_id"], "admitted", one["reward"], round(one["advantage"], 9)
    if kind == "RolloutRefused":
        return one["trajectory_id"], "refused", one["reason"]
    return (one["group"], "closed", one["size"], one["rewarded"]) if kind == "GroupClosed" else ()


def undisturbed(folder: Path, told: list[tuple[int, Message]]) -> Outcome:
    """The same stream through the embedded log, in this process."""
    folder.mkdir()
    settings = folder / "millstream.toml"
    settings.write_text(RULES, encoding="utf-8")
    with Runtime(load(settings, environ={})) as runtime:
        for start in range(0, len(told), 200):
            runtime.log.append(TELEMETRY.name, [message for _, message in told[start : start + 200]])
        runtime.pipeline().run(threading.Event(), until_idle=True)
        return outcome(runtime.log)


class Verdict(NamedTuple):
    """Facts that are missing, facts that are told twice, facts that nobody should tell; the books; the buffer."""

    lost: int
    doubled: int
    invented: int
    balanced: bool
    caught_up: bool
    buffer_equal: bool
    examples: list[str]

    @property
    def good(self) -> bool:
        return (
            not (self.lost or self.doubled or self.invented) and self.balanced and self.caught_up and self.buffer_equal
        )


def judge(runtime: Runtime, wanted: Outcome, besides: frozenset[str] = frozenset()) -> Verdict:
    """Hold a run against what it should have come to, but for some kinds of fact. A producer that was killed sends
    unusable lines again, so of dead letters only what is missing or invented counts, not how often.
    """
    found = outcome(runtime.log)
    lost, doubled, invented, examples = 0, 0, 0, list[str]()
    for name, have, want in zip(Outcome._fields, found, wanted, strict=True):
        if name in besides:
            continue
        counted = name != "dead_letters"
        missing = [fact for fact in want if fact not in have]
        strange = [fact for fact in have if fact not in want]
        twice = [fact for fact in want if counted and have[fact] > want[fact]]
        lost, doubled, invented = lost + len(missing), doubled + len(twice), invented + len(strange)
        told = (("lost", missing), ("doubled", twice), ("invented", strange))
        examples += [f"{name} {what}: {fact}" for what, facts in told for fact in facts[:3]]
    report = audit(runtime.log, runtime.store, runtime.loaded.settings, wait_s=30)
    examples += [str(one) for one in report.differences[:5]]
    return Verdict(lost, doubled, invented, report.balanced, report.caught_up, same_buffer(runtime), examples)


def same_buffer(runtime: Runtime) -> bool:
    """Whether Redis holds just what the decisions say, rebuilt from the log."""
    buffer = runtime.buffer()
    before = buffer.dump()
    runtime.rebuild_buffer()
    return bool(before == buffer.dump())
