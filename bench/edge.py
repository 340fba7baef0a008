"""What the edge costs an event: redaction, media, bounds and encoding, by default and with every kind on.

python bench/edge.py [--json] [--data FOLDER]

Microseconds of one process an event, the best of five, beside encoding alone. ``--data``: what a folder of JSON files
takes when every text in it is looked into (no look before), in nanoseconds a byte, and what is found there, by kind.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec

from millstream.capture.edge import Edge
from millstream.capture.importers.reading import Row, rows
from millstream.capture.redaction import Redactor
from millstream.events import EventId, ModelResponded, ToolReturned, TrajectoryId, new_id
from millstream.settings import Capture, RedactionKind
from millstream.values import tool_call

TEXT = "The revenue of the year was 482.5 million, up from 455.0 million in the year before. " * 4
CALL = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "2+2"}'}}
ALL = get_args(RedactionKind)
IMAGE = "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(100_000)).decode()
_encode = msgspec.json.Encoder().encode


def envelope() -> dict[str, object]:
    return {
        "id": EventId(new_id()),
        "trajectory_id": TrajectoryId(new_id()),
        "producer": new_id(),
        "seq": 3,
        "time_ns": time.time_ns(),
    }


def events() -> dict[str, msgspec.Struct]:
    """What agents tell most, and what costs most."""
    ids = {"token_ids": tuple(range(64)), "logprobs": (-0.5,) * 64}
    response = ModelResponded(**envelope(), text=TEXT, tool_calls=(tool_call(CALL),), **ids)
    outputs = {
        "a tool's output, 340 B": TEXT,
        "a tool's output, 8 kB": TEXT * 24,
        "a tool's output, 60 kB": TEXT * 175,
        "a tool's output, 3 MB, cut": TEXT * 9000,
        "a password in 700 B": f"{TEXT} password=hunter22 {TEXT}",
        "a password in JSON, 700 B": json.dumps({"rows": [TEXT, TEXT], "password": "hunter22"}),
        "an image of 100 kB": f"see {IMAGE}",
    }
    told = {name: ToolReturned(**envelope(), call_id="c1", name="f", output=text) for name, text in outputs.items()}
    return {"a response with 64 token ids": response, **told}


def best(work: Callable[[], object]) -> float:
    """Microseconds of one call."""
    began = time.perf_counter()
    work()
    times = max(1, min(2000, int(0.05 / (time.perf_counter() - began))))
    found = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(times):
            work()
        found = min(found, (time.process_time() - began) / times)
    return round(found * 1e6, 1)


def measured() -> dict[str, dict[str, float]]:
    """Microseconds by event: encoding alone, the edge as it is by default, and with every kind on."""
    found = {}
    for name, event in events().items():
        edges = {"by default": Edge(Capture()), "every kind": Edge(Capture(redact=ALL))}
        found[name] = {"encoding alone": best(lambda event=event: _encode(event))}
        found[name] |= {kind: best(lambda e=edge, event=event: e.encode(event)) for kind, edge in edges.items()}
    return found


def scanned(folder: Path) -> dict[str, float | dict[str, int]]:
    """Every text of the JSON files of a folder, looked into."""
    made, size, spent = Redactor(Capture(redact=ALL)), 0, 0.0
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".jsonl", ".ndjson", ".traj") and path.is_file():
            values = [row.value for row in rows(path) if isinstance(row, Row)]
            size += path.stat().st_size
            began = time.process_time()
            for value in values:
                made.tree(value)
            spent += time.process_time() - began
    return {"bytes": size, "ns a byte": round(spent / size * 1e9, 1), "found": dict(Counter(made.counts).most_common())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    found = {"events": measured(), **({"data": scanned(asked.data)} if asked.data else {})}
    if asked.json:
        print(json.dumps(found))
        return
    for name, figures in found["events"].items():
        print(f"{name:<30}" + "".join(f"{kind:>18} {value:>9,.1f}" for kind, value in figures.items()))
    for name, value in found.get("data", {}).items():
        print(f"{name:<30} {value}")


if __name__ == "__main__":
    main()
