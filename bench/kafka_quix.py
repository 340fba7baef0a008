"""The work of assemble and a numeric grader in quixstreams, with its state and changelog. `kafka_workers.py`
starts it in an environment of its own; nothing of Millstream is imported.

python bench/kafka_quix.py HOST:PORT TOPIC OUTPUT

Events come one a record, keyed by run; a run's state is its events by id. When its end has come and nothing is
missing, the run is graded by its number and written out.
"""

from __future__ import annotations

import re
import sys

import msgspec
from quixstreams import Application

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
address, source, target = sys.argv[1:4]
app = Application(
    broker_address=address,
    consumer_group=f"quix-{source}",
    auto_offset_reset="earliest",
    auto_create_topics=True,
    commit_interval=1.0,
    topic_create_timeout=60,
)
decode = msgspec.json.Decoder().decode
events = app.topic(source, key_deserializer="str", value_deserializer="bytes")
grades = app.topic(target, key_serializer="str", value_serializer="json")


def fold(raw, state):
    event = decode(raw)
    run = state.get("run") or {"seen": {}, "last": None, "reference": None, "answer": None, "done": False}
    if run["done"] or event["id"] in run["seen"]:
        return None
    run["seen"][event["id"]] = event
    if event["kind"] == "TrajectoryStarted":
        run["reference"] = event["task"].get("reference")
    elif event["kind"] == "TrajectoryEnded":
        run["last"], run["answer"] = event["seq"], event.get("final_answer", "")
    run["done"] = run["last"] is not None and len(run["seen"]) == run["last"] + 1
    made = None
    if run["done"]:
        found = NUMBER.findall(run["answer"])
        right = bool(found) and run["reference"] is not None and float(found[-1]) == float(run["reference"])
        made = {"id": event["trajectory_id"], "events": list(run["seen"].values()), "score": float(right)}
        run["seen"] = dict.fromkeys(run["seen"])
    state.set("run", run)
    return made


frame = app.dataframe(events).apply(fold, stateful=True).filter(lambda made: made is not None)
frame.to_topic(grades)
app.run()
