"""One side of the assembly benchmark, run in a process of its own on one core.

``python bench/assembly_sides.py SIDE FILE EVENTS`` prints one JSON object: events, CPU and wall
seconds, trajectories, and the peak resident memory in KiB.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millstream.codec import decode_lines

if TYPE_CHECKING:
    from millstream.ports import Output
    from millstream.streams.assembly import Assembler

LINES = 50
"""Events a record, as the SDK and the gateway batch them."""


def records(path: Path, events: int) -> Iterator[bytes]:
    """The file's lines, `LINES` to a record."""
    with path.open("rb", buffering=1 << 20) as file:
        left = events
        while left > 0 and (lines := list(islice(file, min(LINES, left)))):
            left -= len(lines)
            yield b"".join(lines)


def read(path: Path, events: int) -> dict[str, int]:
    """Only cut the file into records: what all sides pay."""
    return {"events": sum(value.count(b"\n") for value in records(path, events))}


def decode(path: Path, events: int) -> dict[str, int]:
    """Only decode, with the decoder that assembly uses."""
    return {"events": sum(len(decode_lines(value)) for value in records(path, events))}


def stage(path: Path, events: int) -> tuple[Assembler, Iterator[Output]]:
    """The stage of assembly and the outputs it makes of the file, one at a time."""
    from assembly_events import BORN_MS, STEP_MS

    from millstream.ports import Record
    from millstream.settings import Assembly
    from millstream.streams.assembly import Assembler

    assembler = Assembler(Assembly())

    def outputs() -> Iterator[Output]:
        for offset, value in enumerate(records(path, events)):
            yield from assembler.feed(Record("telemetry", 0, offset, BORN_MS + offset * LINES * STEP_MS, "", value))

    return assembler, outputs()


def assemble(path: Path, events: int) -> dict[str, int]:
    """Decode and assemble with the stage itself, its outputs made and dropped."""
    assembler, outputs = stage(path, events)
    trajectories = size = 0
    for output in outputs:
        trajectories += output.topic == "trajectories"
        size += len(output.value)
    ledger = assembler.ledger
    assert ledger.balance == ledger.late == ledger.dead == 0
    return {
        "events": ledger.inputs,
        "trajectories": trajectories,
        "duplicates": ledger.duplicate,
        "bytes": size,
        "open": assembler.open,
        "remembered": assembler.remembered,
    }


def scores(path: Path, events: int) -> dict[str, int]:
    """The scores of what assembly puts out, to be compared with those of bytewax; not for timing."""
    from assembly_bytewax import score

    from millstream.trajectory import Trajectory

    assembler, outputs = stage(path, events)
    made = (msgspec.json.decode(output.value, type=Trajectory) for output in outputs)
    sealed = [trajectory for trajectory in made if trajectory.status == "complete"]  # the others have no score there
    return {
        "events": assembler.ledger.inputs,
        "trajectories": len(sealed),
        "duplicates": assembler.ledger.duplicate,
        "score": sum(score(trajectory.events) for trajectory in sealed),
    }


def bytewax(path: Path, events: int) -> dict[str, int]:
    """Decode, group and score on bytewax."""
    import assembly_bytewax

    return assembly_bytewax.run(records(path, events), 1000 // LINES, same_output=False)


def bytewax_same(path: Path, events: int) -> dict[str, int]:
    """Decode and group on bytewax, and make the same output."""
    import assembly_bytewax

    return assembly_bytewax.run(records(path, events), 1000 // LINES, same_output=True)


SIDES: dict[str, Callable[[Path, int], dict[str, int]]] = {
    "read": read,
    "decode": decode,
    "assemble": assemble,
    "scores": scores,
    "bytewax": bytewax,
    "bytewax-same": bytewax_same,
}


def main(side: str, path: str, events: str) -> None:
    """Measure one side and print the figures."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    SIDES[side](Path(path), 100)  # imports and first calls are not measured
    cpu, wall = time.process_time(), time.perf_counter()
    figures = SIDES[side](Path(path), int(events))
    seconds = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"side": side, **figures, **seconds, "rss_kib": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
