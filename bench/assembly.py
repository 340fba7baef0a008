"""Assembly against its limit and against bytewax, each side in a process of its own on one core.

The file holds events of about 1 KB, about 20 a trajectory, 400 trajectories at a time, 1 % twice, 2 %
displaced. Printed: events/s of CPU time (the fastest of several interleaved runs), the two ratios, the
cost of an event at 10,000 and at 1,000,000 events, and the memory at two numbers of closed trajectories.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import assembly_events

HERE = Path(__file__).resolve().parent
SMALL, COMPARED, HALF, LARGE = 10_000, 100_000, 500_000, 1_000_000
ROUNDS = 5
LEAST_OF_DECODE, LEAST_OF_BYTEWAX = 0.35, 1.7
MOST_GROWTH_MIB = 16


def measure(side: str, file: Path, events: int) -> dict[str, float]:
    """One run of one side."""
    command = [sys.executable, str(HERE / "assembly_sides.py"), side, str(file), str(events)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def micros(run: dict[str, float]) -> float:
    """CPU microseconds an event."""
    return run["cpu_s"] / run["events"] * 1e6


def compare(file: Path) -> bool:
    """The three sides on the same events; whether both ratios reach their targets."""
    best: dict[str, float] = {}
    counts = {}
    for _ in range(ROUNDS):
        for side in ("decode", "assemble", "bytewax", "bytewax-same"):
            run = measure(side, file, COMPARED)
            best[side] = min(best.get(side, 1e9), micros(run))
            counts[side] = run
    for side, cost in best.items():
        memory = counts[side]["rss_kib"] / 1024
        print(f"{side:12} {1e6 / cost:10,.0f} events/s  {cost:6.2f} µs CPU an event  {memory:5.0f} MiB")
    found = measure("scores", file, COMPARED)
    same = {key: found[key] for key in ("trajectories", "duplicates", "score")}
    assert same == {key: counts["bytewax"][key] for key in same}, (same, counts["bytewax"])
    assert counts["assemble"]["duplicates"] == counts["bytewax"]["duplicates"] == counts["bytewax-same"]["duplicates"]
    of_decode, of_bytewax = best["decode"] / best["assemble"], best["bytewax-same"] / best["assemble"]
    scoring = best["bytewax"] / best["assemble"]
    print(f"decode + assemble is {of_decode:.2f} of decode only (at least {LEAST_OF_DECODE}, aim .6)")
    print(
        f"decode + assemble is {of_bytewax:.2f} times bytewax of the same output (at least {LEAST_OF_BYTEWAX}, aim 3)"
    )
    print(f"  and {scoring:.2f} times bytewax that only scores what it grouped")
    return of_decode >= LEAST_OF_DECODE and of_bytewax >= LEAST_OF_BYTEWAX


def grow(file: Path) -> bool:
    """Cost and memory as the number of events grows; whether memory stays flat."""
    small = min((measure("assemble", file, SMALL) for _ in range(ROUNDS)), key=micros)
    half, large = measure("assemble", file, HALF), measure("assemble", file, LARGE)
    for run in (small, half, large):
        print(
            f"{run['events']:9,} events: {micros(run):6.2f} µs CPU an event, {run['rss_kib'] / 1024:5.0f} MiB at most; "
            f"{run['trajectories']:6,} sealed, {run['remembered']:6,} still remembered"
        )
    growth = (large["rss_kib"] - half["rss_kib"]) / 1024
    closed = large["trajectories"] - half["trajectories"]
    print(f"{closed:,} more closed trajectories: {growth:+.1f} MiB (at most {MOST_GROWTH_MIB})")
    return growth <= MOST_GROWTH_MIB


def main() -> int:
    """Run it all; 1 when a target was missed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.ndjson"
        count = assembly_events.write(file, LARGE)
        days = count * assembly_events.STEP_MS / 86_400_000
        print(f"{count:,} events, {file.stat().st_size / count:,.0f} bytes each, {days:.1f} days of log time")
        fast = compare(file)
        flat = grow(file)
    return int(not (fast and flat))


if __name__ == "__main__":
    sys.exit(main())
