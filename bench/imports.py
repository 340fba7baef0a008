"""What files that others wrote come to, folder by folder: `millstream import --format auto`, then assembly.

python bench/imports.py FOLDER… [--json]

A row of the table: files, runs, steps (responses of a model), calls of tools, calls without a result, results without
a call, pieces of feedback, runs by status, dead letters and bad rows with their reasons. Exit 1 when anything was
raised.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from millstream.adapters.sqlite import open_sqlite
from millstream.capture.importers.base import import_into
from millstream.codec import encode_lines
from millstream.errors import MillstreamError
from millstream.events import CLOSE_OPEN, NO_RUN, EventId, Tick
from millstream.ledger import read_all
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory


def figures(folder: Path) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as scratch:
        opened = open_sqlite(Path(scratch) / "log.db")
        try:
            return _figures(folder, opened.log)
        finally:
            opened.close()


def _figures(folder: Path, log: Any) -> dict[str, Any]:
    began = time.process_time()
    result = import_into(log, [folder])
    again = import_into(log, [folder], dry_run=True)
    stage = Assembler(Assembly())
    records = list(read_all(log, "telemetry"))
    outputs = [output for record in records for output in stage.feed(record)]
    tick = encode_lines([Tick(id=EventId("end"), trajectory_id=NO_RUN, flags=(CLOSE_OPEN,))])
    outputs += stage.feed(Record("telemetry", 0, len(records), records[-1].log_ms if records else 0, "", tick, {}))
    assert stage.ledger.balance == 0
    kinds = [output.headers.get("kind") for output in outputs]
    runs = [
        msgspec.json.decode(o.value, type=Trajectory)
        for o, kind in zip(outputs, kinds, strict=True)
        if kind == "trajectory"
    ]
    letters = [json.loads(o.value)["reason"] for o, kind in zip(outputs, kinds, strict=True) if kind == "dead_letter"]
    assert (again.trajectories, again.events) == (result.trajectories, result.events)
    return {
        "folder": folder.name,
        "files": result.files,
        "runs": len(runs),
        "steps": sum(len(run.responses) for run in runs),
        "calls": sum(len(turn.tool_calls) for run in runs for turn in run.responses),
        "unanswered": sum(len(run.unanswered) for run in runs),
        "orphans": sum(len(run.orphans) for run in runs),
        "feedback": kinds.count("feedback"),
        "status": dict(Counter(run.status for run in runs)),
        "unmapped": stage.ledger.unmapped,
        "dead_letters": dict(Counter(letters)),
        "bad_rows": dict(Counter(_kind(problem.reason) for problem in result.problems)),
        "cpu_s": round(time.process_time() - began, 2),
    }


def _kind(reason: str) -> str:
    """A reason without what is of one row alone."""
    if reason.startswith("a row "):
        return "of no known format"
    if reason.startswith("http"):
        return "a call of another API"
    return reason.partition(":")[0].partition(";")[0][:60]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    raised = 0
    for folder in arguments.folders:
        try:
            rows.append(figures(folder))
        except MillstreamError as error:
            print(f"{folder}: {error}", file=sys.stderr)
        except Exception:  # noqa: BLE001 — nothing may be raised
            traceback.print_exc()
            raised += 1
    if arguments.json:
        print(json.dumps({"items": rows}))
        return int(raised > 0)
    names = list(rows[0]) if rows else []
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for row in rows:
        print("| " + " | ".join(_cell(row[name]) for name in names) + " |")
    return int(raised > 0)


def _cell(value: Any) -> str:
    return ", ".join(f"{name} {count}" for name, count in value.items()) if isinstance(value, dict) else str(value)


if __name__ == "__main__":
    sys.exit(main())
