"""kill -9 of `up` at random moments changes nothing: fifty lives give what one undisturbed life gives."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from millstream.codec import encode_lines
from millstream.console.audit import audit
from millstream.events import FeedbackGiven, MessageReceived, ModelResponded, Task, TrajectoryEnded, TrajectoryStarted
from millstream.grade import GradeGiven
from millstream.policy import (
    GateDecided,
    PolicyPromoted,
    PolicyRegistered,
    TrainingClaimed,
    TrainingFailed,
    TrainingFinished,
    TrainingRequested,
)
from millstream.ports import Message
from millstream.rollout import BufferDecision, GradingFinished, RolloutAdmitted, RolloutsAcknowledged

HERE = Path(__file__).parent
LIVES, PHASES, GROUPS = 50, 5, 2
GRADE = msgspec.json.Decoder(GradeGiven | GradingFinished)
DECISION = msgspec.json.Decoder(BufferDecision)


def load_mill():
    spec = importlib.util.spec_from_file_location("mill_server", HERE / "mill_server.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mill = load_mill()


class Server:
    """The other side of `mill_server`."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "mill_server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def life(self, folder, turns, pause_s):
        """Let a runner have so many turns, then kill it; whether it was still at work."""
        self.process.stdin.write(f"run {folder}\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline().split()[1])
        working = True
        for _ in range(turns):
            if self.process.stdout.readline() == "idle\n":
                working = False
                break
        if pause_s:
            threading.Event().wait(pause_s)
        os.kill(pid, signal.SIGKILL)
        while self.process.stdout.readline() != "dead\n":
            pass
        return working

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def run_of(number, group, size, stream):
    """One run; now and then with a duplicate, without its end, with feedback or broken."""
    name = f"run-{number}"
    common = {"trajectory_id": name, "producer": "sdk"}
    answer = str(stream.randrange(2))
    events = [
        TrajectoryStarted(
            id=f"{name}/0",
            seq=0,
            task=Task(id=group, question="?", reference="1"),
            group=group,
            group_size=size,
            lineage="policy",
            policy_version=1,
            **common,
        ),
        MessageReceived(id=f"{name}/1", seq=1, content="How much?" * stream.randrange(1, 9), **common),
        ModelResponded(id=f"{name}/2", seq=2, text=f"{stream.random()} so {answer}", **common),
        TrajectoryEnded(id=f"{name}/3", seq=3, final_answer=answer, last_seq={"sdk": 3}, **common),
    ]
    kind = number % 11
    if kind == 5:
        events.pop()
    elif kind == 7:
        events.append(events[1])
    elif kind == 9:
        events.append(FeedbackGiven(id=f"{name}/f", trajectory_id=name, value=1.0))
    lines = [encode_lines([event]) for event in events]
    if kind == 3:
        lines.insert(1, b"{broken\n")
    return name, lines


def telemetry(slices):
    """``slices`` lists of messages, the same every time."""
    stream = random.Random(7)
    number, made = 0, []
    for one in range(slices):
        messages = []
        for group in range(GROUPS):
            for _ in range(4):
                name, lines = run_of(number, f"task-{one}-{group}", 4, stream)
                number += 1
                cut = stream.randrange(1, len(lines))
                parts = (lines[:cut], lines[cut:])
                messages += [Message(name, b"".join(part), {"dialect": "millstream"}) for part in parts]
        stream.shuffle(messages)
        made.append(messages)
    return made


def values(log, topic):
    found, offset = [], 0
    while offset < log.bounds(topic)[1]:
        records = log.read(topic, 0, offset)
        found += records
        offset = records[-1].offset + 1
    return found


def decisions(log):
    return [DECISION.decode(line) for record in values(log, "buffer-events") for line in record.value.split(b"\n")]


def script_training(log, phase):
    """Ask for a training of everything admitted, claim it, and let it end: well, badly, or not at all."""
    ids = tuple(sorted({d.rollout_id for d in decisions(log) if isinstance(d, RolloutAdmitted)}))[phase::2]
    name, token = f"training-{phase}", f"token-{phase}"
    common = {"lineage": "policy"}
    events = [
        TrainingRequested(
            id=name, parent=1, rollout_ids=ids, algorithm="sft", seed=0, namespace="default", reason="script", **common
        ),
        TrainingClaimed(id=f"claim-{phase}", training_id=name, token=token, **common),
    ]
    if phase % 3 == 0:
        version = phase + 2
        events += [
            PolicyRegistered(id=f"version-{version}", version=version, uri="nowhere", parent=1, **common),
            TrainingFinished(
                id=f"finish-{phase}", training_id=name, token=token, version=version, manifest="m", **common
            ),
            GateDecided(
                id=f"gate-{phase}", version=version, expected_champion=1, verdict="refuse", reasons=("worse",), **common
            ),
        ]
    elif phase % 3 == 1:
        events.append(TrainingFailed(id=f"fail-{phase}", training_id=name, token=token, reason="script", **common))
    for event in events:
        log.append("policy-events", [Message("policy", msgspec.json.encode(event), {"kind": "policy"})])


def begin(log):
    base = [
        PolicyRegistered(id="v1", lineage="policy", version=1, uri="base"),
        PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap"),
    ]
    log.append("policy-events", [Message("policy", msgspec.json.encode(event)) for event in base])


def play(folder, live):
    """The whole script: slices of telemetry, each followed by ``live``; after each tenth all is worked
    off and a training is scripted. Then the outcome, after a look at the books.
    """
    with mill.runtime_of(folder) as runtime:
        begin(runtime.log)
        dump = runtime.buffer().dump
        for number, messages in enumerate(telemetry(LIVES), 1):
            for message in messages:
                runtime.log.append("telemetry", [message])
            live()
            if number % (LIVES // PHASES) == 0:
                mill.run_until_idle(folder)
                script_training(runtime.log, number // (LIVES // PHASES) - 1)
        mill.run_until_idle(folder)
        mill.run_until_idle(folder, close_open=True)
        check_books(runtime)
        return {**outcome(runtime.log), "buffer": _without_times(dump())}


def _without_times(dump):
    return {
        "rollouts": sorted((name, e["reward"], e["advantage"], e["group"]) for name, e in dump["rollouts"].items()),
        "leases": sorted((name, lease["token"], *lease["rollout_ids"]) for name, lease in dump["leases"].items()),
        "uses": dump["uses"],
        "groups": dump["groups"],
    }


def outcome(log):
    """Everything that must be equal, without log times and ids of topics."""
    trajectories, graded = [], []
    for record in values(log, "trajectories"):
        body = msgspec.json.decode(record.value)
        trajectories.append((record.headers["kind"], body["id"], body.get("revision"), body.get("content_hash")))
    for record in values(log, "grades"):
        for line in record.value.split(b"\n"):
            if line and b'"kind":"Tick"' not in line:
                item = GRADE.decode(line)
                graded.append(
                    (item.id, item.grade) if isinstance(item, GradeGiven) else (item.trajectory_id, item.grade_ids)
                )
    letters = [msgspec.json.decode(record.value) for record in values(log, "dead-letters")]
    return {
        "trajectories": sorted(trajectories, key=repr),
        "grades": sorted(graded, key=repr),
        "dead letters": sorted((x["reason"], x["offset"], x["index"]) for x in letters),
        "decisions": sorted(map(_plain, decisions(log)), key=repr),
        "consumed": sorted(i for d in decisions(log) if isinstance(d, RolloutsAcknowledged) for i in d.rollout_ids),
    }


def _plain(decision):
    body = {"kind": type(decision).__name__, **msgspec.to_builtins(decision)}
    for timed in ("log_ms", "priority"):
        body.pop(timed, None)
    if body.get("position"):
        body["position"].pop("topic_id")
    if "habits" in body.get("facts", {}):
        body["facts"]["habits"].pop("began_ms")  # a log time, too
    return body


def check_books(runtime):
    """Outbox numbers without hole or repeat, and a balanced audit."""
    for topic in ("trajectories", "dead-letters", "grades", "buffer-events"):
        own = [r.headers for r in values(runtime.log, topic) if "stage" in r.headers]
        for stage in {h["stage"] for h in own}:
            numbers = [int(h["n"]) for h in own if h["stage"] == stage]
            assert numbers == sorted(set(numbers))
    report = audit(runtime.log, runtime.store, runtime.loaded.settings)
    assert report.differences == ()
    assert report.caught_up


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fifty_kills_change_nothing(tmp_path):
    """Trajectories, grades, dead letters, buffer decisions, consumed ids and the buffer itself are those
    of a run without kills, and the books balance.
    """
    calm = tmp_path / "calm"
    expected = play(calm, lambda: None)
    assert len(expected["trajectories"]) > 350
    assert expected["consumed"]
    assert expected["buffer"]["leases"]
    stream = random.Random(9)
    server = Server()
    killed = tmp_path / "killed"
    working = []
    try:
        found = play(
            killed,
            lambda: working.append(server.life(killed, stream.randrange(12), stream.choice((0, 0.001, 0.003)))),
        )
    finally:
        server.close()
    assert sum(working) >= LIVES // 3, "most lives were idle before they were killed"
    for part, content in expected.items():
        assert found[part] == content, part
